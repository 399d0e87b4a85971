package replica

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/record"
)

// applyConfChange makes a committed membership change effective.
func (c *core) applyConfChange(en *raftpb.Entry) {
	data := c.log.at(en.GetIndex()).payload.data
	var cc raftpb.ConfChangeI
	if en.GetType() == raftpb.EntryConfChange {
		var v1 raftpb.ConfChange
		if err := proto.Unmarshal(data, &v1); err != nil {
			panic("replica: committed membership change does not decode: " + err.Error())
		}
		cc = &v1
	} else {
		var v2 raftpb.ConfChangeV2
		if err := proto.Unmarshal(data, &v2); err != nil {
			panic("replica: committed membership change does not decode: " + err.Error())
		}
		cc = &v2
	}
	c.log.conf = c.rn.ApplyConfChange(cc)
	c.confAt, c.confAsked = c.log.last(), false
}

// confKept reports whether a majority of the present members knows durably that
// the membership is in force. Before, they could all restart with the one before,
// as commit indexes are written along with later entries, and would need those
// that were to go. It is so once an entry is committed that was proposed after the
// change was: who writes it writes with it how far the log was committed.
func (c *core) confKept() bool {
	if c.applied > c.confAt {
		return true
	}
	if !c.confAsked {
		c.confAsked = c.rn.Propose(nil) == nil
	}
	return false
}

// Member is one replica of a group as its leader sees it.
type Member struct {
	Replica record.ReplicaID
	Voter   bool
	// Match is the last entry that it is known to have durably.
	Match record.Index
	// Current: it takes entries as they come, and was heard from lately.
	Current bool
}

// Membership is a group's replicas as its leader sees them.
type Membership struct {
	Members  []Member // by replica id
	Last     record.Index
	Changing bool // a change is under way
}

// Membership tells who takes part. Only the leader knows: ErrNotLeader.
func (g *Group) Membership(ctx context.Context) (Membership, error) {
	type answer struct {
		m   Membership
		err error
	}
	done := make(chan answer, 1)
	g.MembershipThen(func(m Membership, err error) { done <- answer{m, err} })
	select {
	case a := <-done:
		return a.m, a.err
	case <-ctx.Done():
		return Membership{}, ctx.Err()
	}
}

// MembershipThen is Membership for callers that do not wait: done is called once,
// from the group's loop or from this call, and must not block. Errors: ErrNotLeader,
// ErrStopped.
func (g *Group) MembershipThen(done func(Membership, error)) {
	ok := g.Do(func() {
		if g.core == nil || !g.core.lead {
			done(Membership{}, ErrNotLeader)
			return
		}
		done(g.core.membership(), nil)
	})
	if !ok {
		done(Membership{}, ErrStopped)
	}
}

func (c *core) membership() Membership {
	m := Membership{Last: record.Index(c.log.last()), Changing: len(c.log.conf.GetVotersOutgoing()) > 0}
	c.rn.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		m.Members = append(m.Members, Member{
			Replica: record.ReplicaID(id), Voter: typ == raft.ProgressTypePeer, Match: record.Index(pr.Match),
			Current: id == uint64(c.id) || pr.State == tracker.StateReplicate && pr.RecentActive,
		})
	})
	slices.SortFunc(m.Members, func(a, b Member) int { return int(int64(a.Replica) - int64(b.Replica)) })
	return m
}

// nearlyThere is how many entries a learner may be behind when it is made a voter.
const nearlyThere = 1000

// Drive takes one step towards a membership of exactly the target replicas as
// voters, and others as learners, if any are wanted: what is missing is added as a
// learner, caught-up learners become voters, and what is too many goes, both in one
// joint change. It may be called again and again, by whoever leads: it looks only
// at what is. done: there is nothing left to do, and nobody who went is needed any
// more. Errors: ErrNotLeader, ErrStopped.
func (g *Group) Drive(ctx context.Context, voters, learners []record.ReplicaID) (done bool, err error) {
	type answer struct {
		done bool
		err  error
	}
	ch := make(chan answer, 1)
	ok := g.Do(func() {
		if g.core == nil || !g.core.lead || !g.core.serving {
			ch <- answer{err: ErrNotLeader}
			return
		}
		done, err := g.core.drive(voters, learners)
		ch <- answer{done, err}
	})
	if !ok {
		return false, ErrStopped
	}
	select {
	case a := <-ch:
		return a.done, a.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (c *core) drive(voters, learners []record.ReplicaID) (done bool, err error) {
	conf := c.log.conf
	if len(voters) == 0 {
		return false, fmt.Errorf("replica: a group without voters")
	}
	if len(conf.GetVotersOutgoing()) > 0 {
		if !conf.GetAutoLeave() {
			return false, c.change(nil)
		}
		return false, nil // raft leaves by itself
	}
	wantVoter := func(id uint64) bool { return slices.Contains(voters, record.ReplicaID(id)) }
	wantLearner := func(id uint64) bool { return slices.Contains(learners, record.ReplicaID(id)) }
	var add, swap []*raftpb.ConfChangeSingle
	one := func(t raftpb.ConfChangeType, id uint64) *raftpb.ConfChangeSingle {
		return &raftpb.ConfChangeSingle{Type: t.Enum(), NodeId: new(id)}
	}
	for _, id := range slices.Concat(voters, learners) {
		if !slices.Contains(conf.GetVoters(), uint64(id)) && !slices.Contains(conf.GetLearners(), uint64(id)) {
			add = append(add, one(raftpb.ConfChangeAddLearnerNode, uint64(id)))
		}
	}
	if len(add) > 0 {
		return false, c.change(add[:1])
	}
	ready := true
	for _, id := range conf.GetLearners() {
		switch {
		case wantVoter(id):
			ready = ready && c.caughtUp(id)
			swap = append(swap, one(raftpb.ConfChangeAddNode, id))
		case !wantLearner(id):
			swap = append(swap, one(raftpb.ConfChangeRemoveNode, id))
		}
	}
	for _, id := range conf.GetVoters() {
		switch {
		case wantVoter(id):
		case wantLearner(id):
			swap = append(swap, one(raftpb.ConfChangeAddLearnerNode, id))
		default:
			swap = append(swap, one(raftpb.ConfChangeRemoveNode, id))
		}
	}
	switch {
	case len(swap) == 0:
		return c.confKept(), nil
	case !ready:
		return false, nil
	case !c.majorityOf(voters):
		// The change could be begun, but not ended: whoever is gone must be replaced
		// first.
		return false, fmt.Errorf("%w: of the %d replicas that shall vote, too few are heard of", ErrNoMajority, len(voters))
	}
	if !wantVoter(uint64(c.id)) {
		// Whoever leads next goes on; a leader that removes itself leaves a gap.
		if to := c.successor(wantVoter); to != 0 {
			c.rn.TransferLeader(to)
			return false, nil
		}
	}
	return false, c.change(swap)
}

// caughtUp reports whether a replica is so close that it may vote.
func (c *core) caughtUp(id uint64) bool {
	ok := false
	c.rn.WithProgress(func(other uint64, _ raft.ProgressType, pr tracker.Progress) {
		if other == id {
			ok = pr.State == tracker.StateReplicate && pr.RecentActive && pr.Match+nearlyThere >= c.log.last()
		}
	})
	return ok
}

// majorityOf reports whether most of the given replicas keep up and were heard of.
func (c *core) majorityOf(voters []record.ReplicaID) bool {
	n := 0
	c.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if slices.Contains(voters, record.ReplicaID(id)) && (id == uint64(c.id) || pr.State == tracker.StateReplicate && pr.RecentActive) {
			n++
		}
	})
	return 2*n > len(voters)
}

// successor is the best other voter to lead, of those that are allowed: the one
// with the most, among those heard from lately; 0 if there is none.
func (c *core) successor(allowed func(uint64) bool) uint64 {
	var best, match uint64
	c.rn.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		if id == uint64(c.id) || typ != raft.ProgressTypePeer || !pr.RecentActive || pr.State != tracker.StateReplicate || !allowed(id) {
			return
		}
		if best == 0 || pr.Match > match {
			best, match = id, pr.Match
		}
	})
	return best
}

// change proposes a membership change; nil leaves a joint configuration.
func (c *core) change(changes []*raftpb.ConfChangeSingle) error {
	cc := &raftpb.ConfChangeV2{Changes: changes}
	if err := c.rn.ProposeConfChange(cc); err != nil {
		return fmt.Errorf("replica: membership change: %w", err)
	}
	return nil
}

// Transfer asks that the given replica lead instead of this one; 0: the best
// other. It only asks: look at Status for what became of it.
func (g *Group) Transfer(to record.ReplicaID) {
	g.Do(func() {
		if g.core == nil || !g.core.lead {
			return
		}
		id := uint64(to)
		if id == 0 {
			id = g.core.successor(g.well)
		}
		if id == 0 {
			id = g.core.successor(func(uint64) bool { return true })
		}
		if id != 0 && id != uint64(g.core.id) {
			g.core.rn.TransferLeader(id)
		}
	})
}
