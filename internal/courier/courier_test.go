package courier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// town is a topic of four partitions and who leads them.
type town struct {
	mu      sync.Mutex
	leaders map[record.Partition]record.NodeID
	nodes   map[record.NodeID]*fakeNode
	image   *meta.Image
}

func newTown(leaders ...record.NodeID) *town {
	t := &meta.Topic{ID: record.TopicID{1}, Name: "orders", Partitions: make([]meta.Placement, len(leaders))}
	g := &meta.QueueGroup{ID: 1, Name: "billing", Topic: t.ID}
	w := &town{leaders: map[record.Partition]record.NodeID{}, nodes: map[record.NodeID]*fakeNode{}, image: &meta.Image{
		ByName: map[string]*meta.Topic{"orders": t}, Topics: map[record.TopicID]*meta.Topic{t.ID: t},
		QueueGroups: map[string]*meta.QueueGroup{"billing": g},
	}}
	for p, n := range leaders {
		w.leaders[record.Partition(p)] = n
		if n >= 0 && w.nodes[n] == nil {
			w.nodes[n] = &fakeNode{w: w, id: n, arrived: make(chan struct{}), stopped: map[uint64]chan struct{}{}}
		}
	}
	return w
}

func (w *town) courier() *Courier {
	return New(Config{
		Self: 1, Image: func() *meta.Image { return w.image },
		Leader: func(tp record.TopicPartition) record.NodeID { return w.leader(tp.Partition) },
		Node: func(id record.NodeID) (Node, error) {
			if n := w.nodes[id]; n != nil && !n.down {
				return n, nil
			}
			return nil, errors.New("no route")
		},
		Nodes: func() (ids []record.NodeID) {
			for id := range w.nodes {
				ids = append(ids, id)
			}
			return ids
		},
	})
}

func (w *town) leader(p record.Partition) record.NodeID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leaders[p]
}

func (w *town) lead(p record.Partition, n record.NodeID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaders[p] = n
}

// fakeNode holds messages and notes what it was asked.
type fakeNode struct {
	w    *town
	id   record.NodeID
	down bool

	mu       sync.Mutex
	stock    []queue.Delivery
	arrived  chan struct{}
	stopped  map[uint64]chan struct{}
	sent     map[record.Partition]int
	released int
	settled  int
	refusals int // answers that it does not lead before it does
	gone     []string
}

func (f *fakeNode) put(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		f.stock = append(f.stock, queue.Delivery{Lease: queue.Lease{Partition: f.partition(), Offset: record.Offset(len(f.stock)), Attempt: 1}})
	}
	close(f.arrived)
	f.arrived = make(chan struct{})
}

func (f *fakeNode) partition() record.Partition {
	for p, n := range f.w.leaders {
		if n == f.id {
			return p
		}
	}
	return 0
}

func (f *fakeNode) leads(p record.Partition) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refusals > 0 {
		f.refusals--
		return queue.ErrUnavailable
	}
	if f.w.leader(p) != f.id {
		return queue.ErrUnavailable
	}
	return nil
}

func (f *fakeNode) Send(_ context.Context, to record.TopicPartition, m []queue.Outgoing) ([]queue.Sent, error) {
	if err := f.leads(to.Partition); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sent == nil {
		f.sent = map[record.Partition]int{}
	}
	out := make([]queue.Sent, len(m))
	for i := range out {
		out[i] = queue.Sent{Partition: to.Partition, Offset: record.Offset(f.sent[to.Partition]), ID: m[i].ID}
		f.sent[to.Partition]++
	}
	return out, nil
}

func (f *fakeNode) Receive(ctx context.Context, _ *meta.QueueGroup, r queue.Receiving, token uint64) ([]queue.Delivery, queue.Holding, error) {
	until := time.After(r.Wait)
	f.mu.Lock()
	stop := make(chan struct{})
	f.stopped[token] = stop
	f.mu.Unlock()
	for {
		f.mu.Lock()
		n := min(r.Max, len(f.stock))
		got, arrived := f.stock[:n:n], f.arrived
		f.stock = f.stock[n:]
		f.mu.Unlock()
		if n > 0 || r.Wait == 0 {
			return got, queue.Holding{}, nil
		}
		select {
		case <-arrived:
		case <-until:
			return nil, queue.Holding{}, nil
		case <-stop:
			return nil, queue.Holding{}, nil
		case <-ctx.Done():
			return nil, queue.Holding{}, ctx.Err()
		}
	}
}

func (f *fakeNode) StopReceiving(_ context.Context, token uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.stopped[token]; c != nil {
		close(c)
		delete(f.stopped, token)
	}
}

func (f *fakeNode) Settle(_ context.Context, _ *meta.QueueGroup, of record.TopicPartition, s []queue.Settlement) ([]error, error) {
	if err := f.leads(of.Partition); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	errs := make([]error, len(s))
	for i := range s {
		switch {
		case s[i].Lease.Offset >= 1000:
			errs[i] = queue.ErrLeaseExpired
		case s[i].Verdict == queue.Release:
			f.released++
		default:
			f.settled++
		}
	}
	return errs, nil
}

func (f *fakeNode) SessionGone(_ context.Context, session string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = append(f.gone, session)
}

func TestKeysGoWhereKafkaClientsPutThem(t *testing.T) {
	c := newTown(1, 1, 1, 1).courier()
	topic := c.cfg.Image().ByName["orders"]
	kafka := kgo.StickyKeyPartitioner(nil).ForTopic("orders")
	for i := range 1000 {
		key := []byte(fmt.Sprintf("key-%0*d", i%17, i))
		want := kafka.Partition(&kgo.Record{Key: key}, len(topic.Partitions))
		if got := c.partition(topic, &queue.Outgoing{Key: key}); int(got) != want {
			t.Fatalf("key %q goes to partition %d, Kafka clients put it into %d", key, got, want)
		}
	}
}

func TestMessagesWithoutKeysOfOneCallStayTogetherAndCallsTakeTurns(t *testing.T) {
	w := newTown(1, 2, 1, 2)
	c := w.courier()
	used := map[record.Partition]bool{}
	for range 4 {
		sent, err := c.Send(t.Context(), "orders", []queue.Outgoing{{KeyNull: true}, {KeyNull: true}})
		if err != nil || sent[0].Err != nil || sent[0].Partition != sent[1].Partition {
			t.Fatalf("sent %v, %v", sent, err)
		}
		used[sent[0].Partition] = true
	}
	if len(used) != 4 {
		t.Errorf("four calls used partitions %v", used)
	}
}

func TestWithDedupeTheIDChoosesThePartition(t *testing.T) {
	w := newTown(1, 2, 1, 2)
	w.image.ByName["orders"].Config.DedupeWindow = time.Hour
	c := w.courier()
	first := record.Partition(-1)
	for range 8 {
		sent, err := c.Send(t.Context(), "orders", []queue.Outgoing{{KeyNull: true, ID: "invoice-7"}})
		if err != nil || sent[0].Err != nil {
			t.Fatal(sent, err)
		}
		if first >= 0 && sent[0].Partition != first {
			t.Fatalf("a repeat went to partition %d, the first to %d", sent[0].Partition, first)
		}
		first = sent[0].Partition
	}
}

func TestALeaderThatMovesIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(1, 2)
		c := w.courier()
		w.nodes[1].down = true
		go func() {
			time.Sleep(time.Second)
			w.lead(0, 2)
		}()
		errs, err := c.Settle(t.Context(), "billing", []queue.Settlement{{Lease: queue.Lease{Partition: 0}, Verdict: queue.Acknowledge}})
		if err != nil || errs[0] != nil {
			t.Fatal(errs, err)
		}
		if w.nodes[2].settled != 1 {
			t.Error("the new leader was not asked")
		}
	})
}

func TestAPartitionWithoutALeaderIsAnErrorOfItsOwnMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(1, -1)
		errs, err := w.courier().Settle(t.Context(), "billing", []queue.Settlement{
			{Lease: queue.Lease{Partition: 0}, Verdict: queue.Acknowledge}, {Lease: queue.Lease{Partition: 1}, Verdict: queue.Acknowledge},
			{Lease: queue.Lease{Partition: 9}, Verdict: queue.Acknowledge}, {Lease: queue.Lease{Partition: 0, Offset: 1000}, Verdict: queue.Acknowledge}})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []error{nil, queue.ErrUnavailable, queue.ErrLeaseUnknown, queue.ErrLeaseExpired} {
			if !errors.Is(errs[i], want) {
				t.Errorf("settlement %d: %v, want %v", i, errs[i], want)
			}
		}
	})
}

func TestReceiveWaitsAtAllNodesAndReleasesWhatIsTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(1, 2, 3)
		c := w.courier()
		go func() {
			time.Sleep(7 * time.Second) // longer than a round
			w.nodes[2].put(3)
			w.nodes[3].put(3)
		}()
		begin := time.Now()
		got, err := c.Receive(t.Context(), queue.Receiving{Group: "billing", Max: 2, MaxBytes: 1 << 20, Wait: 30 * time.Second})
		if err != nil || len(got) != 2 {
			t.Fatalf("got %d messages, %v", len(got), err)
		}
		if d := time.Since(begin); d != 7*time.Second {
			t.Errorf("after %v", d)
		}
		synctest.Wait()
		taken := 6 - len(w.nodes[2].stock) - len(w.nodes[3].stock)
		if released := w.nodes[2].released + w.nodes[3].released; taken-released != 2 {
			t.Errorf("%d were taken, %d released: 2 are with the caller", taken, released)
		}
	})
}

// What is acknowledged by being handed out cannot be released: what is too much would be lost.
func TestReceiveTakesNoMoreThanIsWantedWhereItIsDoneWithAtOnce(t *testing.T) {
	for _, most := range []int{2, 7} {
		synctest.Test(t, func(t *testing.T) {
			w := newTown(1, 2, 3)
			w.image.QueueGroups["billing"].Settings.AutoAck = true
			c := w.courier()
			go func() {
				time.Sleep(time.Second)
				for _, n := range w.nodes {
					n.put(8)
				}
			}()
			got, err := c.Receive(t.Context(), queue.Receiving{Group: "billing", Max: most, MaxBytes: 1 << 20, Wait: time.Minute})
			synctest.Wait()
			left := 0
			for _, n := range w.nodes {
				left += len(n.stock)
			}
			if err != nil || len(got) == 0 || len(got) > most || len(got)+left != 24 {
				t.Errorf("%d of up to %d received, %d left of 24, %v", len(got), most, left, err)
			}
		})
	}
}

func TestReceiveEndsWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(1, 2)
		begin := time.Now()
		got, err := w.courier().Receive(t.Context(), queue.Receiving{Group: "billing", Max: 1, MaxBytes: 1, Wait: 12 * time.Second})
		if len(got) != 0 || err != nil || time.Since(begin) != 12*time.Second {
			t.Errorf("got %v, %v after %v", got, err, time.Since(begin))
		}
	})
}

func TestWhatArrivesForACallerThatLeftIsReleased(t *testing.T) {
	for _, nodes := range [][]record.NodeID{{1}, {1, 2}} {
		synctest.Test(t, func(t *testing.T) {
			w := newTown(nodes...)
			c := w.courier()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() {
				_, err := c.Receive(ctx, queue.Receiving{Group: "billing", Max: 5, MaxBytes: 1 << 20, Wait: time.Minute})
				done <- err
			}()
			synctest.Wait()
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			w.nodes[1].put(1)
			synctest.Wait()
			if n := w.nodes[1]; len(n.stock)+n.released != 1 {
				t.Errorf("a message was lost: %d in stock, %d released", len(n.stock), n.released)
			}
		})
	}
}

func TestAGoneSessionIsToldToAllNodes(t *testing.T) {
	w := newTown(1, 2, 3)
	w.nodes[3].down = true
	w.courier().SessionGone("s")
	if len(w.nodes[1].gone) != 1 || len(w.nodes[2].gone) != 1 {
		t.Errorf("told %v and %v", w.nodes[1].gone, w.nodes[2].gone)
	}
}
