package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

// tap is a client's stream.
type tap struct {
	*connect.BidiStreamForClient[tubev1.ConsumeRequest, tubev1.ConsumeResponse]
	t    *testing.T
	conn net.Conn
}

// vanish cuts the connection.
func (s *tap) vanish() { _ = s.conn.Close() }

func (c *trio) consume(t *testing.T, start *tubev1.ConsumeStart, options ...connect.ClientOption) *tap {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	t.Cleanup(cancel)
	s := &tap{t: t}
	client := h2c()
	client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		if conn, err = (&net.Dialer{}).DialContext(ctx, network, addr); err == nil {
			s.conn = &freezable{Conn: conn}
		}
		return s.conn, err
	}
	s.BidiStreamForClient = tubev1connect.NewQueueServiceClient(client, c.url, options...).Consume(ctx)
	if start != nil {
		s.up(&tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_Start{Start: start}})
	}
	return s
}

func (s *tap) up(m *tubev1.ConsumeRequest) {
	s.t.Helper()
	if err := s.Send(m); err != nil && !errors.Is(err, io.EOF) {
		s.t.Fatal(err)
	}
}

func (s *tap) down() *tubev1.ConsumeResponse {
	s.t.Helper()
	m, err := s.Receive()
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

func credit(n int32) *tubev1.ConsumeRequest {
	return &tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_Credit{Credit: &tubev1.ConsumeCredit{Messages: n}}}
}

func ack(seq uint64, ids ...string) *tubev1.ConsumeRequest {
	return &tubev1.ConsumeRequest{Seq: seq, Up: &tubev1.ConsumeRequest_Acknowledge{Acknowledge: &tubev1.ConsumeLeases{LeaseIds: ids}}}
}

func lease(offset int) string {
	return queue.Lease{Offset: record.Offset(offset), Attempt: 1, Nonce: 7}.String()
}

// Messages come as far as there is credit, and not one more.
func TestAStreamPushesWhatWasGranted(t *testing.T) {
	for name, options := range map[string][]connect.ClientOption{"connect": nil, "grpc": {connect.WithGRPC()}} {
		t.Run(name, func(t *testing.T) {
			c := queueTrio(t)
			c.queues.put(10)
			s := c.consume(t, &tubev1.ConsumeStart{Group: "billing", ConsumerId: "w1", Credit: 3}, options...)
			if st := s.down().GetStarted(); st.GetConsumerId() != "w1" || st.GetSession() == "" || st.GetLease().AsDuration() != 30*time.Second {
				t.Fatalf("%v", st)
			}
			if ms := s.down().GetMessages().GetMessages(); len(ms) != 3 || ms[2].LeaseId != lease(2) {
				t.Fatalf("%v", ms)
			}
			s.up(credit(2))
			s.up(credit(1))
			got := 0
			for got < 3 {
				got += len(s.down().GetMessages().GetMessages())
			}
			if got != 3 {
				t.Fatalf("%d messages for 3 credits", got)
			}
			s.up(ack(1, lease(0), lease(1)))
			if r := s.down().GetResults().GetRequests(); len(r) != 1 || r[0].Seq != 1 || r[0].Succeeded != 2 {
				t.Fatalf("%v", r)
			}
			m := c.queues.members[0]
			if !m.CanBeAsked || m.ID != "w1" || m.Address == "" || m.Node != 1 || c.queues.receives[0].Member != m {
				t.Errorf("%+v", m)
			}
			// It ends its side, has all answers, and the node hears that it is gone.
			s.up(ack(2, lease(2)))
			if err := s.CloseRequest(); err != nil {
				t.Fatal(err)
			}
			if r := s.down().GetResults().GetRequests(); r[0].Seq != 2 {
				t.Fatalf("%v", r)
			}
			if m, err := s.Receive(); !errors.Is(err, io.EOF) {
				t.Fatalf("%v, %v", m, err)
			}
			c.queues.await(t.Context(), func() bool { return c.queues.closed == 1 })
		})
	}
}

// What a stream has sent does not count as being in memory any more: it goes on beyond
// what may be there at one time.
func TestAStreamGivesItsMemoryBack(t *testing.T) {
	c := queueTrio(t)
	quiet := slog.New(slog.DiscardHandler)
	s := newQueueService(Config{Self: Self{Node: 1}, Cluster: c, Logger: quiet, Queues: func() (QueueBackend, error) {
		return QueueBackend{Queues: c.queues}, nil
	}}, t.Context(), 1000)
	mux := http.NewServeMux()
	s.routes(mux, Config{Logger: quiet})
	server := httptest.NewUnstartedServer(mux)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	c.url = server.URL
	tap := c.consume(t, &tubev1.ConsumeStart{Group: "billing", Credit: 5})
	tap.down()
	for range 10 {
		c.queues.put(5)
		for got := 0; got < 5; {
			got += len(tap.down().GetMessages().GetMessages())
		}
		tap.up(credit(5))
	}
	if err := tap.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	if _, err := tap.Receive(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

// A stream with credit and no messages has one call of Receive under way, which waits.
func TestAStreamThatWaitsDoesNotSpin(t *testing.T) {
	c := queueTrio(t)
	s := c.consume(t, &tubev1.ConsumeStart{Group: "billing", Credit: 5})
	s.down()
	s.up(ack(1, lease(0)))
	s.down()
	c.queues.put(1)
	s.down()
	s.up(ack(2, lease(0)))
	s.down()
	c.queues.mu.Lock()
	defer c.queues.mu.Unlock()
	if n := len(c.queues.receives); n > 2 || c.queues.receives[0].Wait != time.Minute {
		t.Errorf("%d calls of Receive, of %v each", n, c.queues.receives[0].Wait)
	}
	if c.queues.members[0].ID != c.queues.members[0].Address {
		t.Errorf("a consumer without an id has its address: %+v", c.queues.members[0])
	}
}

// What arrives while leases are being settled goes together in the next call, and each
// request has its own answer.
func TestSettlementsGoTogether(t *testing.T) {
	c := queueTrio(t)
	hold := make(chan struct{})
	c.queues.hold = hold
	s := c.consume(t, &tubev1.ConsumeStart{Group: "billing"})
	s.down()
	const n = 50
	c.queues.refuse[queue.Lease{Offset: 7, Attempt: 1, Nonce: 7}] = queue.ErrAlreadyDone
	for i := range n {
		s.up(ack(uint64(i+1), lease(i)))
	}
	s.up(&tubev1.ConsumeRequest{Seq: n + 1, Up: &tubev1.ConsumeRequest_Nack{Nack: &tubev1.ConsumeNack{Entries: []*tubev1.NackEntry{{LeaseId: "?"}, {LeaseId: lease(3), Reason: "no"}}}}})
	s.up(&tubev1.ConsumeRequest{Seq: n + 2, Up: &tubev1.ConsumeRequest_Release{Release: &tubev1.ConsumeLeases{LeaseIds: []string{lease(4)}}}})
	s.up(&tubev1.ConsumeRequest{Seq: n + 3, Up: &tubev1.ConsumeRequest_Extend{Extend: &tubev1.ConsumeExtend{LeaseIds: []string{lease(5)}, Duration: durationpb.New(time.Second)}}})
	s.up(credit(1)) // behind them: when it is heard of, they are all there
	c.queues.await(t.Context(), func() bool { return len(c.queues.receives) > 0 })
	close(hold)
	seen := map[uint64]*tubev1.ConsumeResult{}
	for len(seen) < n+3 {
		for _, r := range s.down().GetResults().GetRequests() {
			seen[r.Seq] = r
		}
	}
	if seen[1].Succeeded != 1 || seen[8].Succeeded != 0 || seen[8].Errors[0].Error.Reason != tubev1.QueueErrorDetail_ALREADY_DONE || seen[8].Errors[0].LeaseId != lease(7) {
		t.Errorf("%v, %v", seen[1], seen[8])
	}
	if r := seen[n+1]; r.Succeeded != 1 || len(r.Errors) != 1 || r.Errors[0].LeaseId != "?" {
		t.Errorf("%v", r)
	}
	c.queues.mu.Lock()
	defer c.queues.mu.Unlock()
	if c.queues.settles > 3 || len(c.queues.settled) != n+3 {
		t.Errorf("%d calls for %d leases", c.queues.settles, len(c.queues.settled))
	}
}

// The client is asked what became of leases, down the stream that they went.
func TestAConsumerIsAsked(t *testing.T) {
	c := queueTrio(t)
	s := c.consume(t, &tubev1.ConsumeStart{Group: "billing"})
	s.down()
	c.queues.await(t.Context(), func() bool { return c.queues.inquire != nil })
	ls := []queue.Lease{{Offset: 1, Attempt: 1, Nonce: 7}, {Offset: 2, Attempt: 1, Nonce: 7}, {Offset: 3, Attempt: 1, Nonce: 7}}
	answers := make(chan []queue.Answer, 1)
	go func() { answers <- c.queues.inquire(t.Context(), ls) }()
	q := s.down().GetInquiry()
	if len(q.GetLeaseIds()) != 3 || q.LeaseIds[0] != lease(1) {
		t.Fatalf("%v", q)
	}
	s.up(&tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_InquiryAnswer{InquiryAnswer: &tubev1.ConsumeAnswer{Inquiry: q.Inquiry + 9, Done: q.LeaseIds}}}) // to no question
	s.up(&tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_InquiryAnswer{InquiryAnswer: &tubev1.ConsumeAnswer{Inquiry: q.Inquiry, Done: []string{lease(2), lease(99)}, Working: []string{lease(3)}}}})
	if got := <-answers; fmt.Sprint(got) != fmt.Sprint([]queue.Answer{queue.AnswerUnknown, queue.AnswerDone, queue.AnswerWorking}) {
		t.Errorf("%v", got)
	}
	// Who does not answer is unknown, when the asker's time is over or the stream ends.
	ctx, cancel := context.WithCancel(t.Context())
	go func() { answers <- c.queues.inquire(ctx, ls[:1]) }()
	s.down()
	cancel()
	if got := <-answers; got[0] != queue.AnswerUnknown {
		t.Errorf("%v", got)
	}
	go func() { answers <- c.queues.inquire(t.Context(), ls[:1]) }()
	s.down()
	s.vanish()
	if got := <-answers; got[0] != queue.AnswerUnknown {
		t.Errorf("%v", got)
	}
}

// A client that vanishes, in whatever it was, is told of to the node, once.
func TestAClientThatVanishesIsGone(t *testing.T) {
	c := queueTrio(t)
	for range 3 {
		s := c.consume(t, &tubev1.ConsumeStart{Group: "billing", Credit: 10})
		s.down()
		s.vanish()
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if !c.queues.await(ctx, func() bool { return c.queues.closed == 3 }) {
		t.Fatalf("%d of 3 are gone", c.queues.closed)
	}
}

// A client whose machine is gone closes nothing: it is noticed all the same.
func TestAClientThatFreezesIsGone(t *testing.T) {
	after, timeout := pingAfter, pingTimeout
	pingAfter, pingTimeout = 100*time.Millisecond, 200*time.Millisecond
	defer func() { pingAfter, pingTimeout = after, timeout }()
	c := queueTrio(t)
	c.queues.put(1)
	s := c.consume(t, &tubev1.ConsumeStart{Group: "billing", Credit: 10})
	s.down()
	s.down()
	s.conn.(*freezable).frozen.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if !c.queues.await(ctx, func() bool { return c.queues.closed == 1 }) {
		t.Fatal("it is there still")
	}
}

// freezable is a connection that can fall silent: nothing comes, nothing goes, nobody
// hears of it.
type freezable struct {
	net.Conn
	frozen atomic.Bool
}

func (f *freezable) Read(b []byte) (int, error) {
	for {
		n, err := f.Conn.Read(b)
		if !f.frozen.Load() || err != nil {
			return n, err
		}
	}
}

func (f *freezable) Write(b []byte) (int, error) {
	if f.frozen.Load() {
		return len(b), nil
	}
	return f.Conn.Write(b)
}

func TestAbsurdFramesEndTheStream(t *testing.T) {
	c := queueTrio(t)
	start := &tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_Start{Start: &tubev1.ConsumeStart{Group: "billing", Credit: 10}}}
	started := func(m *tubev1.ConsumeStart) *tubev1.ConsumeRequest {
		return &tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_Start{Start: m}}
	}
	many := make([]string, queue.MaxMessages+1)
	for name, x := range map[string]struct {
		up   []*tubev1.ConsumeRequest
		want reason
	}{
		"no start":        {[]*tubev1.ConsumeRequest{credit(1)}, tubev1.QueueErrorDetail_INVALID_FIELD},
		"no group":        {[]*tubev1.ConsumeRequest{started(&tubev1.ConsumeStart{})}, tubev1.QueueErrorDetail_INVALID_FIELD},
		"unknown group":   {[]*tubev1.ConsumeRequest{started(&tubev1.ConsumeStart{Group: "nobody"})}, tubev1.QueueErrorDetail_UNKNOWN_GROUP},
		"absurd start":    {[]*tubev1.ConsumeRequest{started(&tubev1.ConsumeStart{Group: "billing", Credit: 1 << 30})}, tubev1.QueueErrorDetail_TOO_MANY},
		"two starts":      {[]*tubev1.ConsumeRequest{start, start}, tubev1.QueueErrorDetail_INVALID_FIELD},
		"absurd credit":   {[]*tubev1.ConsumeRequest{start, credit(1<<31 - 1)}, tubev1.QueueErrorDetail_TOO_MANY},
		"a little more":   {[]*tubev1.ConsumeRequest{start, credit(maxCredit - 10), credit(1)}, tubev1.QueueErrorDetail_TOO_MANY},
		"negative credit": {[]*tubev1.ConsumeRequest{start, credit(-1)}, tubev1.QueueErrorDetail_INVALID_FIELD},
		"no credit":       {[]*tubev1.ConsumeRequest{start, credit(0)}, tubev1.QueueErrorDetail_INVALID_FIELD},
		"no leases":       {[]*tubev1.ConsumeRequest{start, ack(1)}, tubev1.QueueErrorDetail_TOO_MANY},
		"many leases":     {[]*tubev1.ConsumeRequest{start, ack(1, many...)}, tubev1.QueueErrorDetail_TOO_MANY},
		"nothing":         {[]*tubev1.ConsumeRequest{start, {}}, tubev1.QueueErrorDetail_INVALID_FIELD},
		"null entry":      {[]*tubev1.ConsumeRequest{start, {Up: &tubev1.ConsumeRequest_Nack{Nack: &tubev1.ConsumeNack{Entries: []*tubev1.NackEntry{{LeaseId: "x", When: &tubev1.NackEntry_Delay{Delay: durationpb.New(-1)}}}}}}}, tubev1.QueueErrorDetail_DELAY_OUT_OF_RANGE},
		"large frame":     {[]*tubev1.ConsumeRequest{start, ack(1, strings.Repeat("x", maxFrame+1))}, -1}, // Connect's own
	} {
		s := c.consume(t, nil)
		for _, m := range x.up {
			s.up(m)
		}
		var err error
		for err == nil {
			_, err = s.Receive()
		}
		if got := reasonOf(err); got != x.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if x.want == -1 && connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c.queues.settled != nil {
		t.Errorf("settled %v", c.queues.settled)
	}
}

// A partition without a leader does not end the stream; a group that is gone does.
func TestAStreamOutlivesFailovers(t *testing.T) {
	c := queueTrio(t)
	c.queues.failRecv = []error{fmt.Errorf("%w: no leader", queue.ErrUnavailable), queue.ErrOverloaded}
	c.queues.put(1)
	s := c.consume(t, &tubev1.ConsumeStart{Group: "billing", Credit: 10})
	s.down()
	if ms := s.down().GetMessages().GetMessages(); len(ms) != 1 {
		t.Fatalf("%v", ms)
	}
	c.queues.do(func() { c.queues.failRecv = []error{queue.ErrUnknownGroup} })
	c.queues.put(1)
	var err error
	for err == nil { // the call that waits has a message first
		_, err = s.Receive()
	}
	if reasonOf(err) != tubev1.QueueErrorDetail_UNKNOWN_GROUP {
		t.Errorf("%v", err)
	}
}

// Who grants credit and never reads loses the stream; his leases are the node's to
// give to somebody else.
func TestAClientThatNeverReadsLosesItsStream(t *testing.T) {
	old := frameTimeout
	frameTimeout = 300 * time.Millisecond
	defer func() { frameTimeout = old }()
	c := queueTrio(t)
	c.queues.do(func() {
		for i := range 200 {
			c.queues.there = append(c.queues.there, queue.Delivery{Lease: queue.Lease{Offset: record.Offset(i), Attempt: 1, Nonce: 7}, Value: make([]byte, 256<<10), UntilMillis: 1})
		}
	})
	s := c.consume(t, &tubev1.ConsumeStart{Group: "billing", Credit: 200, MaxBytes: 4 << 20})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if !c.queues.await(ctx, func() bool { return c.queues.closed == 1 }) {
		t.Fatal("it is there still")
	}
	c.queues.do(func() {
		if n := len(c.queues.there); n < 100 {
			t.Errorf("%d MiB of 50 were taken for a client that reads nothing", (200-n)/4)
		}
	})
	s.vanish()
}

func TestAStoppingNodeEndsStreams(t *testing.T) {
	c := queueTrio(t)
	s := c.consume(t, &tubev1.ConsumeStart{Group: "billing", Credit: 10})
	s.down()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := c.server.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Receive(); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("%v", err)
	}
	if c.queues.closed != 1 {
		t.Error("the session is there still")
	}
}
