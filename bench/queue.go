package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

// queueHTTP is a client for gRPC over HTTP/2 without TLS, all calls on one connection.
// Frames of 1 MiB instead of 16 KiB spare both sides system calls.
func queueHTTP() *http.Client {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: p, HTTP2: &http.HTTP2Config{MaxReadFrameSize: 1 << 20}}}
}

func queueClient(addr string) tubev1connect.QueueServiceClient {
	return tubev1connect.NewQueueServiceClient(queueHTTP(), "http://"+addr, connect.WithGRPC())
}

// groupsAtOnce are being made at a time: those that come while metadata and logs are
// synced share the next sync.
const groupsAtOnce = 16

// createGroups makes queue groups of a topic: base-0, base-1, … A group that is made
// begins at the start of the topic. All share one topic of dead letters. change may
// give other settings.
func createGroups(ctx context.Context, kafka, addr, topic, base string, count int, change ...func(*tubev1.QueueSettings)) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	dead := base + "-dead"
	if err := createTopic(ctx, kafka, dead, 1); err != nil {
		return err
	}
	admin := tubev1connect.NewQueueAdminServiceClient(queueHTTP(), "http://"+addr, connect.WithGRPC())
	settings := &tubev1.QueueSettings{DeadLetter: &dead, MaxInFlight: new(int32(100_000))}
	for _, f := range change {
		f(settings)
	}
	making, ctx := errgroup.WithContext(ctx)
	making.SetLimit(groupsAtOnce)
	for i := range count {
		making.Go(func() error {
			return createGroup(ctx, admin, &tubev1.CreateGroupRequest{
				Group: fmt.Sprintf("%s-%d", base, i), Topic: topic, From: &tubev1.Position{At: &tubev1.Position_Start{Start: true}},
				Settings: settings,
			})
		})
	}
	return making.Wait()
}

// createGroup makes one. On a busy machine a group may be made and not have begun in time.
func createGroup(ctx context.Context, admin tubev1connect.QueueAdminServiceClient, g *tubev1.CreateGroupRequest) error {
	_, err := admin.CreateGroup(ctx, connect.NewRequest(g))
	for tries := 0; err != nil && connect.CodeOf(err) != connect.CodeAlreadyExists; tries++ {
		if tries == 3 || ctx.Err() != nil {
			return fmt.Errorf("create queue group %s: %w", g.Group, err)
		}
		sleep(ctx, time.Second)
		_, err = admin.CreateGroup(ctx, connect.NewRequest(g))
	}
	return nil
}

// queueConsumer is one Consume stream that is always granted window messages. handle
// is called for each message; then its lease goes up, with all that have gathered while
// the frame before was written, or each in a frame of its own.
type queueConsumer struct {
	stream *connect.BidiStreamForClient[upFrame, downFrame]
	window int
	single bool               // a frame for each acknowledgement
	handle func(value []byte) // from one goroutine
	acked  func(n int)
	acks   chan [][]byte // of a frame's messages each
}

func (m *meter) queueConsumer(ctx context.Context, handle func(value []byte)) *queueConsumer {
	const window = 20_000
	client := connect.NewClient[upFrame, downFrame](queueHTTP(), "http://"+m.load.HTTP+tubev1connect.QueueServiceConsumeProcedure,
		connect.WithGRPC(), connect.WithCodec(frameCodec{}))
	return &queueConsumer{
		stream: client.CallBidiStream(ctx), window: window, single: m.load.SingleAcks, handle: handle,
		acked: func(n int) { m.count.Add(int64(n)) }, acks: make(chan [][]byte, window),
	}
}

// run consumes until ctx ends.
func (c *queueConsumer) run(ctx context.Context, group string) error {
	err := c.stream.Send(&upFrame{request: &tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_Start{
		Start: &tubev1.ConsumeStart{Group: group, ConsumerId: "bench", Credit: int32(c.window)}}}})
	if err != nil {
		return c.ended(ctx, err)
	}
	written := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() { written <- c.write(ctx) }()
	for err == nil {
		var down *downFrame
		if down, err = c.stream.Receive(); err != nil {
			break
		}
		if len(down.messages) > 0 {
			leases := make([][]byte, len(down.messages))
			for i, m := range down.messages {
				c.handle(m.value)
				leases[i] = m.lease
			}
			c.acks <- leases
		}
		for _, r := range down.response.GetResults().GetRequests() {
			c.acked(int(r.Succeeded))
			if len(r.Errors) > 0 {
				err = fmt.Errorf("acknowledge: %s", r.Errors[0].GetError().GetMessage())
			}
		}
	}
	err = c.ended(ctx, err)
	cancel()
	return errors.Join(err, <-written)
}

// ended is the stream's error; nil if we ended it.
func (c *queueConsumer) ended(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// write sends acknowledgements and credit up. At its end the way up is closed: who
// waits for what comes down hears of the context's end only then, as HTTP/2's client
// waits for more to send meanwhile.
func (c *queueConsumer) write(ctx context.Context) error {
	defer c.stream.CloseRequest()
	var seq uint64
	for {
		var leases [][]byte
		select {
		case leases = <-c.acks:
		case <-ctx.Done():
			return nil
		}
		for len(leases) < 1000 && len(c.acks) > 0 {
			leases = append(leases, <-c.acks...)
		}
		credit := int32(len(leases))
		for len(leases) > 0 {
			n := len(leases)
			if c.single {
				n = 1
			}
			seq++
			if err := c.stream.Send(&upFrame{seq: seq, leases: leases[:n]}); err != nil {
				return c.ended(ctx, err)
			}
			leases = leases[n:]
		}
		err := c.stream.Send(&upFrame{request: &tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_Credit{Credit: &tubev1.ConsumeCredit{Messages: credit}}}})
		if err != nil {
			return c.ended(ctx, err)
		}
	}
}
