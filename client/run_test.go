package tube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// What a handler returns is what the server is told.
func TestAHandlersResultIsTold(t *testing.T) {
	for name, x := range map[string]struct {
		handle Handler
		want   string
	}{
		"nil":           {func(context.Context, *Message) error { return nil }, "ack"},
		"error":         {func(context.Context, *Message) error { return errors.New("no stock") }, "nack no stock"},
		"panic":         {func(context.Context, *Message) error { panic("oh") }, "nack panic: oh"},
		"retry after":   {func(context.Context, *Message) error { return fmt.Errorf("no stock: %w", RetryAfter(time.Hour)) }, "nack no stock: again in 1h0m0s after 1h0m0s"},
		"retry at":      {func(context.Context, *Message) error { return RetryAt(time.Now().Add(2 * time.Minute)) }, "nack again at " + time.Now().Add(2*time.Minute).Format("2006-01-02")},
		"far":           {func(context.Context, *Message) error { return RetryAfter(1 << 62) }, "nack again in 1281023h53m38.427387904s after 8760h0m0s"},
		"release":       {func(context.Context, *Message) error { return Release() }, "release"},
		"release after": {func(context.Context, *Message) error { return ReleaseAfter(time.Minute) }, "release for 1m0s"},
		"dead":          {func(context.Context, *Message) error { return fmt.Errorf("cannot be read: %w", Dead("bad")) }, "dead cannot be read: bad"},
		"not UTF-8":     {func(context.Context, *Message) error { return errors.New("a\xffb" + strings.Repeat("x", 2000)) }, "nack ab" + strings.Repeat("x", 1021)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.put(1)
			var calls atomic.Int32
			stop := f.running(func(ctx context.Context, m *Message) error {
				if calls.Add(1) > 1 {
					return nil
				}
				return x.handle(ctx, m)
			})
			f.await("told", func() bool { return len(f.entries[0].verdicts) > 0 })
			if err := stop(); err != nil {
				t.Error(err)
			}
			if got := f.entries[0].verdicts[0]; !strings.HasPrefix(got, x.want) {
				t.Errorf("%q, not %q", got, x.want)
			}
		})
	}
}

// No more messages are in hand than handlers and prefetch allow, and all are handled.
func TestCreditIsTheWindow(t *testing.T) {
	f := newFake(t)
	f.put(500)
	var now, most atomic.Int32
	stop := f.running(func(context.Context, *Message) error {
		for n := now.Add(1); ; {
			if old := most.Load(); n <= old || most.CompareAndSwap(old, n) {
				break
			}
		}
		defer now.Add(-1)
		return nil
	}, Concurrency(3), Prefetch(4))
	f.await("all done", func() bool {
		for _, e := range f.entries {
			if e.state != "done" {
				return false
			}
		}
		return true
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	// Those that are handled, and whose confirmation is on its way, are leased as well.
	if most.Load() > 3 {
		t.Errorf("%d handlers at a time", most.Load())
	}
	for i, e := range f.entries {
		if len(e.verdicts) != 1 {
			t.Errorf("message %d: %v", i, e.verdicts)
		}
	}
}

// With nothing confirmed, no more than the window comes.
func TestNoMoreThanTheWindowComes(t *testing.T) {
	f := newFake(t)
	f.put(100)
	hold := make(chan struct{})
	stop := f.running(func(context.Context, *Message) error { <-hold; return nil }, Concurrency(2), Prefetch(3))
	leased := func() (n int) {
		for _, e := range f.entries {
			if e.state == "leased" {
				n++
			}
		}
		return n
	}
	f.await("the window is full", func() bool { return leased() == 5 })
	q := &tubev1.ConsumeInquiry{Inquiry: 1, LeaseIds: []string{"l1", "l5", "l99"}}
	f.inquire <- q
	a := <-f.answers // a whole way there and back later:
	if fmt.Sprint(a.Working) != "[l1 l5]" || len(a.Done) != 0 {
		t.Errorf("%v", a)
	}
	f.mu.Lock()
	if n := leased(); n != 5 {
		t.Errorf("%d are leased", n)
	}
	f.mu.Unlock()
	close(hold)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A lease is extended for as long as its handler runs.
func TestLeasesAreExtended(t *testing.T) {
	f := newFake(t)
	f.length = time.Second
	f.put(1)
	stop := f.running(func(context.Context, *Message) error {
		f.await("four times extended", func() bool { return f.extends >= 4 })
		return nil
	})
	f.await("done", func() bool { return f.entries[0].state == "done" })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A handler whose message cannot be kept is told so.
func TestALostLeaseEndsTheHandlersContext(t *testing.T) {
	f := newFake(t)
	f.length, f.refuse = time.Second, tubev1.QueueErrorDetail_HANDLING_TOO_LONG
	f.put(1)
	causes := make(chan error, 1)
	stop := f.running(func(ctx context.Context, m *Message) error {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	})
	if err := <-causes; !errors.Is(err, ErrLeaseLost) || !errors.Is(err, ErrHandlingTooLong) {
		t.Errorf("%v", err)
	}
	f.await("given back", func() bool { return f.entries[0].state == "released" })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A message that comes again because its stream broke, while its handler runs, is not
// handled twice; it is confirmed with its new lease.
func TestABrokenStreamRepeatsNoHandler(t *testing.T) {
	f := newFake(t)
	f.put(3)
	var calls atomic.Int32
	hold := make(chan struct{})
	stop := f.running(func(context.Context, *Message) error {
		f.change(func() { calls.Add(1) })
		<-hold
		return nil
	})
	for range 3 {
		f.await("all leased", func() bool {
			for _, e := range f.entries {
				if e.state != "leased" {
					return false
				}
			}
			return calls.Load() == 3
		})
		f.breakStreams()
	}
	close(hold)
	f.await("all done", func() bool {
		return f.entries[0].state == "done" && f.entries[1].state == "done" && f.entries[2].state == "done"
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	if calls.Load() != 3 {
		t.Errorf("%d calls for 3 messages", calls.Load())
	}
}

// A confirmation that was not answered is said again, and the message not handled again.
func TestAnUnansweredConfirmationIsSaidAgain(t *testing.T) {
	f := newFake(t)
	f.ignore = true
	f.put(1)
	var calls atomic.Int32
	stop := f.running(func(context.Context, *Message) error {
		f.change(func() { calls.Add(1) })
		return nil
	})
	f.await("handled", func() bool { return calls.Load() == 1 })
	f.inquire <- &tubev1.ConsumeInquiry{Inquiry: 7, LeaseIds: []string{"l1"}}
	// Handled and not confirmed is done; the handler may have ended a moment before.
	if a := <-f.answers; a.Inquiry != 7 || len(a.Done)+len(a.Working) != 1 {
		t.Errorf("%v", a)
	}
	f.change(func() { f.ignore = false })
	f.breakStreams()
	f.await("done", func() bool { return f.entries[0].state == "done" })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if calls.Load() != 1 {
		t.Errorf("%d calls", calls.Load())
	}
}

// A confirmation may be refused as the message was handed out again, to us, and that may
// arrive after the refusal: it is confirmed with its new lease, not handled again.
func TestALateConfirmationIsRemembered(t *testing.T) {
	r := &run{q: &QueueGroup{cfg: queueConfig{concurrency: 1}}, log: slog.New(slog.DiscardHandler), held: map[place]*job{}, leases: map[string]*job{}, wake: make(chan struct{}, 1), idle: make(chan struct{}, 1)}
	calls := make(chan struct{}, 10)
	r.handler = func(context.Context, *Message) error { calls <- struct{}{}; return nil }
	m := func(lease string) *tubev1.QueueMessage {
		return &tubev1.QueueMessage{Topic: "a", LeaseId: lease, Attempt: 1, Time: timestamppb.New(time.Unix(1, 0))}
	}
	r.take(m("old"), time.Now())
	<-calls
	<-r.idle // handled
	s := &session{r: r, pending: map[uint64]request{}, extends: time.Now().Add(time.Hour)}
	again := time.Now().Add(time.Hour)
	r.mu.Lock()
	first := s.verdicts(time.Now(), &again)
	r.mu.Unlock()
	refused := []*tubev1.LeaseResult{{LeaseId: "old", Error: &tubev1.ItemError{Code: "failed_precondition", Reason: tubev1.QueueErrorDetail_LEASE_EXPIRED}}}
	s.answered(&tubev1.ConsumeResult{Seq: first[0].Seq, Errors: refused})
	r.take(m("new"), time.Now())
	r.mu.Lock()
	second := s.verdicts(time.Now(), &again)
	r.mu.Unlock()
	if len(second) != 1 || fmt.Sprint(second[0].GetAcknowledge().GetLeaseIds()) != "[new]" || len(calls) != 0 {
		t.Fatalf("%v, %d more calls", second, len(calls))
	}
	// Nobody hands it out again: it is forgotten.
	refused[0].LeaseId = "new"
	s.answered(&tubev1.ConsumeResult{Seq: second[0].Seq, Errors: refused})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.forget(time.Now()); len(r.held) != 1 {
		t.Error("forgotten at once")
	}
	if r.forget(time.Now().Add(time.Minute)); len(r.held)+len(r.leases)+r.told != 0 {
		t.Errorf("%v, %v, %d", r.held, r.leases, r.told)
	}
}

// What was handled and is not confirmed yet is answered as done.
func TestAnInquiryIsAnsweredDone(t *testing.T) {
	r := &run{leases: map[string]*job{"a": {state: told, verdict: verdict{kind: acked}}, "b": {state: working}, "c": {state: told, verdict: verdict{kind: failed}}}, wake: make(chan struct{}, 1)}
	r.asked(&tubev1.ConsumeInquiry{LeaseIds: []string{"a", "b", "c", "d"}})
	if a := r.answers[0]; fmt.Sprint(a.done, a.working) != "[a] [b]" {
		t.Errorf("%v", a)
	}
	for range 1000 {
		r.asked(&tubev1.ConsumeInquiry{})
	}
	if len(r.answers) != maxAnswers {
		t.Errorf("%d answers wait", len(r.answers))
	}
}

// When ctx ends, handlers finish and are confirmed, what was not begun is given back,
// and nothing stays leased.
func TestShutdownFinishesWhatIsInHand(t *testing.T) {
	f := newFake(t)
	f.put(10)
	begun, hold := make(chan string, 10), make(chan struct{})
	q := f.group(Concurrency(2), Prefetch(3))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- q.Run(ctx, func(ctx context.Context, m *Message) error {
			begun <- string(m.Value)
			<-hold
			return ctx.Err()
		})
	}()
	<-begun
	<-begun
	f.await("the window is full", func() bool { return f.entries[4].state == "leased" })
	cancel()
	f.await("given back", func() bool {
		return f.entries[2].state == "released" && f.entries[3].state == "released" && f.entries[4].state == "released"
	})
	close(hold)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, want := range []string{"done", "done", "released", "released", "released", "ready"} {
		if f.entries[i].state != want {
			t.Errorf("message %d is %s, not %s", i, f.entries[i].state, want)
		}
	}
	if len(f.sessions) != 0 || len(begun) != 0 {
		t.Errorf("%d streams are open, %d more handlers were begun", len(f.sessions), len(begun))
	}
}

// Handlers that go on too long after that are told to stop; what they leave is given
// back, not counted.
func TestShutdownHasALimit(t *testing.T) {
	f := newFake(t)
	f.put(1)
	begun := make(chan struct{})
	causes := make(chan error, 1)
	stop := f.running(func(ctx context.Context, m *Message) error {
		close(begun)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return fmt.Errorf("stopped: %w", ctx.Err())
	}, ShutdownTimeout(10*time.Millisecond))
	<-begun
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := <-causes; !errors.Is(err, ErrShutdown) {
		t.Errorf("%v", err)
	}
	if f.entries[0].state != "released" {
		t.Errorf("%v", f.states())
	}
}

// Close ends Run like its ctx does, and whatever is called then.
func TestCloseEndsRun(t *testing.T) {
	f := newFake(t)
	f.put(1)
	q := f.group()
	handled := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- q.Run(t.Context(), func(context.Context, *Message) error { close(handled); return nil })
	}()
	<-handled
	if err := errors.Join(q.Close(), q.Close(), <-ended); err != nil {
		t.Error(err)
	}
	if _, err := q.Receive(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if f.entries[0].state != "done" {
		t.Errorf("%v", f.states())
	}
}

// What does not pass ends Run with an error.
func TestRunEndsForWhatDoesNotPass(t *testing.T) {
	f := newFake(t)
	q, err := Queue("nobody", Servers(f.url...))
	if err != nil {
		t.Fatal(err)
	}
	none := func(context.Context, *Message) error { return nil }
	if err := q.Run(t.Context(), none); !errors.Is(err, ErrUnknownGroup) {
		t.Errorf("%v", err)
	}
	if err := f.group(OnTopic("other")).Run(t.Context(), none); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "topic orders") {
		t.Errorf("%v", err)
	}
	q, err = Queue("made", Servers(f.url...), OnTopic("orders"), CreateGroup(GroupSettings{MaxAttempts: 3, OrderByKey: true, From: Start()}))
	if err != nil {
		t.Fatal(err)
	}
	f.put(1)
	ctx, cancel := context.WithCancel(t.Context())
	if err := q.Run(ctx, func(context.Context, *Message) error { cancel(); return nil }); err != nil {
		t.Error(err)
	}
	if s := f.created.GetSettings(); s.GetMaxAttempts() != 3 || s.GetOrder() != "key" || s.Lease != nil || !f.created.GetFrom().GetStart() {
		t.Errorf("%v", f.created)
	}
	// Nobody listens: that may pass, so it goes on until ctx ends.
	q, _ = Queue("billing", Servers("127.0.0.1:1"))
	ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := q.Run(ctx, none); err != nil {
		t.Errorf("%v", err)
	}
}

// A server that does not answer is left for the next one.
func TestRunGoesOnAtTheNextServer(t *testing.T) {
	f := newFake(t)
	f.put(20)
	q, err := Queue("billing", Servers("127.0.0.1:1", f.url[0]))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.WaitGroup
	once.Add(20)
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx, func(context.Context, *Message) error { once.Done(); return nil }) }()
	once.Wait()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A group that confirms by itself is handled too; nothing is told of its messages.
func TestAGroupThatConfirmsByItself(t *testing.T) {
	f := newFake(t)
	f.auto = true
	f.put(30)
	var calls atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	err := f.group(Concurrency(1), Prefetch(9)).Run(ctx, func(context.Context, *Message) error {
		if calls.Add(1) == 5 {
			cancel()
		}
		return errors.New("no")
	})
	// What came is handled, also during shutdown: it does not come again.
	came := 0
	for _, e := range f.entries {
		if e.state == "done" {
			came++
		}
		if len(e.verdicts) > 0 {
			t.Errorf("%v", e.verdicts)
		}
	}
	if err != nil || came != int(calls.Load()) {
		t.Errorf("%d came, %d handled, %v", came, calls.Load(), err)
	}
}

// A message settled by hand in its handler is not settled again by what that returns.
func TestSettledByHandInAHandler(t *testing.T) {
	f := newFake(t)
	f.put(1)
	stop := f.running(func(ctx context.Context, m *Message) error {
		if err := m.Complete(ctx, &Outgoing{Topic: "orders", Value: []byte("next"), ID: "next"}); err != nil {
			t.Error(err)
		}
		return errors.New("too late")
	}, Concurrency(1))
	f.await("completed", func() bool { return len(f.entries) == 2 && len(f.entries[1].verdicts) > 0 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(f.entries[0].verdicts); got != "[complete]" {
		t.Error(got)
	}
}
