package replica

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/wal"
)

// A node whose disk is slow is sick: its replicas follow and vote as before, if
// late, but lead only what nobody else can. A group can do without a replica when
// most of its voters are others, on nodes that are heard of and well: they elect
// and commit by themselves, and what was committed is with one of them. Where that
// is not so, as the slow disk is needed for every majority, nothing is gained by
// another leader, and there would be none while the slow vote is awaited.

// holdBackTicks is how long a sick replica that hears of no leader leaves it to
// others to stand for election. If nobody has won by then it stands itself: the
// others may be less well than they seem.
const holdBackTicks = 5 * electionTicks

// SetSick says that this node's disk is slow, or is well again.
func (h *Host) SetSick(on bool) {
	h.sick.Store(on)
	h.writer.Stall(on)
}

// Probe writes and syncs an empty block, so that there is a flush to be timed on
// a node that has nothing to write. It returns at once; done is told.
func (h *Host) Probe(done func(error)) {
	h.writer.Submit(wal.Batch{Sync: true, Mark: true, Done: func(_ []wal.Position, err error) { done(err) }})
}

// Flushes tells how the disk keeps up with the write-ahead log; see wal.Log.Flushes.
func (h *Host) Flushes() wal.Flushes { return h.wal.Flushes() }

// Yield has another replica lead, if this one does and the group can do without
// it. It only asks, as Transfer does.
func (g *Group) Yield() {
	g.Do(func() {
		if g.core == nil || !g.core.lead || !g.core.majority(g.keepsUp()) {
			return
		}
		if to := g.core.successor(g.well); to != 0 {
			g.core.rn.TransferLeader(to)
		}
	})
}

// LeaderSick says that another node is sick and still leads groups after it has
// had the time to hand them over: perhaps it cannot, as its disk holds up more
// than its log. Those that can do without it elect another leader.
func (h *Host) LeaderSick(node record.NodeID) {
	for _, g := range h.Groups() {
		at, ok := (*g.peers.Load())[g.Status().Leader]
		if !ok || at != node {
			continue
		}
		g.Do(func() {
			if g.core != nil && g.core.majority(func(id uint64) bool { return id == uint64(g.core.id) || g.well(id) }) {
				g.leaderLost(node)
			}
		})
	}
}

// well reports whether another replica's node is heard of and not sick.
func (g *Group) well(id uint64) bool {
	node, ok := (*g.peers.Load())[record.ReplicaID(id)]
	return ok && id != uint64(g.spec.Replica) && g.host.cfg.Alive(node) && !g.host.cfg.Sick(node)
}

// keepsUp returns whether another replica is well and, as its leader knows, takes
// entries as they come.
func (g *Group) keepsUp() func(uint64) bool {
	current := map[uint64]bool{}
	g.core.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		current[id] = pr.RecentActive && pr.State == tracker.StateReplicate
	})
	return func(id uint64) bool { return current[id] && g.well(id) }
}

// majority reports whether those who are allowed are most of the voters, in both
// halves of a joint configuration.
func (c *core) majority(allowed func(uint64) bool) bool {
	most := func(voters []uint64) bool {
		n := 0
		for _, id := range voters {
			if allowed(id) {
				n++
			}
		}
		return 2*n > len(voters)
	}
	outgoing := c.log.conf.GetVotersOutgoing()
	return most(c.log.conf.GetVoters()) && (len(outgoing) == 0 || most(outgoing))
}

// leavesIt reports whether this replica, as its node is sick, leaves it to others
// to lead.
func (g *Group) leavesIt() bool {
	return g.host.sick.Load() && !g.core.lead && g.core.majority(g.well)
}

// advance moves raft's clock. That of a replica that leaves it to others stands
// still, so that it stands for no election; a leader that is silent it forgets as
// ever, and votes for another.
func (g *Group) advance() {
	if !g.leavesIt() {
		g.heldBack = 0
	} else if g.heldBack++; g.heldBack <= holdBackTicks {
		if g.heldBack == electionTicks {
			_ = g.core.rn.ForgetLeader() // it fails only where leases are used
		}
		return
	}
	g.core.rn.Tick()
}

// declines reports whether a message is one that a sick replica does not follow:
// that it shall lead; and, while as much waits for its disk as may, entries to
// write, which come again.
func (g *Group) declines(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgTimeoutNow:
		return g.leavesIt()
	case raftpb.MsgApp:
		g.heldBack = 0 // there is a leader
		return len(m.GetEntries()) > 0 && g.host.writer.Crowded()
	case raftpb.MsgHeartbeat:
		g.heldBack = 0
	}
	return false
}
