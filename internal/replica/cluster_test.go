package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
	"github.com/tube-mq/tube/internal/wal"
)

// crew is a few nodes in one process, each with a host on a disk in memory, and
// a network that can be cut.
type crew struct {
	t *testing.T
	// members are the nodes that run, by number; replica id = node id at first.
	mu    sync.Mutex
	hosts map[record.NodeID]*Host
	disks map[record.NodeID]*vfs.Mem
	cut   map[[2]record.NodeID]bool // from, to
	teams map[record.Group]*team
	cfg   func(*Config)
	// unknown: hosts are not told that they know the members.
	unknown bool
	// boots counts the starts of a node's machine.
	boots map[record.NodeID]int
	seen  func(Message) // told of every message; may be nil; set by watch
}

// team is one group over the crew.
type team struct {
	voters   []record.ReplicaID
	peers    map[record.ReplicaID]record.NodeID
	groups   map[record.NodeID]*Group
	machines map[record.NodeID]*tally
	relaxed  bool
}

func newCrew(t *testing.T, nodes int, cfg func(*Config)) *crew {
	c := &crew{
		t: t, hosts: map[record.NodeID]*Host{}, disks: map[record.NodeID]*vfs.Mem{},
		cut: map[[2]record.NodeID]bool{}, teams: map[record.Group]*team{}, cfg: cfg, boots: map[record.NodeID]int{},
	}
	for n := range nodes {
		c.disks[record.NodeID(n+1)] = vfs.NewMem()
		c.start(record.NodeID(n + 1))
	}
	t.Cleanup(func() {
		c.mu.Lock()
		hosts := slices.Collect(maps.Values(c.hosts))
		c.mu.Unlock()
		for _, h := range hosts {
			if err := h.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	})
	return c
}

// wire is the network as one node sees it.
type wire struct {
	c    *crew
	from record.NodeID
}

func (w wire) Send(to record.NodeID, parts [][]byte, release func()) bool {
	defer release()
	w.c.mu.Lock()
	h := w.c.hosts[to]
	// Who was killed says nothing any more, although its host still has to be closed.
	cut := w.c.cut[[2]record.NodeID{w.from, to}] || w.c.hosts[w.from] == nil
	seen := w.c.seen
	w.c.mu.Unlock()
	if h == nil || cut {
		return false
	}
	buf := record.NewBuffer(len(slices.Concat(parts...)))
	defer buf.Release()
	copy(buf.B, slices.Concat(parts...))
	if seen != nil {
		if m, err := decodeMessage(buf.B, nil); err == nil {
			seen(m)
		}
	}
	if err := h.Receive(buf.B, buf); err != nil {
		w.c.t.Errorf("receive: %v", err)
	}
	return true
}

func (c *crew) watch(seen func(Message)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = seen
}

func (c *crew) start(n record.NodeID) {
	c.t.Helper()
	cfg := Config{
		FS: c.disks[n], Dir: "d", Logger: slog.New(slog.DiscardHandler), Loops: 1, Transport: wire{c, n},
		WAL: wal.Config{FileBytes: 1 << 20, FirstFileBytes: 64 << 10}, TickInterval: 20 * time.Millisecond,
		Boot:   fmt.Sprint("boot ", c.boots[n]),
		Alive:  func(n record.NodeID) bool { c.mu.Lock(); defer c.mu.Unlock(); return c.hosts[n] != nil },
		OnFail: func(err error) { c.t.Errorf("node %d: storage failed: %v", n, err) },
	}
	if c.cfg != nil {
		c.cfg(&cfg)
	}
	h, err := Open(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.hosts[n] = h
	teams := maps.Clone(c.teams)
	c.mu.Unlock()
	for id, tm := range teams {
		c.join(id, tm, n)
	}
	if !c.unknown {
		h.MembersKnown()
	}
}

// found runs a group on the given nodes.
func (c *crew) found(id record.Group, nodes ...record.NodeID) *team {
	return c.foundAs(id, false, nodes...)
}

func (c *crew) foundAs(id record.Group, relaxed bool, nodes ...record.NodeID) *team {
	tm := &team{relaxed: relaxed, peers: map[record.ReplicaID]record.NodeID{}, groups: map[record.NodeID]*Group{}, machines: map[record.NodeID]*tally{}}
	for _, n := range nodes {
		tm.voters = append(tm.voters, record.ReplicaID(n))
		tm.peers[record.ReplicaID(n)] = n
	}
	c.mu.Lock()
	c.teams[id] = tm
	c.mu.Unlock()
	for _, n := range nodes {
		c.join(id, tm, n)
	}
	return tm
}

func (c *crew) join(id record.Group, tm *team, n record.NodeID) {
	c.t.Helper()
	c.mu.Lock()
	h := c.hosts[n]
	c.mu.Unlock()
	var replica record.ReplicaID
	for r, at := range tm.peers {
		if at == n {
			replica = r
		}
	}
	if replica == 0 {
		return
	}
	m := newTally()
	saved, err := h.Saved(id)
	if err == nil {
		err = m.Restore(saved)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	spec := Spec{Group: id, Replica: replica, Relaxed: tm.relaxed, Peers: tm.peers, Machine: m, Fetch: func(ctx context.Context, from record.NodeID) (Snapshot, error) {
		c.mu.Lock()
		h, cut := c.hosts[from], c.cut[[2]record.NodeID{n, from}]
		c.mu.Unlock()
		if h == nil || cut {
			return Snapshot{}, errors.New("no way to the leader")
		}
		return h.Group(id).Capture(ctx)
	}}
	if slices.Contains(tm.voters, replica) {
		spec.Voters = tm.voters
	}
	g, err := h.Add(spec)
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	tm.groups[n], tm.machines[n] = g, m
	c.mu.Unlock()
}

// kill ends a node as a power cut does: its disk keeps what was synced. The others
// notice.
func (c *crew) kill(n record.NodeID) {
	c.stop(n)
	c.mu.Lock()
	others := slices.Collect(maps.Values(c.hosts))
	c.mu.Unlock()
	for _, o := range others {
		o.PeerDown(n)
	}
}

// stop is kill, but that nobody notices.
func (c *crew) stop(n record.NodeID) { c.stopAs(n, vfs.CrashLose) }

// stopAs ends a node: with CrashKeep its process, else its machine.
func (c *crew) stopAs(n record.NodeID, policy vfs.CrashPolicy) {
	c.mu.Lock()
	h := c.hosts[n]
	delete(c.hosts, n)
	c.disks[n] = c.disks[n].CrashCopy(uint64(n), policy)
	if policy != vfs.CrashKeep {
		c.boots[n]++
	}
	for _, tm := range c.teams {
		delete(tm.groups, n)
		delete(tm.machines, n)
	}
	c.mu.Unlock()
	_ = h.Close()
}

func (c *crew) isolate(n record.NodeID, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other := range c.disks {
		if other != n {
			c.cut[[2]record.NodeID{n, other}], c.cut[[2]record.NodeID{other, n}] = on, on
		}
	}
}

// eventually polls until f is content.
func (c *crew) eventually(what string, f func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			c.t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// leader waits for a node that may serve, other than those given.
func (c *crew) leader(tm *team, not ...record.NodeID) record.NodeID {
	c.t.Helper()
	var found record.NodeID
	c.eventually("a leader", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for n, g := range tm.groups {
			if !slices.Contains(not, n) && c.hosts[n] != nil && g.Status().Leading {
				found = n
				return true
			}
		}
		return false
	})
	return found
}

// write proposes n entries to whoever leads, one after the other, until each is
// acknowledged; some may be in twice. It returns how many were acknowledged.
func (c *crew) write(tm *team, n int, not ...record.NodeID) {
	c.t.Helper()
	for i := range n {
		c.eventually("an acknowledged entry", func() bool {
			lead := c.leader(tm, not...)
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			c.mu.Lock()
			g := tm.groups[lead]
			c.mu.Unlock()
			if g == nil {
				return false
			}
			_, err := g.ProposeWait(ctx, fmt.Appendf(nil, "entry %d", i))
			return err == nil
		})
	}
}

// agree waits until all machines of a group are the same, with at least n entries.
func (c *crew) agree(tm *team, n uint64) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("all replicas agree on at least %d entries", n), func() bool {
		c.mu.Lock()
		machines := slices.Collect(maps.Values(tm.machines))
		c.mu.Unlock()
		count, digest := machines[0].state()
		for _, m := range machines[1:] {
			if n, d := m.state(); n != count || d != digest {
				return false
			}
		}
		return count >= n
	})
}

func TestReplicasAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, nil)
		tm := c.found(7, 1, 2, 3)
		c.write(tm, 200)
		c.agree(tm, 200)
	})
}

func TestAcknowledgedSurvivesTheLeadersDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, nil)
		tm := c.found(7, 1, 2, 3)
		for round := range 4 {
			c.write(tm, 30)
			lead := c.leader(tm)
			c.kill(lead)
			c.write(tm, 30)
			c.start(lead)
			c.agree(tm, uint64(60*(round+1)))
		}
	})
}

func TestAllLosePowerAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, nil)
		tm := c.found(7, 1, 2, 3)
		for round := range 3 {
			c.write(tm, 50)
			for n := record.NodeID(1); n <= 3; n++ {
				c.kill(n)
			}
			for n := record.NodeID(3); n >= 1; n-- {
				c.start(n)
			}
			c.agree(tm, uint64(50*(round+1)))
		}
	})
}

// A follower that is further behind than the leader's log reaches gets a copy.
func TestAFollowerFarBehindGetsACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, nil)
		tm := c.found(7, 1, 2, 3)
		c.write(tm, 10)
		lead := c.leader(tm)
		behind := lead%3 + 1
		c.kill(behind)
		c.write(tm, 50, behind)
		for range 3 { // the log keeps what was applied since the last checkpoint
			for n, h := range c.hosts {
				if err := h.Checkpoint(); err != nil {
					t.Fatalf("node %d: %v", n, err)
				}
			}
		}
		lead = c.leader(tm)
		if first := tm.groups[lead].core.log.base; first < 40 {
			t.Fatalf("the leader's log begins at %d: the test shows nothing", first)
		}
		c.start(behind)
		c.agree(tm, 60)
		// The copy outlives a crash, and so does what came behind it.
		c.write(tm, 10)
		c.kill(behind)
		c.start(behind)
		c.agree(tm, 70)
	})
}

func TestALeaderThatIsCutOffConfirmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, nil)
		tm := c.found(7, 1, 2, 3)
		c.write(tm, 10)
		lead := c.leader(tm)
		old := tm.groups[lead]
		if err := old.Barrier(t.Context()); err != nil {
			t.Fatalf("a leader with a majority: %v", err)
		}
		c.isolate(lead, true)
		done := make(chan error, 1)
		old.Propose(Proposal{Data: []byte("lost"), Done: func(_ any, err error) { done <- err }})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := old.Barrier(ctx); !errors.Is(err, ErrNotLeader) {
			t.Fatalf("a leader that is cut off: %v", err)
		}
		if err := <-done; !errors.Is(err, ErrUnknownOutcome) {
			t.Fatalf("a proposal to a leader that is cut off: %v", err)
		}
		c.write(tm, 10, lead)
		c.isolate(lead, false)
		c.agree(tm, 20)
		for _, m := range tm.machines {
			if n, _ := m.state(); n != 20 {
				t.Fatalf("%d entries, 20 were acknowledged: the one that was cut off came in", n)
			}
		}
	})
}

func TestMembershipMovesToOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 5, nil)
		tm := c.found(7, 1, 2, 3)
		c.write(tm, 20)
		// Replicas 104 and 105 come, 1 and 2 go, and with them perhaps the leader.
		target := c.widen(tm)
		stop := make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					c.write(tm, 1)
					time.Sleep(time.Millisecond) // else the bubble's clock stands still
				}
			}
		})
		c.drive(tm, target)
		close(stop)
		writer.Wait()
		c.dismiss(tm, 1, 2)
		c.write(tm, 20)
		c.agree(tm, 40)
		for n := record.NodeID(3); n <= 5; n++ {
			c.kill(n)
		}
		for n := record.NodeID(3); n <= 5; n++ {
			c.start(n)
		}
		c.write(tm, 1)
		c.agree(tm, 41)
	})
}

func TestLeadershipIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, nil)
		tm := c.found(7, 1, 2, 3)
		c.write(tm, 10)
		lead := c.leader(tm)
		tm.groups[lead].Transfer(0)
		next := c.leader(tm, lead)
		c.write(tm, 10)
		c.agree(tm, 20)
		if next == lead {
			t.Fatal("the same node leads")
		}
	})
}

// quiet reports whether a group's replica on a node has stopped its clock.
func (c *crew) quiet(tm *team, n record.NodeID) bool {
	c.mu.Lock()
	g := tm.groups[n]
	c.mu.Unlock()
	quiet := make(chan bool, 1)
	return g != nil && g.Do(func() { quiet <- g.quiet }) && <-quiet
}

func TestIdleGroupsGoQuietAndWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, nil)
		tm := c.found(7, 1, 2, 3)
		c.write(tm, 10)
		allQuiet := func() bool { return c.quiet(tm, 1) && c.quiet(tm, 2) && c.quiet(tm, 3) }
		c.eventually("all replicas are quiet", allQuiet)
		lead := c.leader(tm)
		term := tm.groups[lead].Status().Term
		c.write(tm, 10)
		c.agree(tm, 20)
		c.eventually("all replicas are quiet again", allQuiet)
		if s := tm.groups[lead].Status(); !s.Leading || s.Term != term {
			t.Fatalf("waking cost the leader its place: %+v, it was term %d", s, term)
		}
		// A dead leader is noticed although nobody's clock runs.
		c.kill(lead)
		c.write(tm, 10, lead)
		c.start(lead)
		c.agree(tm, 30)
		// And so is a dead follower, by the one who needs it.
		c.eventually("all replicas are quiet once more", allQuiet)
	})
}

// A process that did not run for a while may have been deposed: it serves nothing
// until a majority has said that it still leads.
func TestALeaderThatSleptIsInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, nil)
		tm := c.found(7, 1, 2, 3)
		c.write(tm, 10)
		lead := c.leader(tm)
		c.isolate(lead, true)
		c.mu.Lock()
		g, h := tm.groups[lead], c.hosts[lead]
		c.mu.Unlock()
		h.doubt()
		serves := make(chan bool, 1)
		g.Do(func() { serves <- g.core.status().Leading }) // long before its clock deposes it
		if <-serves {
			t.Fatal("a leader in doubt serves")
		}
		c.isolate(lead, false)
		c.write(tm, 10)
		c.agree(tm, 20)
		c.eventually("a clock that stands still is noticed", func() bool { h.lateAt.Store(1); return h.late() })
	})
}

// The doubt begins at once, also for a group whose turn is yet to come: a reader who
// asks in between must not be told an old end.
func TestALeaderThatSleptIsInDoubtBeforeItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, nil)
		tm := c.found(7, 1, 2, 3)
		c.write(tm, 10)
		lead := c.leader(tm)
		c.mu.Lock()
		g, h := tm.groups[lead], c.hosts[lead]
		c.mu.Unlock()
		busy := make(chan struct{})
		g.Do(func() { <-busy })
		h.doubt()
		if g.Status().Leading {
			t.Error("a leader in doubt serves until its turn comes")
		}
		close(busy)
		c.eventually("the leader is confirmed", func() bool { return c.leader(tm) != 0 })
		c.write(tm, 10)
		c.agree(tm, 20)
	})
}

// When two of three are lost for good the third goes on alone, if it is told to,
// also after a crash, and may grow again.
func TestASurvivorIsForcedToGoOnAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 4, nil)
		tm := c.found(7, 1, 2, 3)
		c.write(tm, 20)
		c.agree(tm, 20)
		c.kill(1)
		c.kill(2)
		c.mu.Lock()
		g := tm.groups[3]
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := g.ProposeWait(ctx, []byte("x")); err == nil {
			t.Fatal("one of three commits by itself")
		}
		done := make(chan error, 1)
		g.ForceSole(func(err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		c.write(tm, 10)
		c.kill(3)
		c.start(3)
		c.write(tm, 10)
		// It grows by a new replica.
		c.mu.Lock()
		tm.peers = map[record.ReplicaID]record.NodeID{3: 3, 104: 4}
		g = tm.groups[3]
		g.SetPeers(tm.peers)
		c.mu.Unlock()
		c.join(7, tm, 4)
		grown := func() bool {
			done, err := g.Drive(t.Context(), []record.ReplicaID{3, 104}, nil)
			return err == nil && done
		}
		c.eventually("it has grown", grown)
		c.agree(tm, 40)
		// The word of old does not split it when it starts again.
		if err := c.hosts[3].Checkpoint(); err != nil {
			t.Fatal(err)
		}
		c.kill(3)
		c.start(3)
		c.kill(4)
		c.mu.Lock()
		g = tm.groups[3]
		c.mu.Unlock()
		ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := g.ProposeWait(ctx, []byte("x")); err == nil {
			t.Fatal("one of two commits by itself")
		}
	})
}

// A leader that has to stop while its node lives on is missed at once, even if its
// followers' clocks stand still.
func TestALeaderThatStopsIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, nil)
		tm := c.found(7, 1, 2, 3)
		c.write(tm, 10)
		c.eventually("all replicas are quiet", func() bool { return c.quiet(tm, 1) && c.quiet(tm, 2) && c.quiet(tm, 3) })
		lead := c.leader(tm)
		tm.groups[lead].Fail(errors.New("its disk is bad"))
		c.write(tm, 10, lead)
	})
}

// Raft counts entries without their payload, so that one message of its may be any
// size. What goes over the network is bounded, and each part says what it follows.
func TestLargeAppendsAreSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const entry = 400 << 10
		var mu sync.Mutex
		parts, largest := 0, 0
		c := newCrew(t, 3, func(cfg *Config) { cfg.WAL.FileBytes = 16 << 20 })
		tm := c.found(7, 1, 2, 3)
		c.write(tm, 1)
		c.watch(func(m Message) {
			if n := len(m.raft.GetEntries()); n > 0 {
				mu.Lock()
				defer mu.Unlock()
				parts, largest = parts+1, max(largest, m.size)
				if m.raft.GetLogTerm() == 0 || m.raft.GetIndex()+1 != m.raft.GetEntries()[0].GetIndex() {
					t.Errorf("%d entries from %d on follow entry %d of term %d", n, m.raft.GetEntries()[0].GetIndex(), m.raft.GetIndex(), m.raft.GetLogTerm())
				}
			}
		})
		g := tm.groups[c.leader(tm)]
		done := make(chan error, 12)
		g.Do(func() { // all in one turn, so that raft makes one message of them
			props := make([]Proposal, cap(done))
			for i := range props {
				props[i] = Proposal{Data: make([]byte, entry), Done: func(_ any, err error) { done <- err }}
			}
			g.core.propose(props)
		})
		for range cap(done) {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		c.agree(tm, 13)
		mu.Lock()
		defer mu.Unlock()
		if parts < 6 || largest > maxWireBytes+entry {
			t.Fatalf("%d messages, the largest of %d bytes", parts, largest)
		}
	})
}

// A follower whose leader is gone without a word, while its node lives on, looks
// for itself in the end.
func TestAQuietFollowerLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, nil)
		tm := c.found(7, 1, 2, 3)
		c.write(tm, 1)
		c.eventually("all replicas are quiet", func() bool { return c.quiet(tm, 1) && c.quiet(tm, 2) && c.quiet(tm, 3) })
		lead := c.leader(tm)
		c.mu.Lock()
		g := tm.groups[lead]
		delete(tm.groups, lead)
		c.mu.Unlock()
		if err := c.hosts[lead].Remove(g); err != nil {
			t.Fatal(err)
		}
		for n, h := range c.hosts {
			if n != lead {
				for tick := 0; tick < lookEvery; tick += lookStep {
					h.lookAgain(tick)
				}
			}
		}
		c.write(tm, 1, lead)
	})
}

// Followers that all look at the same moment, as those of nodes that were started together
// do, find their leader well: it is not deposed.
func TestQuietFollowersThatLookTogetherKeepTheirLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 5, nil)
		tm := c.found(7, 1, 2, 3, 4, 5)
		c.write(tm, 1)
		allQuiet := func() bool {
			for n := range record.NodeID(5) {
				if !c.quiet(tm, n+1) {
					return false
				}
			}
			return true
		}
		c.eventually("all replicas are quiet", allQuiet)
		before := tm.groups[c.leader(tm)].Status()
		var votes atomic.Int64
		c.watch(func(m Message) {
			switch m.raft.GetType() {
			case raftpb.MsgPreVote, raftpb.MsgVote:
				votes.Add(1)
			}
		})
		for _, h := range c.hosts {
			for tick := 0; tick < lookEvery; tick += lookStep {
				h.lookAgain(tick)
			}
		}
		time.Sleep(3 * electionTicks * 20 * time.Millisecond)
		synctest.Wait()
		if n := votes.Load(); n > 0 {
			t.Errorf("%d questions for votes although the leader is well", n)
		}
		if after := tm.groups[c.leader(tm)].Status(); after.Term != before.Term || after.Leader != before.Leader {
			t.Errorf("leader %d of term %d, before %d of term %d", after.Leader, after.Term, before.Leader, before.Term)
		}
		c.eventually("all replicas are quiet again", allQuiet)
	})
}

// A replica that was back before anybody missed it finds its group quiet: it knocks.
// A learner would else wait for ever, as it stands for no election.
func TestAReplicaThatComesBackToAQuietGroupIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 4, nil)
		tm := c.found(7, 1, 2, 3)
		c.mu.Lock()
		tm.peers = map[record.ReplicaID]record.NodeID{1: 1, 2: 2, 3: 3, 104: 4}
		for _, g := range tm.groups {
			g.SetPeers(tm.peers)
		}
		c.mu.Unlock()
		c.join(7, tm, 4)
		lead := c.leader(tm)
		c.eventually("104 is a learner", func() bool {
			done, err := tm.groups[lead].Drive(t.Context(), []record.ReplicaID{1, 2, 3}, []record.ReplicaID{104})
			return err == nil && done
		})
		c.write(tm, 10)
		c.agree(tm, 10)
		for _, n := range []record.NodeID{4, lead%3 + 1} { // the learner, and a voter
			c.eventually("all replicas are quiet", func() bool {
				return c.quiet(tm, 1) && c.quiet(tm, 2) && c.quiet(tm, 3) && c.quiet(tm, 4)
			})
			term := tm.groups[lead].Status().Term
			c.stop(n)
			c.start(n)
			c.eventually("it knows who leads", func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return tm.groups[n].Status().Leader == record.ReplicaID(lead)
			})
			if s := tm.groups[lead].Status(); s.Term != term {
				t.Fatalf("node %d came back, and term %d became %d", n, term, s.Term)
			}
		}
	})
}

// A follower that stops is not taken for the leader.
func TestAFollowerThatStopsChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, nil)
		tm := c.found(7, 1, 2, 3)
		c.write(tm, 10)
		lead := c.leader(tm)
		failing, other := lead%3+1, (lead+1)%3+1
		c.eventually("everybody knows the leader", func() bool { return tm.groups[other].Status().Leader == record.ReplicaID(lead) })
		machine := tm.machines[other]
		for len(machine.led) > 0 {
			<-machine.led
		}
		tm.groups[failing].Fail(errors.New("its disk is bad"))
		c.write(tm, 10)
		for len(machine.led) > 0 {
			if s := <-machine.led; s.Leader == record.ReplicaID(failing) {
				t.Fatalf("the failing follower was taken for the leader: %+v", s)
			}
		}
	})
}

// Who heard nothing of the leader for a while does not depose it: the others hear of it.
func TestAFollowerThatHeardNothingDeposesNobody(t *testing.T) {
	for name, miss := range map[string]func(c *crew, lead, follower record.NodeID){
		"cut off": func(c *crew, _, follower record.NodeID) {
			c.isolate(follower, true)
			time.Sleep(5 * electionTicks * 20 * time.Millisecond)
			c.isolate(follower, false)
		},
		"deaf": func(c *crew, lead, follower record.NodeID) {
			hears := func(on bool) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.cut[[2]record.NodeID{lead, follower}] = !on
			}
			hears(false)
			time.Sleep(5 * electionTicks * 20 * time.Millisecond)
			hears(true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(t, 3, nil)
				tm := c.found(7, 1, 2, 3)
				c.write(tm, 10)
				c.agree(tm, 10)
				lead := c.leader(tm)
				term := tm.groups[lead].Status().Term
				stop, done := make(chan struct{}), make(chan struct{})
				go func() { // no clock stands still meanwhile
					defer close(done)
					for {
						select {
						case <-stop:
							return
						case <-time.After(10 * time.Millisecond):
							c.write(tm, 1)
						}
					}
				}()
				miss(c, lead, lead%3+1)
				time.Sleep(5 * electionTicks * 20 * time.Millisecond)
				close(stop)
				<-done
				c.agree(tm, 20)
				if s := tm.groups[lead].Status(); !s.Leading || s.Term != term {
					t.Errorf("it led in term %d; now: %+v", term, s)
				}
			})
		})
	}
}
