package replica

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/wal"
)

// ForceSole makes this replica its group's only voter, whatever the others hold:
// what they had and this one has not is lost. It is for a group whose majority is
// lost for good, on an operator's word, and must be called once for each such word:
// called again after the group has grown, it would split it.
//
// Changes of membership that the log holds and that are not applied are void: they were
// made for members that are given up. The new membership goes to the write-ahead log
// between what it annuls and what follows from it, so that a start reads the same; nothing
// that follows is answered for before it is durable. done is told then.
func (g *Group) ForceSole(done func(error)) {
	ok := g.Do(func() {
		if g.core == nil {
			done(g.failed)
			return
		}
		rec, err := soleRecord(g.ID(), g.core.id, g.core.applied, g.core.term)
		if err == nil {
			err = g.beSole()
		}
		if err != nil {
			g.fail(fmt.Errorf("group %d cannot go on alone: %w", g.ID(), err))
			done(g.failed)
			return
		}
		g.host.writer.Submit(wal.Batch{Records: []wal.Record{rec}, Sync: true, Done: func(_ []wal.Position, err error) {
			if err != nil {
				g.host.fail(err)
			}
			done(err)
		}})
	})
	if !ok {
		done(ErrStopped)
	}
}

// sole is the membership of one voter.
func sole(id record.ReplicaID) *raftpb.ConfState {
	return &raftpb.ConfState{Voters: []uint64{uint64(id)}}
}

// soleRecord forces that membership as of an index that is applied.
func soleRecord(group record.Group, id record.ReplicaID, applied, term uint64) (wal.Record, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(sole(id))
	return wal.Record{Kind: wal.KindMembers, Group: group, Index: record.Index(applied), Term: record.Term(term), Data: b}, err
}

// beSole begins consensus anew on the same log. What that makes it write follows the
// turn's calls, and so the record. From the group's loop.
func (g *Group) beSole() error {
	old := g.core
	for _, w := range old.waiting {
		w.done(nil, ErrUnknownOutcome)
	}
	old.dropTokens()
	old.reads.fail(ErrNotLeader)
	for i := old.applied + 1; i <= old.log.last(); i++ {
		old.log.loadedBytes -= old.log.at(i).annul()
	}
	old.log.conf = sole(old.id)
	core, err := newCore(start{id: old.id, applied: old.applied, log: old.log}, g.spec.Logger)
	if err != nil {
		return err
	}
	core.everyone = old.everyone
	g.core, g.dirty = core, true
	g.endLapse()
	g.spec.Logger.Warn("this replica is now its group's only voter, as an operator has decided", "group", g.ID(), "index", old.applied)
	return core.campaign()
}

// Fail stops the replica because its data cannot be trusted; others go on.
func (g *Group) Fail(err error) {
	g.Do(func() {
		if g.core != nil {
			g.fail(err)
		}
	})
}
