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
// The new membership is in the write-ahead log before it counts. Changes of
// membership that were under way are void; should the process die before the next
// checkpoint they come back, and another word is needed.
func (g *Group) ForceSole(done func(error)) {
	ok := g.Do(func() {
		if g.core == nil {
			done(g.failed)
			return
		}
		conf := &raftpb.ConfState{Voters: []uint64{uint64(g.core.id)}}
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(conf)
		if err != nil {
			done(fmt.Errorf("group %d: %w", g.ID(), err))
			return
		}
		rec := wal.Record{Kind: wal.KindMembers, Group: g.ID(), Index: record.Index(g.core.applied), Term: record.Term(g.core.term), Data: b}
		g.host.writer.Submit(wal.Batch{Records: []wal.Record{rec}, Sync: true, Done: func(_ []wal.Position, err error) {
			if err != nil {
				g.host.fail(err)
				return
			}
			if !g.Do(func() { done(g.beSole(conf)) }) {
				done(ErrStopped)
			}
		}})
	})
	if !ok {
		done(ErrStopped)
	}
}

// beSole begins consensus anew on the same log. From the group's loop.
func (g *Group) beSole(conf *raftpb.ConfState) error {
	if g.core == nil {
		return g.failed
	}
	old := g.core
	for _, w := range old.waiting {
		w.done(nil, ErrUnknownOutcome)
	}
	old.dropTokens()
	old.reads.fail(ErrNotLeader)
	for i := old.applied + 1; i <= old.log.last(); i++ {
		if s := old.log.at(i); s.kind != raftpb.EntryNormal {
			s.kind, s.payload, s.sizeBytes = raftpb.EntryNormal, payload{}, 0
		}
	}
	old.log.conf = conf
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
