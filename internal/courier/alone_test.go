package courier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// deskNode leads one partition with a desk of its own, as nodes do; what the desk wants
// committed is, at once. It implements Node and queue.Source.
type deskNode struct {
	mu        sync.Mutex
	partition record.Partition
	state     *queue.State
	desk      *queue.Desk
	hands     *queue.Hands
	end       record.Offset
	now       int64
	changed   chan struct{}
}

func newDeskNode(p record.Partition, messages int) *deskNode {
	n := &deskNode{partition: p, state: queue.NewState(), hands: queue.NewHands(), end: record.Offset(messages), now: 1000, changed: make(chan struct{})}
	n.commit(queue.Op{Kind: queue.OpOpen, Group: 1})
	s := queue.DefaultSettings()
	s.Backoff = nil
	n.desk = queue.NewDesk(queue.DeskConfig{Group: 1, Partition: p, Settings: s, Source: n, Hands: n.hands, Given: queue.FirstOf(1),
		Read: func(f func(*queue.State)) { f(n.state) }}, n.now)
	return n
}

func (n *deskNode) Messages(o record.Offset) ([]queue.Message, error) {
	return []queue.Message{{Partition: n.partition, Offset: o, KeyNull: true, Value: []byte("v")}}, nil
}

func (n *deskNode) End() record.Offset { return n.end }

func (n *deskNode) commit(ops ...queue.Op) {
	if _, err := n.state.Apply(queue.AppendCommand(nil, n.now, ops), n.end); err != nil {
		panic(err)
	}
	for i := range ops {
		if n.desk != nil {
			n.desk.Committed(n.now, &ops[i])
		}
	}
}

// carry commits what the desk decided, and has who waits look again.
func (n *deskNode) carry() {
	for e := n.desk.Effects(); len(e.Ops) > 0; e = n.desk.Effects() {
		n.commit(e.Ops...)
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *deskNode) send(messages int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end += record.Offset(messages)
	n.carry()
}

func (n *deskNode) take(r queue.Receiving) (got []queue.Delivery, changed chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.Max > 0 {
		taken, _, _ := n.desk.Take(n.now, queue.Taking{Member: r.Member, Max: r.Max, MaxBytes: 1 << 20, Held: r.Held})
		for _, t := range taken {
			got = append(got, queue.Delivery{Lease: t.Lease, Alone: t.Alone})
		}
	}
	return got, n.changed
}

func (n *deskNode) Receive(ctx context.Context, _ *meta.QueueGroup, r queue.Receiving, _ uint64) ([]queue.Delivery, queue.Holding, error) {
	over := time.After(r.Wait)
	for {
		got, changed := n.take(r)
		if len(got) > 0 || r.Wait <= 0 {
			return got, n.holding(r), nil
		}
		select {
		case <-changed:
		case <-over:
			return nil, n.holding(r), nil
		case <-ctx.Done():
			return nil, queue.Holding{}, ctx.Err()
		}
	}
}

func (n *deskNode) holding(r queue.Receiving) queue.Holding {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hands.Holding(r.Member.Session)
}

func (n *deskNode) Settle(_ context.Context, _ *meta.QueueGroup, _ record.TopicPartition, s []queue.Settlement) ([]error, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	errs := make([]error, len(s))
	for i := range s {
		_, errs[i] = n.desk.Settle(n.now, s[i])
	}
	n.carry()
	return errs, nil
}

func (n *deskNode) SessionGone(_ context.Context, session string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.desk.SessionGone(n.now, session)
	n.hands.Gone(session)
	n.carry()
}

func (n *deskNode) StopReceiving(context.Context, uint64) {}

func (n *deskNode) Send(context.Context, record.TopicPartition, []queue.Outgoing) ([]queue.Sent, error) {
	return nil, errors.New("nothing is sent here")
}

// desks is a topic of two partitions, which two nodes lead, and its courier.
func desks(messages ...int) (*Courier, []*deskNode) {
	w := newTown(1, 2)
	nodes := []*deskNode{newDeskNode(0, messages[0]), newDeskNode(1, messages[1])}
	c := w.courier()
	c.cfg.Node = func(id record.NodeID) (Node, error) { return nodes[id-1], nil }
	return c, nodes
}

// consumer is a session that notes what it has in hand.
type consumer struct {
	t    *testing.T
	c    *Courier
	name string
	hand []queue.Delivery
}

func (x *consumer) receive(max int, wait time.Duration) []queue.Delivery {
	x.t.Helper()
	got, err := x.c.Receive(x.t.Context(), queue.Receiving{Group: "billing", Member: queue.Member{ID: x.name, Session: x.name}, Max: max, MaxBytes: 1 << 20, Wait: wait})
	if err != nil {
		x.t.Fatal(err)
	}
	x.hand = append(x.hand, got...)
	for _, d := range x.hand {
		if d.Alone && len(x.hand) > 1 {
			x.t.Fatalf("%s holds %d messages, and one of them is to be alone: %+v", x.name, len(x.hand), x.hand)
		}
	}
	return got
}

func (x *consumer) ack() {
	x.t.Helper()
	var s []queue.Settlement
	for _, d := range x.hand {
		s = append(s, queue.Settlement{Lease: d.Lease, Verdict: queue.Acknowledge})
	}
	x.hand = nil
	errs, err := x.c.Settle(x.t.Context(), "billing", s)
	if err = errors.Join(append(errs, err)...); err != nil {
		x.t.Fatal(err)
	}
}

// A consumer goes away with messages of two nodes in hand. They come again one by one:
// nobody has one together with any other, whichever node that is of.
func TestSuspectsAreAloneAcrossNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := desks(3, 3)
		x := &consumer{t: t, c: c, name: "x"}
		for len(x.hand) < 6 {
			x.receive(6, time.Second)
		}
		c.SessionGone("x")
		y := &consumer{t: t, c: c, name: "y"}
		for seen := 0; seen < 6; seen++ {
			if got := y.receive(10, 10*time.Second); len(got) != 1 || !got[0].Alone {
				t.Fatalf("message %d: %+v", seen, got)
			}
			if got := y.receive(10, 3*time.Second); len(got) > 0 {
				t.Fatalf("beside one that is to be alone it is given %+v", got)
			}
			y.ack()
		}
	})
}

// Who waits at both nodes when something comes of both, one of it alone, has that only;
// the other message is there for him afterwards.
func TestSuspectComesAloneAlsoToWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, nodes := desks(2, 0)
		x := &consumer{t: t, c: c, name: "x"}
		x.receive(2, time.Second)
		y := &consumer{t: t, c: c, name: "y"}
		done := make(chan struct{})
		go func() {
			defer close(done)
			y.receive(10, 4*time.Second)
		}()
		synctest.Wait()
		nodes[1].send(1)
		nodes[0].SessionGone(t.Context(), "x")
		<-done
		for range 2 {
			y.ack()
			y.receive(10, 10*time.Second)
		}
		y.ack()
		if got := y.receive(10, time.Second); len(got) > 0 {
			t.Errorf("once more %+v", got)
		}
	})
}

// Who holds a message of one node gets no suspect of another, nor anything else that
// would keep his hand from becoming empty, until he is done with it. Then he gets it soon.
func TestHandIsEmptiedForASuspectOfAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, nodes := desks(2, 1)
		x := &consumer{t: t, c: c, name: "x"}
		y := &consumer{t: t, c: c, name: "y"}
		for len(x.hand) < 3 {
			x.receive(3, time.Second)
		}
		for _, d := range x.hand { // that of the second node goes to y
			if d.Lease.Partition == 1 {
				if _, err := c.Settle(t.Context(), "billing", []queue.Settlement{{Lease: d.Lease, Verdict: queue.Release}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := y.receive(10, time.Second); len(got) != 1 || got[0].Alone {
			t.Fatalf("%+v", got)
		}
		nodes[0].SessionGone(t.Context(), "x")
		time.AfterFunc(500*time.Millisecond, func() { nodes[1].send(5) })
		if got := y.receive(10, time.Second); len(got) > 0 {
			t.Fatalf("its hand does not become empty: %+v", got)
		}
		time.AfterFunc(time.Second, y.ack)
		began := time.Now()
		if got := y.receive(10, 30*time.Second); len(got) != 1 || !got[0].Alone || time.Since(began) > 1500*time.Millisecond {
			t.Fatalf("after %v: %+v", time.Since(began), got)
		}
	})
}

// Who is given a suspect by one node is not given anything by the next.
func TestWithASuspectNothingElseIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, nodes := desks(4, 0)
		x := &consumer{t: t, c: c, name: "x"}
		x.receive(4, time.Second)
		nodes[1].send(20)
		c.SessionGone("x")
		suspects := 0
		for i := range 6 {
			z := &consumer{t: t, c: c, name: fmt.Sprint("z", i)}
			if got := z.receive(2, 0); len(got) > 0 && got[0].Alone {
				suspects++
			}
		}
		if suspects == 0 {
			t.Error("nobody was given a suspect")
		}
	})
}

// What couriers remember of sessions is bounded, and forgotten with what they hold.
func TestHandsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHands()
		h.maxHeld = 2
		for _, s := range []string{"a", "b", "c"} {
			h.told(1, s, 1, queue.Holding{Leases: 1})
		}
		if h.elsewhere(1, "a", 2) != 1 || h.elsewhere(1, "c", 2) != 0 || len(h.by) != 2 {
			t.Fatalf("%v", h.by)
		}
		h.told(1, "a", 1, queue.Holding{})
		h.told(1, "c", 1, queue.Holding{Leases: 1})
		h.gone("b")
		if len(h.by) != 1 {
			t.Fatalf("%v", h.by)
		}
		h.told(1, "d", 1, queue.Holding{Leases: 1})
		time.Sleep(forgetHands + time.Second)
		h.told(1, "e", 1, queue.Holding{Alone: true})
		if len(h.by) != 1 || h.bound(1, "e", []record.NodeID{1, 2}) != 1 || h.bound(1, "e", []record.NodeID{2}) != -1 {
			t.Fatalf("%v", h.by)
		}
	})
}
