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
// begins at the start of the topic. All share one topic of dead letters.
func createGroups(ctx context.Context, kafka, addr, topic, base string, count int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	dead := base + "-dead"
	if err := createTopic(ctx, kafka, dead, 1); err != nil {
		return err
	}
	admin := tubev1connect.NewQueueAdminServiceClient(queueHTTP(), "http://"+addr, connect.WithGRPC())
	making, ctx := errgroup.WithContext(ctx)
	making.SetLimit(groupsAtOnce)
	for i := range count {
		making.Go(func() error {
			return createGroup(ctx, admin, &tubev1.CreateGroupRequest{
				Group: fmt.Sprintf("%s-%d", base, i), Topic: topic, From: &tubev1.Position{At: &tubev1.Position_Start{Start: true}},
				Settings: &tubev1.QueueSettings{DeadLetter: &dead, MaxInFlight: new(int32(100_000))},
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
// is called for each message; what is put into acks goes up, all that has gathered
// while the frame before was written, or each in a frame of its own.
type queueConsumer struct {
	stream *connect.BidiStreamForClient[tubev1.ConsumeRequest, tubev1.ConsumeResponse]
	window int
	single bool                       // a frame for each acknowledgement
	handle func(*tubev1.QueueMessage) // from one goroutine
	acked  func(n int)
	acks   chan string
}

func (m *meter) queueConsumer(ctx context.Context, handle func(*tubev1.QueueMessage)) *queueConsumer {
	const window = 20_000
	c := &queueConsumer{
		stream: queueClient(m.load.HTTP).Consume(ctx), window: window, single: m.load.SingleAcks, handle: handle,
		acked: func(n int) { m.count.Add(int64(n)) }, acks: make(chan string, 2*window),
	}
	return c
}

// run consumes until ctx ends.
func (c *queueConsumer) run(ctx context.Context, group string) error {
	err := c.stream.Send(&tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_Start{
		Start: &tubev1.ConsumeStart{Group: group, ConsumerId: "bench", Credit: int32(c.window)}}})
	if err != nil {
		return c.ended(ctx, err)
	}
	grant := make(chan int32, 1024)
	written := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() { written <- c.write(ctx, grant) }()
	for err == nil {
		var down *tubev1.ConsumeResponse
		if down, err = c.stream.Receive(); err != nil {
			break
		}
		if list := down.GetMessages().GetMessages(); len(list) > 0 {
			for _, q := range list {
				c.handle(q)
				c.acks <- q.LeaseId
			}
			grant <- int32(len(list))
		}
		for _, r := range down.GetResults().GetRequests() {
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
func (c *queueConsumer) write(ctx context.Context, grant <-chan int32) error {
	defer c.stream.CloseRequest()
	most := 1000
	if c.single {
		most = 1
	}
	var seq uint64
	for {
		var m *tubev1.ConsumeRequest
		select {
		case id := <-c.acks:
			ids := []string{id}
			for len(ids) < most && len(c.acks) > 0 {
				ids = append(ids, <-c.acks)
			}
			seq++
			m = &tubev1.ConsumeRequest{Seq: seq, Up: &tubev1.ConsumeRequest_Acknowledge{Acknowledge: &tubev1.ConsumeLeases{LeaseIds: ids}}}
		case n := <-grant:
			for len(grant) > 0 {
				n += <-grant
			}
			m = &tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_Credit{Credit: &tubev1.ConsumeCredit{Messages: n}}}
		case <-ctx.Done():
			return nil
		}
		if err := c.stream.Send(m); err != nil {
			return c.ended(ctx, err)
		}
	}
}
