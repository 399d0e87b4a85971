package replica

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// ward is a crew in which disks can hang and nodes be sick.
type ward struct {
	*crew
	faulty map[record.NodeID]*vfs.Faulty

	care sync.Mutex
	sick map[record.NodeID]bool
}

func newWard(t *testing.T, nodes int) *ward {
	w := &ward{faulty: map[record.NodeID]*vfs.Faulty{}, sick: map[record.NodeID]bool{}}
	w.crew = newCrew(t, nodes, func(cfg *Config) {
		n := cfg.Transport.(wire).from
		w.faulty[n] = vfs.NewFaulty(cfg.FS)
		cfg.FS = w.faulty[n]
		cfg.Sick = func(n record.NodeID) bool { w.care.Lock(); defer w.care.Unlock(); return w.sick[n] }
		cfg.WAL.QueueBytes = 64 << 10
	})
	return w
}

// hang has a node's disk hang until the returned function is called.
func (w *ward) hang(n record.NodeID) (release func()) {
	released := make(chan struct{})
	stop, _ := w.faulty[n].Inject(vfs.Fault{Ops: vfs.OpMutating, Hold: released})
	release = sync.OnceFunc(func() { stop(); close(released) })
	w.t.Cleanup(release)
	return release
}

func (w *ward) setSick(n record.NodeID, on bool) {
	w.care.Lock()
	w.sick[n] = on
	w.care.Unlock()
	w.hosts[n].SetSick(on)
}

// A leader whose disk hangs hands over at once: what it has, its followers have.
// Entries that it was answering are kept or of unknown outcome, none is lost.
func TestALeaderWithAHungDiskYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, 3)
		tm := w.found(7, 1, 2, 3)
		w.write(tm, 20)
		lead := w.leader(tm)
		release := w.hang(lead)
		done := make(chan error, 1)
		tm.groups[lead].Propose(Proposal{Data: []byte("under way"), Done: func(_ any, err error) { done <- err }})
		w.setSick(lead, true)
		tm.groups[lead].Yield()
		next := w.leader(tm, lead)
		w.write(tm, 20, lead)
		if err := <-done; !errors.Is(err, ErrUnknownOutcome) {
			t.Fatalf("what was under way ends with %v", err)
		}
		// It is not elected, whatever happens to the others.
		w.kill(next)
		w.start(next)
		if again := w.leader(tm, lead); again == lead {
			t.Fatalf("node %d, which is sick, leads again", lead)
		}
		release()
		w.setSick(lead, false)
		w.agree(tm, 40)
	})
}

// Whoever is needed for every majority leads on: another would wait for it.
func TestASickLeaderThatIsNeededLeadsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, 3)
		alone, pair, crowd := w.found(7, 1), w.found(8, 1, 2), w.found(9, 1, 2, 3)
		for _, tm := range []*team{alone, pair, crowd} {
			w.write(tm, 5)
		}
		w.eventually("node 1 leads", func() bool {
			for _, tm := range []*team{pair, crowd} {
				for n, g := range tm.groups {
					if n != 1 {
						g.Transfer(1)
					}
				}
				if !tm.groups[1].Status().Leading {
					return false
				}
			}
			return true
		})
		w.setSick(1, true)
		w.setSick(3, true) // so the third group needs node 1, or the other sick one
		terms := map[*team]Status{}
		for _, tm := range []*team{alone, pair, crowd} {
			terms[tm] = tm.groups[1].Status()
			tm.groups[1].Yield()
			w.write(tm, 5)
			if s := tm.groups[1].Status(); s != terms[tm] {
				t.Fatalf("group %d: %+v, was %+v", tm.groups[1].ID(), s, terms[tm])
			}
		}
		w.setSick(3, false)
		crowd.groups[1].Yield()
		if next := w.leader(crowd, 1); next == 3 && w.sick[3] {
			t.Fatal("a sick node was chosen")
		}
	})
}

// A sick node is no candidate while the others can do without it, not even when a
// leader that has not heard of it asks it to be.
func TestASickNodeIsNoCandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, 5)
		var watched atomic.Uint64
		var stood atomic.Bool
		w.seen = func(m Message) {
			if t := m.raft.GetType(); (t == raftpb.MsgVote || t == raftpb.MsgPreVote) && m.raft.GetFrom() == watched.Load() {
				stood.Store(true)
			}
		}
		tm := w.found(7, 1, 2, 3, 4, 5)
		w.write(tm, 5)
		lead := w.leader(tm)
		sick := lead%5 + 1
		w.setSick(sick, true)
		watched.Store(uint64(sick))
		tm.groups[lead].Transfer(record.ReplicaID(sick))
		w.eventually("the transfer is over", func() bool {
			busy := make(chan bool, 1)
			tm.groups[lead].Do(func() { busy <- tm.groups[lead].core.rn.BasicStatus().LeadTransferee != 0 })
			return !<-busy
		})
		for range 4 {
			lead = w.leader(tm)
			w.kill(lead)
			w.leader(tm, lead)
			w.write(tm, 5, lead)
			w.start(lead)
			w.agree(tm, 5)
		}
		if stood.Load() {
			t.Fatalf("node %d, which is sick, stood for election", sick)
		}
	})
}

// If nobody else stands, a sick node does in the end.
func TestASickNodeStandsWhenNobodyElseDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, 3)
		tm := w.found(7, 1, 2, 3)
		w.write(tm, 5)
		sick := w.leader(tm)
		others := []record.NodeID{sick%3 + 1, (sick+1)%3 + 1}
		w.setSick(sick, true)
		w.mutedElections(others...)
		g := tm.groups[sick]
		g.Do(func() { // it hears of another leader, which says nothing more
			g.core.step(&raftpb.Message{
				Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(others[0])), To: new(uint64(sick)), Term: new(g.core.term + 1),
			})
		})
		w.eventually("it does not lead", func() bool { return !g.Status().Leading })
		w.eventually("it stands after all", func() bool { return g.Status().Leading })
	})
}

// mutedElections has nodes that never stand for election: their clocks stand still.
func (w *ward) mutedElections(nodes ...record.NodeID) {
	for _, n := range nodes {
		h := w.hosts[n]
		h.mu.Lock()
		for g := range h.ticking {
			delete(h.ticking, g)
		}
		h.mu.Unlock()
	}
}

// A leader whose loop is stuck in its disk can hand over nothing; the others elect
// once they are told, although they were quiet.
func TestALeaderThatIsStuckIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, 3)
		tm := w.found(7, 1, 2, 3)
		w.write(tm, 5)
		lead := w.leader(tm)
		w.eventually("the group is quiet", func() bool {
			for n := record.NodeID(1); n <= 3; n++ {
				if w.hosts[n].Ticking() != 0 {
					return false
				}
			}
			return true
		})
		stuck := make(chan struct{})
		defer close(stuck)
		tm.groups[lead].Do(func() { <-stuck })
		w.setSick(lead, true)
		tm.groups[lead].Yield()
		for n, h := range w.hosts {
			if n != lead {
				h.LeaderSick(lead)
			}
		}
		w.leader(tm, lead)
		w.write(tm, 5, lead)
	})
}

// What waits for a disk that hangs is bounded: beyond it proposals are refused,
// and entries of other leaders come again.
func TestWhatWaitsForAHungDiskIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, 3)
		led, followed := w.found(7, 1), w.found(8, 1, 2, 3)
		w.write(led, 5)
		w.write(followed, 5)
		if w.leader(followed) == 1 {
			followed.groups[1].Transfer(2)
			w.leader(followed, 1)
		}
		release := w.hang(1)
		w.setSick(1, true)
		refused := make(chan error, 1)
		tell := func(_ any, err error) {
			select {
			case refused <- err:
			default:
			}
		}
		w.eventually("the log is crowded", func() bool { // a few rounds are under way, not waiting
			led.groups[1].Propose(Proposal{Data: make([]byte, 40<<10), Done: func(any, error) {}})
			return w.hosts[1].writer.Crowded()
		})
		led.groups[1].Propose(Proposal{Data: []byte("one more"), Done: tell})
		select {
		case err := <-refused:
			if !errors.Is(err, ErrBusy) {
				t.Fatalf("a proposal beyond the limit: %v, want ErrBusy", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("a proposal beyond the limit is neither taken nor refused")
		}
		before := make(chan uint64, 2)
		last := func() { before <- followed.groups[1].core.log.last() }
		followed.groups[1].Do(last)
		w.write(followed, 20, 1) // the others go on
		followed.groups[1].Do(last)
		if a, b := <-before, <-before; a != b {
			t.Fatalf("the log of a node whose disk is crowded went on from entry %d to %d", a, b)
		}
		release()
		w.setSick(1, false)
		w.agree(followed, 25)
	})
}
