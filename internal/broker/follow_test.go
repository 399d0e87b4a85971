package broker

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
	"github.com/tube-mq/tube/internal/vfs"
	"github.com/tube-mq/tube/internal/wal"
)

// trio is one partition on three brokers in one process, with a network between
// them that can be cut.
type trio struct {
	t     *testing.T
	topic *meta.Topic

	mu      sync.Mutex
	hosts   map[record.NodeID]*replica.Host
	brokers map[record.NodeID]*Broker
	deaf    map[record.NodeID]bool // hear nothing of raft
	mute    bool                   // nobody answers questions
	asked   int
}

type trioWire struct{ t *trio }

func (w trioWire) Send(to record.NodeID, parts [][]byte, release func()) bool {
	defer release()
	w.t.mu.Lock()
	h := w.t.hosts[to]
	deaf := w.t.deaf[to]
	w.t.mu.Unlock()
	if h == nil || deaf {
		return false
	}
	all := slices.Concat(parts...)
	buf := record.NewBuffer(len(all))
	defer buf.Release()
	copy(buf.B, all)
	return h.Receive(buf.B, buf) == nil
}

// AskEnd implements Asker.
func (t *trio) AskEnd(node record.NodeID, group record.Group, term record.Term, done func(Bounds, bool)) func() {
	t.mu.Lock()
	b, mute := t.brokers[node], t.mute
	t.asked++
	t.mu.Unlock()
	if !mute {
		done(b.EndIn(group, term))
	}
	return func() {}
}

func newTrio(t *testing.T) *trio {
	x := &trio{t: t, topic: testTopic(nil), hosts: map[record.NodeID]*replica.Host{}, brokers: map[record.NodeID]*Broker{}, deaf: map[record.NodeID]bool{}}
	place := meta.Placement{Group: 1000}
	for n := range record.NodeID(3) {
		place.Replicas = append(place.Replicas, meta.Replica{ID: record.ReplicaID(n + 1), Node: n + 1})
		place.Founders = append(place.Founders, record.ReplicaID(n+1))
	}
	x.topic.Partitions = []meta.Placement{place}
	logger := slog.New(slog.DiscardHandler)
	for n := record.NodeID(1); n <= 3; n++ {
		fs := vfs.NewMem()
		h, err := replica.Open(replica.Config{
			FS: fs, Dir: "d", Logger: logger, Loops: 1, Transport: trioWire{x}, TickInterval: 50 * time.Millisecond,
			WAL: wal.Config{FileBytes: 1 << 20, FirstFileBytes: 64 << 10},
		})
		if err != nil {
			t.Fatal(err)
		}
		b, err := New(Config{Node: n, FS: fs, Dir: "d/data", Host: h, Logger: logger, ReserveBytes: 1, Asker: x})
		if err != nil {
			t.Fatal(err)
		}
		x.mu.Lock()
		x.hosts[n], x.brokers[n] = h, b
		x.mu.Unlock()
		t.Cleanup(func() {
			b.Stop()
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, b := range x.brokers {
		if err := b.Host(x.topic, 0); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

func (x *trio) at(n record.NodeID) *Partition {
	p, _ := x.brokers[n].Partition(record.TopicPartition{Topic: x.topic.ID})
	return p
}

func (x *trio) hear(n record.NodeID, on bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.deaf[n] = !on
}

// roles waits until there is a leader whom the others follow.
func (x *trio) roles() (leader *Partition, followers []*Partition) {
	x.t.Helper()
	eventually(x.t, func() bool {
		leader, followers = nil, nil
		for n := record.NodeID(1); n <= 3; n++ {
			p := x.at(n)
			if s := p.group.Status(); s.Leading {
				leader = p
			} else if s.Leader != 0 {
				followers = append(followers, p)
			}
		}
		return leader != nil && len(followers) == 2
	})
	return leader, followers
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("it does not come to it")
		}
		time.Sleep(time.Millisecond)
	}
}

func (p *Partition) put(t *testing.T, value string) record.Offset {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		done := make(chan ProduceResult, 1)
		p.Produce(ProduceRequest{Batch: batchOf(-1, 0, 1000, value), LeaderEpoch: -1}, func(r ProduceResult) { done <- r })
		r := <-done
		switch {
		case r.Err == nil:
			return r.BaseOffset
		case !errors.Is(r.Err, ErrNotLeader) || time.Now().After(deadline):
			t.Fatal(r.Err)
		}
		time.Sleep(time.Millisecond) // the process paused: the leader is in doubt for a moment
	}
}

// caughtUp waits for CatchUp's answer.
func (p *Partition) caughtUp(epoch record.Epoch) error {
	done := make(chan error, 1)
	stop := p.CatchUp(epoch, func(err error) { done <- err })
	defer stop()
	return <-done
}

func (p *Partition) epoch() record.Epoch { return record.Epoch(p.group.Status().Term) }

func TestAFollowerServesOnceItHasWhatItsLeaderHad(t *testing.T) {
	x := newTrio(t)
	leader, followers := x.roles()
	f := followers[0]
	for range 3 {
		leader.put(t, "v")
	}
	read := ReadRequest{MaxBytes: 1 << 20, MinOne: true, LeaderEpoch: -1}
	if _, err := f.Read(read); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("a follower that did not catch up: %v", err)
	}
	if err := f.caughtUp(leader.epoch()); err != nil {
		t.Fatal(err)
	}
	read.CaughtUp = true
	r, err := f.Read(read)
	if err != nil || !r.Followed || r.Bounds.HighWatermark != 3 || r.SizeBytes == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	r.Release()
	// It hears nothing: what the leader commits with the third is not here.
	x.hear(f.broker.cfg.Node, false)
	leader.put(t, "later")
	done := make(chan error, 1)
	stop := f.CatchUp(-1, func(err error) { done <- err })
	defer stop()
	eventually(t, func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.catching) == 1 })
	select {
	case err := <-done:
		r, _ := f.Read(read)
		t.Fatalf("caught up (%v) with an end of %d, its leader's is 4", err, r.Bounds.HighWatermark)
	default:
	}
	x.hear(f.broker.cfg.Node, true)
	if err := <-done; err != nil && !errors.Is(err, ErrNotLeader) { // it may have thought its leader gone
		t.Fatal(err)
	} else if err == nil {
		if r, err := f.Read(ReadRequest{Offset: 4, MaxBytes: 1, LeaderEpoch: -1, CaughtUp: true}); err != nil || r.Bounds.HighWatermark != 4 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
}

func TestAFollowerHoldsToEpochs(t *testing.T) {
	x := newTrio(t)
	leader, followers := x.roles()
	f, epoch := followers[0], leader.epoch()
	for _, c := range []struct {
		epoch record.Epoch
		want  error
	}{{epoch, nil}, {-1, nil}, {epoch - 1, ErrFencedEpoch}, {epoch + 1, ErrUnknownEpoch}} {
		if err := f.caughtUp(c.epoch); !errors.Is(err, c.want) {
			t.Errorf("epoch %d of %d: %v, want %v", c.epoch, epoch, err, c.want)
		}
		if _, err := f.Read(ReadRequest{LeaderEpoch: c.epoch, CaughtUp: true}); !errors.Is(err, c.want) {
			t.Errorf("read in epoch %d of %d: %v, want %v", c.epoch, epoch, err, c.want)
		}
	}
	if _, ok := leader.broker.EndIn(1000, record.Term(epoch-1)); ok {
		t.Error("a leader speaks for an earlier term")
	}
	if _, ok := f.broker.EndIn(1000, record.Term(epoch)); ok {
		t.Error("a follower speaks for its leader")
	}
}

// A reader who waits for an answer that does not come is told when the leader is
// another, or gone.
func TestWhoWaitsForALeaderIsToldOfTheNext(t *testing.T) {
	x := newTrio(t)
	leader, followers := x.roles()
	x.mu.Lock()
	x.mute = true
	x.mu.Unlock()
	done := make(chan error, 1)
	defer followers[0].CatchUp(-1, func(err error) { done <- err })()
	leader.group.Transfer(followers[1].replica)
	if err := <-done; !errors.Is(err, ErrNotLeader) {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		f := followers[0]
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.catching) == 0
	})
}

func TestAFollowerWithoutItsReplicaServesNothing(t *testing.T) {
	x := newTrio(t)
	_, followers := x.roles()
	f := followers[0]
	if err := f.caughtUp(-1); err != nil {
		t.Fatal(err)
	}
	if err := f.broker.Unhost(f.id, f.groupID); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(ReadRequest{LeaderEpoch: -1, CaughtUp: true}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a replica that was removed reads: %v", err)
	}
	if err := f.caughtUp(-1); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a replica that was removed catches up: %v", err)
	}
}

// Reading from a follower wakes no quiet group, however often.
func TestReadersOfAFollowerLetAGroupSleep(t *testing.T) {
	x := newTrio(t)
	leader, followers := x.roles()
	leader.put(t, "v")
	asleep := func() bool {
		for _, h := range x.hosts {
			if h.Ticking() != 0 {
				return false
			}
		}
		return true
	}
	eventually(t, asleep)
	for range 100 {
		if err := followers[0].caughtUp(leader.epoch()); err != nil {
			t.Fatal(err)
		}
		if r, err := followers[0].Read(ReadRequest{Offset: 1, LeaderEpoch: leader.epoch(), CaughtUp: true}); err != nil || r.Bounds.HighWatermark != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		if !asleep() {
			t.Fatal("a reader woke the group")
		}
	}
	if n := leader.Followers(); len(n) != 2 || !asleep() {
		t.Fatalf("the leader knows %v to keep up", n)
	}
}

func TestALeaderKnowsWhoKeepsUp(t *testing.T) {
	x := newTrio(t)
	leader, followers := x.roles()
	eventually(t, func() bool { leader.put(t, "v"); return len(leader.Followers()) == 2 })
	if n := followers[0].Followers(); n != nil {
		t.Errorf("a follower names %v", n)
	}
	behind := followers[0].broker.cfg.Node
	x.hear(behind, false)
	for range maxLagEntries + 10 {
		leader.put(t, "v")
	}
	eventually(t, func() bool { n := leader.Followers(); return len(n) == 1 && n[0] != behind })
}

// Who is told that the replica caught up may read there at once, and find it damaged,
// which takes the partition's lock.
func TestWhoIsToldMayCallThePartition(t *testing.T) {
	x := newTrio(t)
	leader, followers := x.roles()
	done := make(chan error, 1)
	tell := func(p *Partition) func(error) {
		return func(err error) {
			p.Watch(make(signal, 1))()
			done <- err
		}
	}
	await := func() error {
		select {
		case err := <-done:
			return err
		case <-time.After(20 * time.Second):
			t.Fatal("who was told could not call the partition")
			return nil
		}
	}
	stop := followers[0].CatchUp(-1, tell(followers[0])) // as the leader's answer comes
	if err := await(); err != nil {
		t.Error(err)
	}
	stop()
	x.mu.Lock()
	x.mute = true
	x.mu.Unlock()
	stop = followers[0].CatchUp(-1, tell(followers[0])) // as the partition's loop notices
	leader.group.Transfer(followers[1].replica)
	if err := await(); !errors.Is(err, ErrNotLeader) {
		t.Error(err)
	}
	stop()
}
