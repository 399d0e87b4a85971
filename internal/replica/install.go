package replica

import (
	"context"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/record"
)

// A follower that needs entries which the leader's log has no more gets a copy
// of the machine instead. Raft's own snapshot message is only the word that it is
// needed: the follower then fetches the copy (Spec.Fetch), at its own pace, and
// switches to it at one moment:
//
//	1. fetch      what the machine keeps outside of its state (a partition's batches)
//	              is stored behind what is there; nobody sees it yet, and it does no
//	              harm if the copy is not taken in the end
//	2. step       raft is given the snapshot; it may refuse, when the log has caught up
//	3. restore    the machine takes the state
//	4. checkpoint makes the data, then the section durable; only then raft's answer
//	              goes out, and entries are taken again
//
// A crash before the end of 4 leaves the replica where it was: the old section is
// in force, and a start cuts what was stored behind it.

// Snapshot is a copy of a group as of one entry.
type Snapshot struct {
	Index record.Index
	Term  record.Term // of the entry at Index
	// Members is the membership at Index: a ConfState (protobuf).
	Members []byte
	// State is what Machine.Save returned at Index.
	State []byte
}

// Capture copies the group's state as it is now.
// Errors: ErrNotLeader, ErrStopped, the context's.
func (g *Group) Capture(ctx context.Context) (Snapshot, error) {
	type answer struct {
		snap Snapshot
		err  error
	}
	done := make(chan answer, 1)
	ok := g.Do(func() {
		snap, err := g.capture()
		done <- answer{snap, err}
	})
	if !ok {
		return Snapshot{}, ErrStopped
	}
	select {
	case a := <-done:
		return a.snap, a.err
	case <-ctx.Done():
		return Snapshot{}, ctx.Err()
	}
}

func (g *Group) capture() (Snapshot, error) {
	if g.core == nil || !g.core.lead {
		return Snapshot{}, ErrNotLeader
	}
	c := g.core
	term, err := c.log.Term(c.applied)
	if err != nil {
		return Snapshot{}, fmt.Errorf("group %d: term of applied index %d: %w", g.ID(), c.applied, err)
	}
	state, err := g.spec.Machine.Save()
	if err != nil {
		g.fail(fmt.Errorf("state of entry %d: %w", c.applied, err))
		return Snapshot{}, fmt.Errorf("group %d: %w: %w", g.ID(), ErrDamaged, err)
	}
	members, err := proto.MarshalOptions{Deterministic: true}.Marshal(c.log.conf)
	if err != nil {
		return Snapshot{}, fmt.Errorf("group %d: %w", g.ID(), err)
	}
	return Snapshot{Index: record.Index(c.applied), Term: record.Term(term), Members: members, State: state}, nil
}

// fetch starts to bring a copy from the leader's node. From the group's loop.
func (g *Group) fetch(from uint64) {
	node, known := (*g.peers.Load())[record.ReplicaID(from)]
	if !known || g.spec.Fetch == nil || g.installing || g.unsettled {
		return
	}
	g.installing = true
	if s := g.host.single; s != nil {
		s.fetches = append(s.fetches, &Fetch{group: g, From: node})
		return
	}
	g.host.background.Go(func() {
		snap, err := g.spec.Fetch(g.host.ctx, node)
		g.Do(func() { g.install(snap, err) })
	})
}

// install gives raft the fetched copy. From the group's loop.
func (g *Group) install(snap Snapshot, err error) {
	g.installing = false
	if err != nil {
		if g.host.ctx.Err() == nil {
			g.spec.Logger.Warn("copy of a replica not fetched; will be tried again", "group", g.spec.Group, "err", err)
		}
		return
	}
	g.staged = &snap
	if g.core != nil && g.core.leader != 0 {
		conf := &raftpb.ConfState{}
		if err := proto.Unmarshal(snap.Members, conf); err == nil {
			// The copy is committed state, whoever led when it was made: it is taken
			// as from who leads now, who wants to hear of it.
			g.core.step(&raftpb.Message{
				Type: raftpb.MsgSnap.Enum(), To: new(uint64(g.core.id)), From: new(g.core.leader), Term: new(g.core.term),
				Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
					Index: new(uint64(snap.Index)), Term: new(uint64(snap.Term)), ConfState: conf,
				}},
			})
			g.work()
		}
	}
	g.staged = nil // raft may not have wanted it
}

// switchOver makes the machine what the staged copy says; raft has agreed.
func (g *Group) switchOver(e effects) {
	snap := g.staged
	g.staged = nil
	if snap == nil {
		g.fail(fmt.Errorf("%w: a snapshot without its state", errLog))
		return
	}
	if err := g.spec.Machine.Restore(snap.State); err != nil {
		g.fail(fmt.Errorf("copy of entry %d: %w", snap.Index, err))
		return
	}
	g.spec.Logger.Info("replica brought up to date by a copy", "group", g.spec.Group, "index", snap.Index)
	g.host.single.observe(g, Entry{Index: snap.Index, Term: snap.Term}, nil)
	g.dirty, g.unsettled = true, true
	g.host.wantCheckpoint(func() { g.deliver(g.newWriting(stored{first: 1, after: e.after, settled: true})) })
}

// afterSends tells raft what became of messages that it sent.
func (c *core) afterSends() {
	for _, id := range c.told {
		c.rn.ReportSnapshot(id, raft.SnapshotFinish)
	}
	for _, id := range c.lost {
		c.rn.ReportUnreachable(id)
	}
	c.told, c.lost = c.told[:0], c.lost[:0]
}
