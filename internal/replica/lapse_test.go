package replica

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

func TestTheFolderTellsWhetherTheMachineStopped(t *testing.T) {
	for _, c := range []struct {
		content, boot string
		want          bool
	}{
		{"", "b", true},
		{"boot=b\n", "b", false},
		{"boot=a\n", "b", true},
		{"clean=a\n", "b", false},
		{"clean=\n", "", false},
		{"boot=\n", "", true}, // of a platform that does not tell
		{"boo", "b", true},
	} {
		if got := lostPower(c.content, c.boot); got != c.want {
			t.Errorf("%q at %q: %v, want %v", c.content, c.boot, got, c.want)
		}
	}
}

func TestALapseAdmitsLaterLeadersAndVotesForTheFurthest(t *testing.T) {
	message := func(typ raftpb.MessageType, term, logTerm, index uint64) *raftpb.Message {
		return &raftpb.Message{Type: typ.Enum(), Term: new(term), LogTerm: new(logTerm), Index: new(index)}
	}
	l := &lapse{until: 5}
	for typ, from := range map[raftpb.MessageType]uint64{raftpb.MsgApp: 6, raftpb.MsgHeartbeat: 6, raftpb.MsgSnap: 6} {
		if l.admits(message(typ, from-1, 0, 0)) || !l.admits(message(typ, from, 0, 0)) {
			t.Errorf("%v: a leader's word counts from term %d on", typ, from)
		}
	}
	if l.admits(message(raftpb.MsgTimeoutNow, 9, 0, 0)) {
		t.Error("it stands as others want it to")
	}
	vote := func(term, index uint64) bool {
		a, b := l.admits(message(raftpb.MsgVote, 9, term, index)), l.admits(message(raftpb.MsgPreVote, 9, term, index))
		if a != b {
			t.Error("votes and votes before them differ")
		}
		return a
	}
	own, others := logEnd{4, 7}, []uint64{2, 3}
	round := l.ask()
	l.answered(2, round, logEnd{5, 9})
	if l.judge(own, others) || vote(5, 100) {
		t.Error("it votes although one has not answered")
	}
	if !slices.Equal(l.missing(others), []uint64{3}) {
		t.Errorf("missing %v", l.missing(others))
	}
	round = l.ask()
	l.answered(3, round-1, logEnd{5, 10})
	l.answered(2, round, logEnd{5, 9})
	if l.judge(own, others) || vote(5, 100) {
		t.Error("an answer to an earlier question counts")
	}
	l.answered(3, round, logEnd{5, 10})
	if l.judge(own, others) {
		t.Error("it stands with less than others have")
	}
	if vote(5, 9) || vote(4, 100) || !vote(5, 10) || !vote(6, 1) {
		t.Error("it votes for less than somebody has, or not for the furthest")
	}
	if !l.judge(logEnd{5, 10}, others) {
		t.Error("the furthest does not stand")
	}
	if l.over(logEnd{5, 100}) || !l.over(logEnd{6, 1}) {
		t.Error("it is over with an entry of a later term, not before")
	}
}

// newForgetful is a crew whose logs are not synced because a file of theirs is full.
func newForgetful(t *testing.T, nodes int) *crew {
	return newCrew(t, nodes, func(cfg *Config) { cfg.WAL.FileBytes, cfg.WAL.FirstFileBytes = 4<<20, 4<<20 })
}

// lapsed reports whether a node's replica has a lapse, and whom it waits for.
func (c *crew) lapsed(tm *team, n record.NodeID) ([]record.NodeID, bool) {
	c.mu.Lock()
	g := tm.groups[n]
	c.mu.Unlock()
	return g.Lapsed()
}

// A follower of a relaxed group whose machine stops catches up, however much its leader
// believes it has; and then it counts again.
func TestALapseIsMadeUpForByALaterLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, noticed := range []bool{true, false} {
			c := newForgetful(t, 3)
			tm := c.foundAs(7, true, 1, 2, 3)
			c.write(tm, 50)
			c.agree(tm, 50)
			lead := c.leader(tm)
			x := lead%3 + 1
			if noticed {
				c.kill(x)
				c.write(tm, 5)
			} else {
				c.stop(x)
			}
			c.start(x)
			c.write(tm, 5)
			c.agree(tm, 55)
			c.eventually("the lapse is over", func() bool { _, is := c.lapsed(tm, x); return !is })
			// It votes: without it there is no majority.
			c.kill(c.leader(tm, x))
			c.write(tm, 5)
		}
	})
}

// What was not synced and has rotted looks torn: it is cut from the log, and with it what
// was answered for, though the machine has gone on.
func TestALogThatIsCutMakesALapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newForgetful(t, 3)
		tm := c.foundAs(7, true, 1, 2, 3)
		c.write(tm, 50)
		c.agree(tm, 50)
		x := c.leader(tm)%3 + 1
		c.stopAs(x, vfs.CrashKeep)
		c.start(x)
		if _, is := c.lapsed(tm, x); is {
			t.Fatal("its process ended, and all is there, and it has a lapse")
		}
		c.write(tm, 5)
		c.agree(tm, 55)
		c.stopAs(x, vfs.CrashKeep)
		flipEntry(t, c.disks[x], "d", 7, 0)
		for n := range c.hosts {
			c.isolate(n, true) // nobody makes up for it at once
		}
		c.start(x)
		if _, is := c.lapsed(tm, x); !is {
			t.Fatal("its log was cut, and it takes itself for whole")
		}
	})
}

// A checkpoint, after which the log forgets, remembers a lapse.
func TestALapseOutlivesACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newForgetful(t, 3)
		tm := c.foundAs(7, true, 1, 2, 3)
		lead, x, _ := c.split(tm)
		c.kill(x)
		c.kill(lead)
		c.start(x)
		if err := c.hosts[x].Checkpoint(); err != nil {
			t.Fatal(err)
		}
		_, sections, err := readCheckpoint(c.disks[x], "d/checkpoint")
		if err != nil {
			t.Fatal(err)
		}
		if s := sections[7]; s.replica != record.ReplicaID(x) || !s.relaxed || s.until == 0 || s.until > s.hard.GetTerm() {
			t.Fatalf("section: %+v", s)
		}
	})
}

// Who takes part is not forgotten, though nothing else of the group is synced.
func TestARelaxedGroupDoesNotForgetItsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newForgetful(t, 2)
		tm := c.foundAs(7, true, 1)
		c.write(tm, 5)
		c.mu.Lock()
		tm.peers = map[record.ReplicaID]record.NodeID{1: 1, 104: 2}
		g := tm.groups[1]
		g.SetPeers(tm.peers)
		c.mu.Unlock()
		c.join(7, tm, 2)
		c.eventually("it has a learner", func() bool {
			done, err := g.Drive(t.Context(), []record.ReplicaID{1}, []record.ReplicaID{104})
			return err == nil && done
		})
		c.kill(1)
		c.start(1)
		c.leader(tm)
		c.mu.Lock()
		g = tm.groups[1]
		c.mu.Unlock()
		if m, err := g.Membership(t.Context()); err != nil || len(m.Members) != 2 {
			t.Fatalf("%+v, %v", m, err)
		}
	})
}

// Whether entries are synced before they are answered for changes while a group runs.
func TestDurabilityChangesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newForgetful(t, 1)
		tm := c.foundAs(7, false, 1)
		c.write(tm, 5)
		syncsOfFive := func() uint64 {
			c.write(tm, 1) // what a change itself writes down is synced
			before := c.hosts[1].wal.Syncs()
			c.write(tm, 5)
			return c.hosts[1].wal.Syncs() - before
		}
		for _, relaxed := range []bool{true, false, true} {
			tm.groups[1].SetRelaxed(relaxed)
			if n := syncsOfFive(); (n == 0) != relaxed {
				t.Errorf("relaxed: %v, and five entries were synced %d times", relaxed, n)
			}
		}
	})
}

// The end of the process alone loses nothing.
func TestAProcessThatEndsLeavesNoLapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newForgetful(t, 3)
		tm := c.foundAs(7, true, 1, 2, 3)
		c.write(tm, 50)
		c.agree(tm, 50)
		for n := range record.NodeID(3) {
			c.stopAs(n+1, vfs.CrashKeep)
		}
		for n := range record.NodeID(3) {
			c.start(n + 1)
			if _, is := c.lapsed(tm, n+1); is {
				t.Errorf("node %d has a lapse", n+1)
			}
		}
		c.agree(tm, 50)
	})
}

// split writes what two of three have, the leader and x, to a relaxed group, and has y lack it.
func (c *crew) split(tm *team) (lead, x, y record.NodeID) {
	c.write(tm, 10)
	c.agree(tm, 10)
	lead = c.leader(tm)
	x, y = lead%3+1, (lead+1)%3+1
	c.isolate(y, true)
	c.write(tm, 20, y)
	return lead, x, y
}

// Two replicas that lack what was acknowledged, one of them as it has forgotten it, do
// not go on without the third, which has it, and say that they wait for it; also if
// they are started again.
func TestWhoHasForgottenDoesNotVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newForgetful(t, 3)
		tm := c.foundAs(7, true, 1, 2, 3)
		lead, x, y := c.split(tm)
		c.kill(x)
		c.stopAs(lead, vfs.CrashKeep)
		c.isolate(y, false)
		for range 2 {
			c.start(x)
			c.eventually("it says whom it waits for", func() bool {
				whom, is := c.lapsed(tm, x)
				return is && slices.Equal(whom, []record.NodeID{lead})
			})
			c.stopAs(x, vfs.CrashKeep)
		}
		c.start(x)
		rounds := c.roundsOf(tm, x)
		c.eventually("it has asked again and again", func() bool { return c.roundsOf(tm, x) > rounds+4 })
		for _, n := range []record.NodeID{x, y} {
			c.mu.Lock()
			s := tm.groups[n].Status()
			c.mu.Unlock()
			if s.Leader != 0 {
				t.Fatalf("node %d knows a leader: %+v", n, s)
			}
		}
		c.start(lead)
		c.agree(tm, 30)
	})
}

func (c *crew) roundsOf(tm *team, n record.NodeID) (rounds uint64) {
	c.mu.Lock()
	g := tm.groups[n]
	c.mu.Unlock()
	done := make(chan struct{})
	g.Do(func() {
		if g.lapse != nil {
			rounds = g.lapse.round
		}
		close(done)
	})
	<-done
	return rounds
}

// If the power of all fails they go on with the furthest log that is left, whoever
// starts first.
func TestAllForgetAndGoOnWithTheFurthest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newForgetful(t, 3)
		tm := c.foundAs(7, true, 1, 2, 3)
		lead, x, y := c.split(tm)
		c.mu.Lock()
		h, m := c.hosts[x], tm.machines[x]
		c.mu.Unlock()
		// The checkpoint holds what is applied, and a follower hears late of the last commit.
		c.eventually("the follower has applied all", func() bool { n, _ := m.state(); return n >= 30 })
		if err := h.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		for _, n := range []record.NodeID{lead, x, y} {
			c.kill(n)
		}
		c.isolate(y, false)
		c.start(lead)
		c.start(y)
		rounds := c.roundsOf(tm, y)
		c.eventually("they ask", func() bool { return c.roundsOf(tm, y) > rounds+3 })
		c.start(x)
		c.agree(tm, 30)
		c.write(tm, 10)
		for _, n := range []record.NodeID{lead, x, y} {
			c.eventually("the lapse is over", func() bool { _, is := c.lapsed(tm, n); return !is })
		}
	})
}

// The only replica of a group has nobody to ask.
func TestASoleVoterGoesOnAfterALapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newForgetful(t, 1)
		tm := c.foundAs(7, true, 1)
		c.write(tm, 10)
		c.kill(1)
		c.start(1)
		c.write(tm, 10)
		c.eventually("the lapse is over", func() bool { _, is := c.lapsed(tm, 1); return !is })
	})
}

// Who the others are may be told from old metadata: nothing is decided before it is as
// new as the start.
func TestALapseLastsUntilTheMembersAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newForgetful(t, 1)
		tm := c.foundAs(7, true, 1)
		c.write(tm, 10)
		c.kill(1)
		c.unknown = true
		c.start(1)
		c.eventually("it asks", func() bool { return c.roundsOf(tm, 1) > 3 })
		c.mu.Lock()
		h, g := c.hosts[1], tm.groups[1]
		c.mu.Unlock()
		if s := g.Status(); s.Leader != 0 {
			t.Fatalf("it leads: %+v", s)
		}
		h.MembersKnown()
		c.write(tm, 10)
	})
}

// A leader's entries that contradict what is committed here are not taken, and are no
// reason to panic.
func TestALeaderThatContradictsWhatIsCommittedIsNoticed(t *testing.T) {
	c := &core{term: 4}
	c.log = entryLog{base: 3, baseTerm: 2, slots: []slot{{term: 3}, {term: 3}, {term: 3}}, hard: &raftpb.HardState{Commit: new(uint64(5))}}
	appends := func(term uint64, terms ...uint64) *raftpb.Message {
		m := &raftpb.Message{Type: raftpb.MsgApp.Enum(), Term: new(term), Index: new(uint64(3))}
		for i, t := range terms {
			m.Entries = append(m.Entries, &raftpb.Entry{Index: new(uint64(4 + i)), Term: new(t)})
		}
		return m
	}
	for _, x := range []struct {
		m    *raftpb.Message
		want bool
	}{
		{appends(4, 3, 3, 3, 4), false},
		{appends(4, 3, 3, 4), false}, // behind what is committed
		{appends(4, 3, 4), true},
		{appends(3, 3, 4), false}, // of a leader of the past
	} {
		if got := c.overrules(x.m); got != x.want {
			t.Errorf("%v: %v", x.m, got)
		}
	}
}

// A replica whose disk is put back to what it was is found out by the first heartbeat, if
// not earlier, and stops instead of a panic.
func TestAnOlderDiskUnderARunningGroupIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, quiet := range []bool{false, true} {
			c := newForgetful(t, 3)
			tm := c.found(7, 1, 2, 3)
			c.write(tm, 10)
			c.agree(tm, 10)
			lead := c.leader(tm)
			x := lead%3 + 1
			c.mu.Lock()
			image := c.disks[x].CrashCopy(1, vfs.CrashKeep)
			c.mu.Unlock()
			c.write(tm, 20)
			c.agree(tm, 30)
			if quiet {
				c.eventually("it is quiet", func() bool { return c.quiet(tm, lead) })
			}
			c.stopAs(x, vfs.CrashKeep) // nobody notices: the leader goes on counting
			c.mu.Lock()
			c.disks[x] = image
			c.mu.Unlock()
			c.start(x)
			c.eventually("it is noticed", func() bool {
				c.mu.Lock()
				g := tm.groups[x]
				c.mu.Unlock()
				return errors.Is(g.Err(), ErrForgotten)
			})
			c.write(tm, 5)
		}
	})
}
