package replica

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// A leader's machine must not be behind its followers': who has read from one of
// them may read from the leader next, and what he saw must be there. Raft tells
// followers of a commit as soon as a majority has the entries, which may be before
// the leader has them on its own disk, and so before it may apply them. So the
// leader tells of a commit only once it has applied it. That costs producers
// nothing, whom the leader answers when it has applied.

// tellsMore reports whether a message of this leader's says that more is committed
// than is applied here.
func (c *core) tellsMore(m *raftpb.Message) bool {
	return c.lead && (m.GetType() == raftpb.MsgApp || m.GetType() == raftpb.MsgHeartbeat) && m.GetCommit() > c.applied
}

// anyTellsMore reports whether messages had better leave after what is committed
// was applied.
func (c *core) anyTellsMore(ms []*raftpb.Message) bool {
	for _, m := range ms {
		if c.tellsMore(m) {
			return true
		}
	}
	return false
}

// hold takes out of a message what is not applied yet: the leader's own disk is the
// slowest. Raft believes that it was told, so it is owed.
func (c *core) hold(m *raftpb.Message) {
	if !c.tellsMore(m) {
		return
	}
	if c.owed == nil {
		c.owed = map[uint64]uint64{}
	}
	c.owed[m.GetTo()] = max(c.owed[m.GetTo()], m.GetCommit())
	m.Commit = new(c.applied)
}

// settle makes the messages that tell what is owed, is applied by now, and is about
// entries that the other has.
func (c *core) settle() (due []*raftpb.Message) {
	if len(c.owed) == 0 {
		return nil
	}
	if !c.lead {
		c.owed = nil
		return nil
	}
	c.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if commit, owed := c.owed[id]; !owed || commit > min(c.applied, pr.Match) {
			return
		}
		delete(c.owed, id)
		due = append(due, &raftpb.Message{
			Type: raftpb.MsgHeartbeat.Enum(), To: new(id), From: new(uint64(c.id)), Term: new(c.term), Commit: new(min(c.applied, pr.Match)),
		})
	})
	return due
}
