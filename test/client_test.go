package test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	tube "github.com/tube-mq/tube/client"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

// The Go client against real nodes.

func goProducer(t *testing.T, n *node, opts ...tube.ProducerOption) *tube.Producer {
	t.Helper()
	p, err := tube.NewProducer(append([]tube.ProducerOption{tube.Servers(n.http), tube.ToTopic("orders")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(timeout(t, 10*time.Second)) })
	return p
}

func goQueue(t *testing.T, n *node, s tube.GroupSettings, opts ...tube.QueueOption) *tube.QueueGroup {
	t.Helper()
	q, err := tube.Queue("billing", append([]tube.QueueOption{tube.Servers(n.http), tube.OnTopic("orders"), tube.CreateGroup(s)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

// calls are what handlers saw, by message id.
type calls struct {
	mu     sync.Mutex
	by     map[string][]int // attempts
	places map[string][]string
}

func (c *calls) note(m *tube.Message) (times int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by, c.places = map[string][]int{}, map[string][]string{}
	}
	c.places[m.ID] = append(c.places[m.ID], fmt.Sprintf("%d/%d", m.Partition, m.Offset))
	c.by[m.ID] = append(c.by[m.ID], m.Attempt)
	return len(c.by[m.ID])
}

func (c *calls) of(id string) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.by[id])
}

func (c *calls) messages() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.by)
}

// runUntil runs a handler until the condition holds.
func runUntil(t *testing.T, q *tube.QueueGroup, within time.Duration, condition func() error, h tube.Handler) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx, h) }()
	eventually(t, within, condition)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// testWriter writes what a client logs into the test's own log.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) { w.t.Log(string(b)); return len(b), nil }

// progress of group billing.
func (n *node) progress() (*tubev1.QueueProgress, error) {
	c := tubev1connect.NewQueueAdminServiceClient(http.DefaultClient, "http://"+n.http)
	resp, err := c.GetGroup(context.Background(), connect.NewRequest(&tubev1.GetGroupRequest{Group: "billing"}))
	if err != nil {
		return nil, err
	}
	return resp.Msg.Total, nil
}

func (n *node) backlog(want int64) func() error {
	return func() error {
		p, err := n.progress()
		if err != nil {
			return err
		}
		if p.Backlog != want {
			return fmt.Errorf("the backlog is %d, not %d: %v", p.Backlog, want, p)
		}
		return nil
	}
}

// Messages are sent in batches, handled once each, and a message that always fails is a
// dead letter after the limit, with a record of each attempt.
func TestGoClientHandlesAndSetsAside(t *testing.T) {
	n := newNode(t)
	n.createTopic("orders", 3)
	p := goProducer(t, n)
	const many = 2000
	for i := range many {
		p.SendAsync(t.Context(), &tube.Outgoing{ID: fmt.Sprint("m", i), Key: fmt.Append(nil, i%17), Value: make([]byte, 100), Headers: map[string]string{"n": fmt.Sprint(i)}}, func(r tube.Result, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := p.Flush(timeout(t, 30*time.Second)); err != nil {
		t.Fatal(err)
	}
	var c calls
	q := goQueue(t, n, tube.GroupSettings{MaxAttempts: 3, Backoff: []time.Duration{10 * time.Millisecond}, From: tube.Start()}, tube.ConsumerID("worker-1"))
	all := func() error { // a group that has not begun yet has no backlog either
		if got := c.messages(); got != many {
			return fmt.Errorf("%d of %d messages were handled", got, many)
		}
		return n.backlog(0)()
	}
	runUntil(t, q, time.Minute, all, func(_ context.Context, m *tube.Message) error {
		c.note(m)
		switch m.Headers["n"] {
		case "7":
			return errors.New("never works")
		case "8":
			panic("always")
		case "9":
			return tube.Dead("cannot be read")
		}
		return nil
	})
	for i := range many {
		want := "[1]"
		if i == 7 || i == 8 {
			want = "[1 2 3]"
		}
		if got := fmt.Sprint(c.of(fmt.Sprint("m", i))); got != want {
			t.Errorf("message %d: attempts %s, not %s", i, got, want)
		}
	}
	admin := tubev1connect.NewQueueAdminServiceClient(http.DefaultClient, "http://"+n.http)
	eventually(t, 10*time.Second, func() error {
		resp, err := admin.ListDead(t.Context(), connect.NewRequest(&tubev1.ListDeadRequest{Group: "billing"}))
		if err != nil {
			return err
		}
		got := map[string]string{}
		for _, m := range resp.Msg.Messages {
			last := m.Attempts[len(m.Attempts)-1]
			got[m.Id] = fmt.Sprint(len(m.Attempts), last.ConsumerId, last.Error)
		}
		if want := "map[m7:3worker-1never works m8:3worker-1panic: always m9:1worker-1cannot be read]"; fmt.Sprint(got) != want {
			return fmt.Errorf("dead are %v, not %s", got, want)
		}
		return nil
	})
}

// A handler may take many times the lease; it is called once, also when the node is
// killed meanwhile.
func TestGoClientExtendsLongHandlers(t *testing.T) {
	n := newNode(t)
	n.createTopic("orders", 1)
	p := goProducer(t, n)
	if _, err := p.Send(t.Context(), &tube.Outgoing{ID: "long", Value: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	var c calls
	begun := make(chan struct{})
	q := goQueue(t, n, tube.GroupSettings{Lease: time.Second, MaxAttempts: 2, From: tube.Start()})
	go func() {
		<-begun
		n.kill()
		n.start()
	}()
	runUntil(t, q, time.Minute, n.backlogOnce(0), func(ctx context.Context, m *tube.Message) error {
		if c.note(m) == 1 {
			close(begun)
		}
		select {
		case <-time.After(6 * time.Second): // the handler's work
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if got := fmt.Sprint(c.of("long")); got != "[1]" {
		t.Errorf("attempts %s", got)
	}
}

// backlogOnce is backlog, once something was there.
func (n *node) backlogOnce(want int64) func() error {
	seen := false
	return func() error {
		p, err := n.progress()
		if err != nil {
			return err
		}
		if !p.Known || !seen && p.Backlog == want {
			return fmt.Errorf("not begun: %v", p)
		}
		seen = true
		return n.backlog(want)()
	}
}

// kill -9 of the node in the middle of sending and of handling: what a producer was told
// is stored is handled, nothing is handled again that was confirmed, and the producer
// and Run go on by themselves.
func TestGoClientOutlivesItsNode(t *testing.T) {
	n := newNode(t)
	n.createTopic("orders", 2, "tube.dedupe.window", "600000")
	p := goProducer(t, n, tube.CallTimeout(5*time.Second))
	var sent, failed atomic.Int32
	stop := make(chan struct{})
	var senders sync.WaitGroup
	for s := range 4 {
		senders.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := p.Send(context.Background(), &tube.Outgoing{ID: fmt.Sprintf("%d-%d", s, i), Value: []byte("x")}); err != nil {
					failed.Add(1)
					t.Errorf("send: %v", err)
				} else {
					sent.Add(1)
				}
			}
		})
	}
	var c calls
	q := goQueue(t, n, tube.GroupSettings{Lease: 2 * time.Second, MaxAttempts: 100, From: tube.Start()}, tube.Concurrency(20))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx, func(_ context.Context, m *tube.Message) error { c.note(m); return nil }) }()
	for range 4 {
		at := c.messages()
		eventually(t, time.Minute, func() error {
			if d := c.messages() - at; d < 200 {
				return fmt.Errorf("only %d more were handled", d)
			}
			return nil
		})
		n.kill()
		n.start()
	}
	close(stop)
	senders.Wait()
	eventually(t, time.Minute, func() error {
		if got := c.messages(); got != int(sent.Load()) {
			return fmt.Errorf("%d were handled of %d sent", got, sent.Load())
		}
		return n.backlog(0)()
	})
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	repeats := 0
	for id, attempts := range c.by {
		if repeats += len(attempts) - 1; len(attempts) > 1 {
			t.Logf("%s was handled at %v in attempts %v", id, c.places[id], attempts)
		}
	}
	t.Logf("%d sent, 4 kills, %d handled again", sent.Load(), repeats)
	// The client tells a repeat from a new message while it has it in hand: what is
	// repeated was confirmed and the confirmation was not durable when the node died.
	if repeats > 0 {
		t.Errorf("%d of %d were handled again", repeats, sent.Load())
	}
}

// Shutdown finishes what is in hand and gives back the rest at once and uncounted, so
// that another member has it without waiting for a lease.
func TestGoClientShutsDownInOrder(t *testing.T) {
	n := newNode(t)
	n.createTopic("orders", 1)
	p := goProducer(t, n)
	for i := range 50 {
		p.SendAsync(t.Context(), &tube.Outgoing{ID: fmt.Sprint(i), Value: []byte("x")}, nil)
	}
	if err := p.Flush(timeout(t, 30*time.Second)); err != nil {
		t.Fatal(err)
	}
	settings := tube.GroupSettings{Lease: 10 * time.Minute, From: tube.Start()}
	var c calls
	q := goQueue(t, n, settings, tube.Concurrency(3), tube.Prefetch(20), tube.Logger(slog.New(slog.NewTextHandler(testWriter{t}, nil))))
	ctx, cancel := context.WithCancel(t.Context())
	hold := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- q.Run(ctx, func(_ context.Context, m *tube.Message) error { c.note(m); <-hold; return nil })
	}()
	eventually(t, 20*time.Second, func() error {
		if p, err := n.progress(); err != nil || p.InFlight != 23 || c.messages() != 3 {
			return fmt.Errorf("%v, %v, %d handlers", p, err, c.messages())
		}
		return nil
	})
	cancel()
	eventually(t, 20*time.Second, func() error { // while the handlers go on
		if p, err := n.progress(); err != nil || p.InFlight != 3 || p.Ready != 47 {
			return fmt.Errorf("%v, %v", p, err)
		}
		return nil
	})
	close(hold)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	runUntil(t, goQueue(t, n, settings), 20*time.Second, n.backlog(0), func(_ context.Context, m *tube.Message) error { c.note(m); return nil })
	for i := range 50 {
		if got := fmt.Sprint(c.of(fmt.Sprint(i))); got != "[1]" {
			t.Errorf("message %d: attempts %s", i, got)
		}
	}
}

// By hand: a delay is kept to, an acknowledgement may be said twice, complete is one step.
func TestGoClientByHand(t *testing.T) {
	n := newNode(t)
	n.createTopic("orders", 1)
	ctx := timeout(t, time.Minute)
	p := goProducer(t, n)
	q := goQueue(t, n, tube.GroupSettings{Lease: 30 * time.Second, From: tube.Start()})
	at := time.Now()
	if _, err := p.Send(ctx, &tube.Outgoing{ID: "late", Value: []byte("late"), Delay: time.Second}); err != nil {
		t.Fatal(err)
	}
	m, err := q.Receive(ctx)
	if err != nil || m.ID != "late" || time.Since(at) < time.Second {
		t.Fatalf("%v, %v after %v", m, err, time.Since(at))
	}
	if err := errors.Join(m.Extend(ctx, time.Minute), m.Nack(ctx, fmt.Errorf("later: %w", tube.RetryAfter(0)))); err != nil {
		t.Fatal(err)
	}
	if m, err = q.Receive(ctx); err != nil || m.Attempt != 2 {
		t.Fatalf("%v, %v", m, err)
	}
	next := &tube.Outgoing{Topic: "orders", ID: "next", Value: []byte("next")}
	if err := m.Complete(ctx, next); err != nil && strings.Contains(err.Error(), "not there yet") {
		t.Logf("this node cannot: %v", err)
		if _, err := p.Send(ctx, next); err != nil || m.Ack(ctx) != nil {
			t.Fatal(err)
		}
	} else if err != nil {
		t.Fatal(err)
	}
	if m, err = q.Receive(ctx); err != nil || m.ID != "next" {
		t.Fatalf("%v, %v", m, err)
	}
	if err := errors.Join(m.Ack(ctx), m.Ack(ctx)); err != nil {
		t.Error(err)
	}
	if err := m.Nack(ctx, nil); !errors.Is(err, tube.ErrAlreadyDone) {
		t.Errorf("%v", err)
	}
	if _, err := p.Send(ctx, &tube.Outgoing{Topic: "nope", Value: []byte("x")}); !errors.Is(err, tube.ErrUnknownTopic) {
		t.Errorf("%v", err)
	}
}

// Streams: positions are kept by hand or in trust.
func TestGoClientReadsStreams(t *testing.T) {
	n := newNode(t)
	n.createTopic("orders", 2)
	ctx := timeout(t, time.Minute)
	p := goProducer(t, n)
	for i := range 100 {
		if _, err := p.Send(ctx, &tube.Outgoing{Key: fmt.Append(nil, i), Value: fmt.Append(nil, i), Headers: map[string]string{"a": "b"}}); err != nil {
			t.Fatal(err)
		}
	}
	read := func(group string, want int, opts ...tube.ConsumerOption) (got []tube.Record) {
		t.Helper()
		c, err := tube.NewConsumer(append([]tube.ConsumerOption{tube.Brokers(n.kafka), tube.Topics("orders"), tube.Group(group), tube.From(tube.Start()), tube.PollSize(30)}, opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for len(got) < want {
			rs, err := c.Poll(ctx)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, rs...)
			if opts == nil && len(got) <= 60 {
				if err := c.Confirm(ctx, rs...); err != nil {
					t.Fatal(err)
				}
			}
		}
		return got
	}
	first := read("by hand", 100)
	if again := read("by hand", 1); len(again) > 70 || len(first) != 100 || string(first[0].Headers[0].Value) == "" {
		t.Errorf("%d, then %d", len(first), len(again))
	}
	read("trusting", 100, tube.Trust())
	if _, err := p.Send(ctx, &tube.Outgoing{Value: []byte("one more")}); err != nil {
		t.Fatal(err)
	}
	if rest := read("trusting", 1, tube.Trust()); len(rest) != 1 || string(rest[0].Value) != "one more" {
		t.Errorf("%d records", len(rest))
	}
}

// The examples of the package's documentation do the same with a real node as with the
// unit tests' stand-in.
func TestGoClientExamples(t *testing.T) {
	n := newNode(t)
	for _, topic := range []string{"orders", "mails", "metrics", "reminders"} {
		n.createTopic(topic, 2)
	}
	cmd := exec.Command("go", "test", "-count=1", "-v", "-run", "^Example", "github.com/tube-mq/tube/client")
	cmd.Env = append(os.Environ(), "TEST_TUBE_HTTP="+n.http)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "--- PASS: Example") < 5 {
		t.Errorf("%v\n%s", err, out)
	}
}
