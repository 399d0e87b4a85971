package tube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func (f *fake) producer(opts ...ProducerOption) *Producer {
	f.t.Helper()
	p, err := NewProducer(append([]ProducerOption{Servers(f.url...), ToTopic("orders")}, opts...)...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			f.t.Error(err)
		}
	})
	return p
}

// values are what is stored, in order.
func (f *fake) values() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.entries {
		out = append(out, string(e.m.Value))
	}
	return out
}

// Messages go out in batches and in order, though calls fail and single ones of them:
// again with the same ids, so that nothing is stored twice.
func TestRepeatsKeepOrderAndIDs(t *testing.T) {
	f := newFake(t)
	var calls atomic.Int32
	f.onSend = func(req *tubev1.SendRequest) (*tubev1.SendResponse, error) {
		switch calls.Add(1) {
		case 1:
			return nil, refusedBy(connect.CodeUnavailable, tubev1.QueueErrorDetail_UNAVAILABLE)
		case 2: // stored, and the answer was lost
			f.change(func() {
				for _, m := range req.Messages {
					f.store("orders", m)
				}
			})
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("connection reset"))
		case 4: // stored, and it is not known
			out := &tubev1.SendResponse{}
			f.change(func() {
				for _, m := range req.Messages {
					f.store("orders", m)
					out.Results = append(out.Results, &tubev1.SendResult{Error: &tubev1.ItemError{Code: "unknown", Reason: tubev1.QueueErrorDetail_OUTCOME_UNKNOWN}})
				}
			})
			return out, nil
		}
		return nil, nil
	}
	p := f.producer(BatchSize(50, 1<<20))
	var mu sync.Mutex
	var answered []int64
	for i := range 500 {
		p.SendAsync(t.Context(), &Outgoing{Value: fmt.Append(nil, i)}, func(r Result, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil || r.ID == "" {
				t.Error(err)
			}
			answered = append(answered, r.Offset)
		})
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := f.values()
	for i, v := range got {
		if v != fmt.Sprint(i) {
			t.Fatalf("at %d is %s", i, v)
		}
	}
	if len(got) != 500 || len(answered) != 500 || !slices.IsSorted(answered) {
		t.Errorf("%d stored, %d answered in order: %v", len(got), len(answered), slices.IsSorted(answered))
	}
	if calls.Load() > 100 {
		t.Errorf("%d calls for 500 messages", calls.Load())
	}
}

// One message that cannot be does not fail those that go with it.
func TestOneBadMessageFailsAlone(t *testing.T) {
	f := newFake(t)
	hold := make(chan struct{})
	var refusals, down atomic.Int32
	f.onSend = func(req *tubev1.SendRequest) (*tubev1.SendResponse, error) {
		<-hold
		if refusals.Load() == 1 && down.Add(1) == 1 { // the first half of those that go with it
			return nil, refusedBy(connect.CodeUnavailable, tubev1.QueueErrorDetail_UNAVAILABLE)
		}
		for _, m := range req.Messages {
			if string(m.Value) == "bad" {
				refusals.Add(1)
				return nil, refusedBy(connect.CodeInvalidArgument, tubev1.QueueErrorDetail_MESSAGE_TOO_LARGE)
			}
		}
		return nil, nil
	}
	p := f.producer()
	var errs []error
	for i := range 20 {
		v := fmt.Sprint(i)
		if i == 13 {
			v = "bad"
		}
		p.SendAsync(t.Context(), &Outgoing{Value: []byte(v)}, func(_ Result, err error) { errs = append(errs, err) })
	}
	close(hold)
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range errs {
		if err != nil {
			n++
			if !errors.Is(err, ErrMessageTooLarge) {
				t.Error(err)
			}
		}
	}
	if n != 1 || len(errs) != 20 || len(f.values()) != 19 {
		t.Errorf("%d failed of %d, %d stored", n, len(errs), len(f.values()))
	}
	for i, v := range f.values() { // in order
		if want := fmt.Sprint(i + i/13); v != want {
			t.Errorf("at %d is %s, not %s", i, v, want)
		}
	}
	if _, err := p.Send(t.Context(), &Outgoing{Topic: "nope", Value: []byte("x")}); !errors.Is(err, ErrUnknownTopic) || Retriable(err) {
		t.Errorf("%v", err)
	}
}

// What cannot be is refused before it waits for anything.
func TestImpossibleMessagesAreRefusedAtOnce(t *testing.T) {
	p, err := NewProducer(Servers("127.0.0.1:1"), ToTopic("orders"))
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		m    *Outgoing
		want error
	}{
		"nil":          {nil, ErrInvalid},
		"long id":      {&Outgoing{ID: strings.Repeat("x", 257)}, ErrInvalid},
		"bad header":   {&Outgoing{Headers: map[string]string{"a": "\xff"}}, ErrInvalid},
		"large":        {&Outgoing{Value: make([]byte, 16<<20)}, ErrMessageTooLarge},
		"past":         {&Outgoing{At: time.Now().Add(-time.Hour)}, ErrDelayOutOfRange},
		"far":          {&Outgoing{Delay: 366 * 24 * time.Hour}, ErrDelayOutOfRange},
		"two times":    {&Outgoing{Delay: 1, At: time.Now()}, ErrDelayOutOfRange},
		"many headers": {&Outgoing{RawHeaders: make([]Header, 1001)}, ErrInvalid},
	} {
		if x.m == nil {
			p.SendAsync(t.Context(), nil, func(_ Result, err error) {
				if !errors.Is(err, x.want) {
					t.Errorf("%s: %v", name, err)
				}
			})
		} else if _, err := p.Send(t.Context(), x.m); !errors.Is(err, x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// The buffer has a bound; who sends more waits, as long as his ctx lasts.
func TestTheBufferPushesBack(t *testing.T) {
	f := newFake(t)
	hold := make(chan struct{})
	f.onSend = func(*tubev1.SendRequest) (*tubev1.SendResponse, error) { <-hold; return nil, nil }
	p := f.producer(Buffer(5, 1<<20))
	for range 5 {
		p.SendAsync(t.Context(), &Outgoing{Value: []byte("x")}, nil)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.Send(ctx, &Outgoing{Value: []byte("x")}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if p.count != 5 {
		t.Errorf("%d are in the buffer", p.count)
	}
	close(hold)
	if _, err := p.Send(t.Context(), &Outgoing{Value: []byte("x")}); err != nil {
		t.Error(err)
	}
	if n := len(f.values()); n != 6 {
		t.Errorf("%d stored", n)
	}
}

// What cannot be delivered fails in the end, with why, and Close does not hang on it.
func TestDeliveryHasALimit(t *testing.T) {
	p, err := NewProducer(Servers("127.0.0.1:1"), DeliverWithin(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Send(t.Context(), &Outgoing{Topic: "a"}); !Retriable(err) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%v", err)
	}
	p.cfg.deliverWithin = time.Hour
	answers := make(chan error, 1)
	p.SendAsync(t.Context(), &Outgoing{Topic: "a"}, func(_ Result, err error) { answers <- err })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if err := <-answers; !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if _, err := p.Send(t.Context(), &Outgoing{Topic: "a"}); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}

// A delay runs from when the message was given, not from when it goes out.
func TestADelayRunsWhileTheMessageWaits(t *testing.T) {
	now := time.Now()
	o := &Outgoing{Topic: "a", Delay: 10 * time.Second}
	if d := o.wire(now, now.Add(4*time.Second)).GetDelay().AsDuration(); d != 6*time.Second {
		t.Errorf("%v", d)
	}
	if m := o.wire(now, now.Add(time.Minute)); m.When != nil {
		t.Errorf("%v", m.When)
	}
	o = &Outgoing{Topic: "a", At: now.Add(time.Second)}
	if m := o.wire(now, now); !m.GetDeliverAt().AsTime().Equal(o.At) {
		t.Errorf("%v", m.When)
	}
	if m := o.wire(now, now.Add(time.Minute)); m.When != nil {
		t.Errorf("%v", m.When)
	}
}

// Linger holds a message back for others, until the batch is full.
func TestLingerFillsBatches(t *testing.T) {
	f := newFake(t)
	p := f.producer(Linger(time.Hour), BatchSize(10, 1<<20))
	for range 20 {
		p.SendAsync(t.Context(), &Outgoing{Value: []byte("x")}, nil)
	}
	f.await("two batches", func() bool { return len(f.sends) == 2 && len(f.entries) == 20 })
	p.SendAsync(t.Context(), &Outgoing{Value: []byte("x")}, nil)
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(f.sends) != 3 {
		t.Errorf("%d batches", len(f.sends))
	}
}

// The back-off doubles to its limit.
func TestBackoffGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := backoff{}
		at := time.Now()
		for range 10 {
			if err := b.sleep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(at); d < 3*time.Second || d > 8*time.Second {
			t.Errorf("ten steps took %v", d)
		}
	})
}
