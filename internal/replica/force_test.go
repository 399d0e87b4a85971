package replica

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/wal"
)

// conf is the membership as one node's replica has it.
func (c *crew) conf(tm *team, n record.NodeID) *raftpb.ConfState {
	c.t.Helper()
	c.mu.Lock()
	g := tm.groups[n]
	c.mu.Unlock()
	out := make(chan *raftpb.ConfState, 1)
	if !g.Do(func() { out <- proto.CloneOf(g.core.log.conf) }) {
		c.t.Fatalf("node %d does not run the group", n)
	}
	return <-out
}

func (c *crew) soleVoter(tm *team, n record.NodeID, when string) {
	c.t.Helper()
	conf := c.conf(tm, n)
	if !slices.Equal(conf.GetVoters(), []uint64{uint64(n)}) || len(conf.GetLearners())+len(conf.GetVotersOutgoing())+len(conf.GetLearnersNext()) > 0 {
		c.t.Fatalf("%s: the members are %v, want the survivor only", when, conf)
	}
}

// strand has a leader propose changes of membership that cannot be committed: what it
// has in its log when it is told to go on alone. It returns its node.
func (c *crew) strand(tm *team) record.NodeID {
	c.t.Helper()
	c.write(tm, 20)
	c.agree(tm, 20)
	lead := c.leader(tm)
	c.isolate(lead, true)
	c.mu.Lock()
	g := tm.groups[lead]
	c.mu.Unlock()
	// One removes a voter and adds a stranger, jointly; it is proposed without raft's leave,
	// as only one may be under way, and so is the end of it.
	proposed := make(chan error, 1)
	g.Do(func() {
		gone := lead%3 + 1
		proposed <- g.core.change([]*raftpb.ConfChangeSingle{
			{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(gone))}, {Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(104))},
		})
	})
	if err := <-proposed; err != nil {
		c.t.Fatal(err)
	}
	c.eventually("the change is in its log", func() bool {
		is := make(chan bool, 1)
		g.Do(func() {
			s := g.core.log.at(g.core.log.last())
			is <- s != nil && s.kind != raftpb.EntryNormal && !s.pos.IsZero()
		})
		return <-is
	})
	for n := record.NodeID(1); n <= 3; n++ {
		if n != lead {
			c.kill(n)
		}
	}
	return lead
}

// Changes of membership in the survivor's log that were not committed do not come into
// force afterwards: not at once, not at a start from the log, not with a checkpoint between.
func TestAForcedSurvivorIsNotChangedByWhatIsLeftInItsLog(t *testing.T) {
	for _, between := range []string{"nothing", "crash", "checkpoint and crash"} {
		t.Run(between, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(t, 3, nil)
				tm := c.found(7, 1, 2, 3)
				survivor := c.strand(tm)
				c.mu.Lock()
				g := tm.groups[survivor]
				c.mu.Unlock()
				done := make(chan error, 1)
				g.ForceSole(func(err error) { done <- err })
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				switch between {
				case "crash":
					c.kill(survivor)
					c.start(survivor)
				case "checkpoint and crash":
					if err := c.hosts[survivor].Checkpoint(); err != nil {
						t.Fatal(err)
					}
					c.kill(survivor)
					c.start(survivor)
				}
				c.write(tm, 10)
				c.soleVoter(tm, survivor, "after ten entries")
				c.kill(survivor)
				c.start(survivor)
				c.write(tm, 10)
				c.soleVoter(tm, survivor, "after a crash")
				if count, _ := tm.machines[survivor].state(); count < 40 {
					t.Fatalf("%d entries, at least 40 were acknowledged", count)
				}
			})
		})
	}
}

// A start between the word and the checkpoint after it reads the log in its order: what
// was said before the word is void wherever the checkpoint ends, what comes after counts.
func TestAForcedMembershipAnnulsWhatWasSaidBeforeIt(t *testing.T) {
	sole, err := proto.Marshal(sole(3))
	if err != nil {
		t.Fatal(err)
	}
	change := func(index record.Index, term record.Term) wal.Record {
		return wal.Record{Kind: wal.KindEntry, Group: 7, Index: index, Term: term, EntryType: uint8(raftpb.EntryConfChangeV2), Data: []byte{1}, Position: wal.Position{File: 1, Offset: int64(index)}}
	}
	for _, forcedAt := range []record.Index{8, 10, 12} { // before, at and behind the checkpoint's end
		s := &section{replica: 3, applied: 10, term: 1, conf: &raftpb.ConfState{Voters: []uint64{3}}, hard: &raftpb.HardState{}}
		h := &Host{recovered: map[record.Group]*recovered{7: {section: s}}}
		for _, rec := range []wal.Record{
			change(11, 1), change(12, 1),
			{Kind: wal.KindMembers, Group: 7, Index: forcedAt, Data: sole},
			change(13, 2),
		} {
			if err := h.replay(rec); err != nil {
				t.Fatal(err)
			}
		}
		var kinds []raftpb.EntryType
		for _, s := range h.recovered[7].slots {
			kinds = append(kinds, s.kind)
		}
		if want := []raftpb.EntryType{raftpb.EntryNormal, raftpb.EntryNormal, raftpb.EntryConfChangeV2}; !slices.Equal(kinds, want) {
			t.Errorf("forced as of entry %d: entries 11 to 13 are %v, want %v", forcedAt, kinds, want)
		}
	}
}

// A folder that no node runs on is told to go on alone: the next start does, also if no
// checkpoint was ever made or one is made before anything else is written.
func TestAStoppedReplicaIsForcedToGoOnAlone(t *testing.T) {
	for name, checkpoint := range map[string]bool{"from the log": false, "from a checkpoint": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(t, 3, nil)
				tm := c.found(7, 1, 2, 3)
				survivor := c.strand(tm)
				if checkpoint {
					if err := c.hosts[survivor].Checkpoint(); err != nil {
						t.Fatal(err)
					}
				}
				c.stop(survivor)
				cfg := Config{FS: c.disks[survivor], Dir: "d", Logger: slog.New(slog.DiscardHandler), WAL: wal.Config{FileBytes: 1 << 20, FirstFileBytes: 64 << 10}}
				if err := ForceOffline(cfg, 99, []record.Group{7}); checkpoint && !errors.Is(err, ErrNoReplica) {
					t.Fatalf("as another replica: %v", err)
				}
				if err := ForceOffline(cfg, record.ReplicaID(survivor), []record.Group{7, 8}); !errors.Is(err, ErrNoReplica) {
					t.Fatalf("with a group that is not there: %v", err)
				}
				for range 2 { // once more does no harm
					if err := ForceOffline(cfg, record.ReplicaID(survivor), []record.Group{7}); err != nil {
						t.Fatal(err)
					}
				}
				c.start(survivor)
				c.write(tm, 10)
				c.soleVoter(tm, survivor, "after the start")
				if err := c.hosts[survivor].Checkpoint(); err != nil {
					t.Fatal(err)
				}
				c.kill(survivor)
				c.start(survivor)
				c.write(tm, 10)
				c.soleVoter(tm, survivor, "after a checkpoint and a crash")
			})
		})
	}
}

// A checkpoint that is made before the forced replica has written anything keeps the word.
func TestACheckpointKeepsAForcedMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, func(cfg *Config) { cfg.TickInterval = time.Hour })
		tm := c.found(7, 1, 2, 3)
		c.write(tm, 5)
		c.agree(tm, 5)
		for n := record.NodeID(1); n <= 3; n++ {
			c.stop(n)
		}
		cfg := Config{FS: c.disks[3], Dir: "d", Logger: slog.New(slog.DiscardHandler), WAL: wal.Config{FileBytes: 1 << 20, FirstFileBytes: 64 << 10}}
		if err := ForceOffline(cfg, 3, []record.Group{7}); err != nil {
			t.Fatal(err)
		}
		h, err := Open(Config{FS: c.disks[3], Dir: "d", Logger: slog.New(slog.DiscardHandler), WAL: wal.Config{FileBytes: 1 << 20, FirstFileBytes: 64 << 10}})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // nobody has added the group
			if err := h.Checkpoint(); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		c.start(3)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		c.leader(tm)
		if _, err := tm.groups[3].ProposeWait(ctx, []byte("x")); err != nil {
			t.Fatal(err)
		}
		c.soleVoter(tm, 3, "after two checkpoints")
	})
}
