package replica

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// A replica's own disk cannot tell it that it is an image of what it was: one that was taken
// while the newest run of its node went on, as of a virtual machine that is set back. It has
// forgotten entries and votes that it answered for. Whoever leads notices by its first
// heartbeat (core.forgot). If nobody does, as it was this replica that led, it could in the
// meantime elect somebody who lacks the same entries, although a third replica has them.
//
// So a replica that starts on a log is wary: until it hears of a leader it votes for nobody and
// does not stand, for as long as all others take at the most to stand for election. Those
// who are connected and have what was committed elect one of them by then. What is left is an
// image together with the loss of, or a cut to, another replica at the same moment: then nobody
// who is there knows of what is missing, and nothing but waiting for the absent would help.
//
// Price: when all replicas of a group start at once, they elect after two elections' time.

// waryTicks is the longest that raft waits before it stands.
const waryTicks = 2 * electionTicks

// beWary is for a replica that starts on a log. From Add.
func (g *Group) beWary() {
	if g.lapse == nil && !g.core.soleVoter() && slices.Contains(g.core.log.conf.GetVoters(), uint64(g.core.id)) {
		g.wary = waryTicks
	}
}

// tickWary counts the ticks, during which raft's clock stands still, and reports whether this
// was one of them.
func (g *Group) tickWary() bool {
	if g.wary == 0 {
		return false
	}
	g.knock()
	if g.wary--; g.wary == 0 {
		g.standIn = g.standTurn()
	}
	return true
}

// passesOver reports whether a wary replica does not hear a message: somebody stands for
// election, not because a leader asked for it.
func (g *Group) passesOver(m *raftpb.Message) bool {
	t := m.GetType()
	return g.wary > 0 && (t == raftpb.MsgPreVote || t == raftpb.MsgVote && string(m.GetContext()) != campaignTransfer)
}

// campaignTransfer is raft's context of votes that a leader asked for, who hands over.
const campaignTransfer = "CampaignTransfer"
