package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// fakeQueues is one partition of one topic, and a group that forgets nothing: it keeps
// what was asked for, and hands out what the test puts in.
type fakeQueues struct {
	mu       sync.Mutex
	starting error // of the backend as a whole
	failSend error
	failRecv []error // of the next calls of Receive
	there    []queue.Delivery
	changed  chan struct{}

	sent     []queue.Outgoing
	receives []queue.Receiving
	settled  []queue.Settlement
	settles  int                   // calls
	hold     chan struct{}         // Settle waits for it, if it is there
	refuse   map[queue.Lease]error // of Settle
	members  []queue.Member
	inquire  func(context.Context, []queue.Lease) []queue.Answer
	closed   int
	redrives []Redrive
	seeks    []QueueSeek
	refs     []queue.Ref
	at       int64
	pages    []Page
}

func newFakeQueues() *fakeQueues {
	return &fakeQueues{changed: make(chan struct{}), refuse: map[queue.Lease]error{}}
}

// do changes something and wakes who waits.
func (f *fakeQueues) do(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

// await returns once what is so.
func (f *fakeQueues) await(ctx context.Context, what func() bool) bool {
	for {
		f.mu.Lock()
		ok, changed := what(), f.changed
		f.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (f *fakeQueues) put(n int) {
	f.do(func() {
		for range n {
			at := record.Offset(len(f.there))
			f.there = append(f.there, queue.Delivery{Lease: queue.Lease{Offset: at, Attempt: 1, Nonce: 7}, Topic: "orders", KeyNull: true, Value: []byte(fmt.Sprint(at)), UntilMillis: 5000, TimestampMillis: 1000})
		}
	})
}

func (f *fakeQueues) Send(_ context.Context, topic string, ms []queue.Outgoing) ([]queue.Sent, error) {
	var out []queue.Sent
	err := f.failSend
	f.do(func() {
		for _, m := range ms {
			f.sent = append(f.sent, m)
			x := queue.Sent{Partition: 2, Offset: record.Offset(len(f.sent) - 1), ID: m.ID}
			if m.ID == "again" {
				x.Duplicate = true
			}
			if string(m.Value) == "huge" {
				x.Err = fmt.Errorf("%w: 2000000 bytes, topic %s allows 1048588", queue.ErrMessageTooLarge, topic)
			}
			out = append(out, x)
		}
	})
	return out, err
}

func (f *fakeQueues) Receive(ctx context.Context, r queue.Receiving) ([]queue.Delivery, error) {
	var fail error
	f.do(func() {
		f.receives = append(f.receives, r)
		if len(f.failRecv) > 0 {
			fail, f.failRecv = f.failRecv[0], f.failRecv[1:]
		}
	})
	if fail != nil {
		return nil, fail
	}
	wait, cancel := context.WithTimeout(ctx, r.Wait)
	defer cancel()
	f.await(wait, func() bool { return len(f.there) > 0 })
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, bytes := 0, 0
	for n < min(r.Max, len(f.there)) && (n == 0 || bytes+len(f.there[n].Value) <= r.MaxBytes) {
		bytes += len(f.there[n].Value)
		n++
	}
	out := f.there[:n]
	f.there = f.there[n:]
	return out, nil
}

func (f *fakeQueues) Settle(ctx context.Context, group string, s []queue.Settlement) ([]error, error) {
	f.mu.Lock()
	hold := f.hold
	f.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if group == "gone" {
		return nil, fmt.Errorf("%w: gone", queue.ErrUnknownGroup)
	}
	errs := make([]error, len(s))
	f.do(func() {
		f.settles++
		f.settled = append(f.settled, s...)
		for i, x := range s {
			errs[i] = f.refuse[x.Lease]
		}
	})
	return errs, nil
}

func (f *fakeQueues) Complete(ctx context.Context, group string, ls []queue.Lease, send []queue.TopicMessages) (queue.Completed, error) {
	out := queue.Completed{Leases: make([]error, len(ls))}
	for i, l := range ls {
		if out.Leases[i] = f.refuse[l]; out.Leases[i] != nil {
			return out, nil
		}
	}
	for _, t := range send {
		sent, _ := f.Send(ctx, t.Topic, t.Messages)
		out.Sent = append(out.Sent, sent)
	}
	return out, nil
}

func (f *fakeQueues) OpenSession(_ string, m queue.Member, inquire func(context.Context, []queue.Lease) []queue.Answer) func() {
	f.do(func() { f.members, f.inquire = append(f.members, m), inquire })
	return func() { f.do(func() { f.closed++ }) }
}

func (f *fakeQueues) Progress(context.Context, string) ([]*tubev1.QueueProgress, error) {
	return []*tubev1.QueueProgress{{Known: true, Backlog: 5, Ready: 3, InFlight: 2, Consumers: 1}, {Partition: 1, Known: false}, {Partition: 2, Known: true, Backlog: 1, Ready: 1, Consumers: 1}}, nil
}

func (f *fakeQueues) Explain(context.Context, string) ([]*tubev1.QueueCause, error) {
	return []*tubev1.QueueCause{{Kind: tubev1.QueueCause_NO_CONSUMER, Text: "nobody receives", Partition: -1}}, nil
}

func (f *fakeQueues) ListPending(_ context.Context, _, state string, p Page) (*tubev1.ListPendingResponse, error) {
	f.do(func() { f.pages = append(f.pages, p) })
	return &tubev1.ListPendingResponse{Messages: []*tubev1.PendingMessage{{Offset: 3, State: state}}}, nil
}

func (f *fakeQueues) ListDelayed(_ context.Context, _ string, p Page) (*tubev1.ListDelayedResponse, error) {
	f.do(func() { f.pages = append(f.pages, p) })
	return &tubev1.ListDelayedResponse{Total: 7}, nil
}

func (f *fakeQueues) ListDead(_ context.Context, _ string, _ DeadQuery, p Page) (*tubev1.ListDeadResponse, error) {
	f.do(func() { f.pages = append(f.pages, p) })
	return &tubev1.ListDeadResponse{}, nil
}

func (f *fakeQueues) TraceMessage(_ context.Context, topic string, m queue.Ref) (*tubev1.TraceMessageResponse, error) {
	if m.ID == "nothing" {
		return nil, fmt.Errorf("%w: id nothing in topic %s", queue.ErrUnknownMessage, topic)
	}
	return &tubev1.TraceMessageResponse{Topic: topic, Offset: int64(m.Offset)}, nil
}

func (f *fakeQueues) Seek(_ context.Context, _ string, to QueueSeek) ([]queue.Place, error) {
	f.do(func() { f.seeks = append(f.seeks, to) })
	return []queue.Place{{Partition: 1, Offset: 9}}, nil
}

func (f *fakeQueues) Purge(context.Context, string) (int64, error) { return 12, nil }

func (f *fakeQueues) CancelDelayed(_ context.Context, _ string, m []queue.Ref) ([]queue.Place, []error, error) {
	f.do(func() { f.refs = m })
	errs := make([]error, len(m))
	errs[len(m)-1] = queue.ErrUnknownMessage
	return make([]queue.Place, len(m)), errs, nil
}

func (f *fakeQueues) RescheduleDelayed(_ context.Context, _ string, m []queue.Ref, at int64) ([]queue.Place, []error, error) {
	f.do(func() { f.at = at })
	return make([]queue.Place, len(m)), make([]error, len(m)), nil
}

func (f *fakeQueues) Retry(_ context.Context, _ string, m []queue.Ref, _ bool) ([]queue.Place, []error, error) {
	return make([]queue.Place, len(m)), make([]error, len(m)), nil
}

func (f *fakeQueues) RedriveDead(_ context.Context, _ string, r Redrive) (Redriven, error) {
	f.do(func() { f.redrives = append(f.redrives, r) })
	return Redriven{Matched: 2, Done: 2, Next: "t"}, nil
}

func (f *fakeQueues) DropDead(_ context.Context, _ string, r Redrive) (Redriven, error) {
	f.do(func() { f.redrives = append(f.redrives, r) })
	return Redriven{Matched: 1, Done: 1}, nil
}

const soon = 20 * time.Second
