package tube

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Messages received by hand are settled by hand.
func TestReceiveByHand(t *testing.T) {
	f := newFake(t)
	f.put(6)
	q := f.group(OnTopic("orders"))
	ctx := t.Context()
	ms, err := q.ReceiveMany(ctx, 5, time.Second)
	if err != nil || len(ms) != 5 {
		t.Fatalf("%d, %v", len(ms), err)
	}
	if m := ms[0]; string(m.Value) != "0" || m.ID != "m0" || m.Attempt != 1 || m.LeaseUntil.IsZero() || m.String() != "orders/0 at 0 (id m0)" {
		t.Errorf("%+v", m)
	}
	for i, do := range []func() error{
		func() error { return errors.Join(ms[0].Extend(ctx, time.Minute), ms[0].Ack(ctx), ms[0].Ack(ctx)) },
		func() error { return ms[1].Nack(ctx, nil) },
		func() error { return ms[2].Nack(ctx, fmt.Errorf("later: %w", RetryAfter(time.Minute))) },
		func() error { return ms[3].Release(ctx) },
		func() error { return ms[4].Nack(ctx, Dead("never")) },
	} {
		if err := do(); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	for i, want := range []string{"[ack ack]", "[nack ]", "[nack later: again in 1m0s after 1m0s]", "[release]", "[dead never]"} {
		if got := fmt.Sprint(f.entries[i].verdicts); got != want {
			t.Errorf("%d: %s, not %s", i, got, want)
		}
	}
	if err := ms[0].Nack(ctx, errors.New("after all")); !errors.Is(err, ErrAlreadyDone) {
		t.Errorf("%v", err)
	}
	m, err := q.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f.change(func() { f.entries[m.Offset].lease = "another" })
	if err := m.Ack(ctx); !errors.Is(err, ErrLeaseExpired) || Retriable(err) {
		t.Errorf("%v", err)
	}
	if err := (&Message{}).Ack(ctx); err == nil {
		t.Error("a message that was not received was acknowledged")
	}
}

// Receiving waits, and ends with its ctx.
func TestReceiveWaits(t *testing.T) {
	f := newFake(t)
	q := f.group()
	if ms, err := q.ReceiveMany(t.Context(), 1, 0); err != nil || len(ms) != 0 {
		t.Errorf("%v, %v", ms, err)
	}
	got := make(chan *Message)
	go func() {
		m, err := q.Receive(t.Context())
		if err != nil {
			t.Error(err)
		}
		got <- m
	}()
	f.put(1)
	if m := <-got; string(m.Value) != "0" {
		t.Errorf("%v", m)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := q.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// Options that cannot be are errors that say what can be.
func TestOptionsAreChecked(t *testing.T) {
	for name, err := range map[string]error{
		"no name":       second(Queue("")),
		"server":        second(Queue("a", Servers("ftp://x"))),
		"no server":     second(Queue("a", Servers())),
		"concurrency":   second(Queue("a", Concurrency(0))),
		"prefetch":      second(Queue("a", Prefetch(-1))),
		"create":        second(Queue("a", CreateGroup(GroupSettings{}))),
		"batch":         second(NewProducer(BatchSize(0, 1))),
		"linger":        second(NewProducer(Linger(-1))),
		"no topics":     second(NewConsumer()),
		"trust, and no": second(NewConsumer(Topics("a"), Trust())),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	t.Setenv("TUBE_HTTP", "a:1,b:2")
	q, err := Queue("a")
	if err != nil || fmt.Sprint(q.cfg.servers) != "[http://a:1 http://b:2]" {
		t.Errorf("%v, %v", q, err)
	}
}

func second[T any](_ T, err error) error { return err }
