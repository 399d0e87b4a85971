package replica

import (
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/wal"
)

// A relaxed group's entries are answered for before they are synced. If its machine
// stops uncleanly a replica may come back without entries that it has answered for:
// it has a lapse. Were it to vote as if nothing had happened, it could elect somebody
// who lacks them too, although a third replica has them. And whoever led when it
// stopped counts what it had: raft never asks again for what a replica has confirmed.
//
// Its term and vote were synced. So it knows until when it may have forgotten
// something: until the term that it comes back in (lapse.until). From that follows
//
//	who it listens to   only leaders of later terms: they have not counted on anything that
//	                    it forgot. A leader of an earlier one is asked to hand over.
//	when it is over     once its log ends with an entry of a later term. Who wrote that was
//	                    elected without this replica's forgetful vote, so it had all that was
//	                    committed; and raft takes an entry only behind what its leader has.
//	how it votes        not at all, until all other replicas have told where their logs
//	                    end; then for logs that end no earlier than the furthest of them.
//	                    What no replica has any more is lost; nothing else is.
//
// The last is for when there is nobody to listen to, as too many have a lapse: the
// power of all of them failed. If one does not answer, it may be the one that
// has what the others lack, and the group waits for it. A learner has to answer, as
// nobody else knows that it is one, but what it has does not count: it cannot lead. If it
// has more than those that vote it is overruled, and copied anew (overrules).
//
// Rejected: a new replica in the place of one with a lapse. That is right too, but it
// copies the whole partition for the sake of its last moments, and when the power of all
// fails there would be nobody to copy from.

// logEnd is where a log ends. Of two, the one with the later term is further.
type logEnd struct{ term, index uint64 }

func (a logEnd) before(b logEnd) bool {
	return a.term < b.term || a.term == b.term && a.index < b.index
}

// lapse is what a replica that may have forgotten the end of its log goes by.
// Pure; the group's loop owns it.
type lapse struct {
	// until is the term up to which entries may be forgotten.
	until uint64
	// round counts the questions. heard are the answers to the present one.
	round uint64
	heard map[uint64]logEnd // zero: of a learner
	// open: everybody has answered a question; floor is the furthest end, of the
	// latest such round.
	open  bool
	floor logEnd
}

// ask begins a round: answers to earlier ones do not count any more, as who gave them
// may have forgotten something since.
func (l *lapse) ask() uint64 {
	l.round++
	l.heard = map[uint64]logEnd{}
	return l.round
}

// answered takes one replica's answer to a round.
func (l *lapse) answered(from, round uint64, end logEnd) {
	if round == l.round {
		l.heard[from] = end
	}
}

// missing are the others that have not answered yet.
func (l *lapse) missing(others []uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(others), func(id uint64) bool { _, ok := l.heard[id]; return ok })
}

// judge opens the vote if all others have answered. It reports whether this replica,
// whose log ends at own, may stand for election.
func (l *lapse) judge(own logEnd, others []uint64) bool {
	if len(l.missing(others)) == 0 {
		l.open, l.floor = true, own
		for _, id := range others {
			if end := l.heard[id]; l.floor.before(end) {
				l.floor = end
			}
		}
	}
	return l.open && !own.before(l.floor)
}

// admits reports whether raft may hear a message.
func (l *lapse) admits(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		return m.GetTerm() > l.until
	case raftpb.MsgVote, raftpb.MsgPreVote:
		return l.open && !logEnd{m.GetLogTerm(), m.GetIndex()}.before(l.floor)
	case raftpb.MsgTimeoutNow:
		return false // it would stand without having asked
	}
	return true
}

// over reports whether a log that ends there has all that was committed.
func (l *lapse) over(end logEnd) bool { return end.term > l.until }

// end is where this replica's log ends, written or not.
func (c *core) end() logEnd {
	last := c.log.last()
	term, err := c.log.Term(last)
	if err != nil {
		panic(fmt.Sprintf("replica %d: term of the last index %d: %v", c.id, last, err))
	}
	return logEnd{term, last}
}

// The questions and answers are heartbeat responses that nobody asked for, as a knock
// is (quiet.go), and never reach raft. Vote is which life of the asker's log it is, and
// Commit the round, so that no answer to an earlier question is taken for one to
// this. A question has in LogTerm until when the asker may have forgotten, an answer
// in LogTerm and Index where the log ends, or Reject if the replica does not vote.
const (
	askMark  = "log end?"
	tellMark = "log ends"
)

func isLapseWord(m *raftpb.Message) bool {
	if m.GetType() != raftpb.MsgHeartbeatResp {
		return false
	}
	c := string(m.GetContext())
	return c == askMark || c == tellMark
}

// hearWord takes a question or an answer about where logs end.
func (g *Group) hearWord(m *raftpb.Message) {
	from := m.GetFrom()
	if string(m.GetContext()) == tellMark {
		if l := g.lapse; l != nil && m.GetVote() == g.host.life {
			end := logEnd{m.GetLogTerm(), m.GetIndex()}
			if m.GetReject() {
				end = logEnd{}
			}
			l.answered(from, m.GetCommit(), end)
			g.tryOpen()
		}
		return
	}
	end := g.core.end()
	g.send(&raftpb.Message{
		Type: raftpb.MsgHeartbeatResp.Enum(), To: new(from), From: new(uint64(g.core.id)), Term: new(g.core.term), Context: []byte(tellMark),
		Vote: m.Vote, Commit: m.Commit, LogTerm: new(end.term), Index: new(end.index),
		Reject: new(!g.core.votes()),
	})
	if g.core.lead && g.core.term <= m.GetLogTerm() {
		g.core.handOverFor(from)
	}
}

// votes reports whether this replica votes, as far as it knows. Of what it has not
// applied it does not know; but a change that made it vote is with a majority of those
// that voted before, who do not forget it.
func (c *core) votes() bool {
	return slices.Contains(c.log.conf.GetVoters(), uint64(c.id)) || slices.Contains(c.log.conf.GetVotersOutgoing(), uint64(c.id))
}

// overrules reports whether a leader's entries contradict what this replica holds for
// committed: most of those that had committed it have forgotten it, and went on
// without. Raft would not look.
func (c *core) overrules(m *raftpb.Message) bool {
	if m.GetType() != raftpb.MsgApp || m.GetTerm() < c.term {
		return false
	}
	for _, e := range m.GetEntries() {
		if e.GetIndex() > c.log.hard.GetCommit() {
			break
		}
		if term, err := c.log.Term(e.GetIndex()); err == nil && term != e.GetTerm() {
			return true
		}
	}
	return false
}

// forgot reports whether a leader's heartbeat shows that this replica lacks what it has
// confirmed: it says how far the leader has committed of what this very replica has. The
// leader never sends that again, and raft would panic. A log that was synced does not get
// shorter by itself: the disk lost something, or it is an older copy of what it was.
func (c *core) forgot(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgHeartbeat && m.GetTerm() >= c.term && m.GetCommit() > c.log.last()
}

// handOverFor has another replica lead, in the next term: this leader's idea of what
// a replica has is wrong, and the asker listens only to later ones.
func (c *core) handOverFor(asker uint64) {
	if c.lapsed == nil {
		c.lapsed = map[uint64]bool{}
	}
	c.lapsed[asker] = true
	if to := c.successor(func(id uint64) bool { return !c.lapsed[id] }); to != 0 {
		c.rn.TransferLeader(to)
	}
}

// others are the group's other replicas as metadata has them; those that it says are
// lost are not among them.
func (g *Group) others() []uint64 {
	var out []uint64
	for _, id := range slices.Sorted(maps.Keys(*g.peers.Load())) {
		if id != g.spec.Replica {
			out = append(out, uint64(id))
		}
	}
	return out
}

// askEnds asks all others where their logs end, and knocks thereby.
func (g *Group) askEnds() {
	l := g.lapse
	if l.round > 0 {
		g.noteMissing()
	}
	round := l.ask()
	for _, id := range g.others() {
		g.send(&raftpb.Message{
			Type: raftpb.MsgHeartbeatResp.Enum(), To: new(id), From: new(uint64(g.core.id)), Term: new(g.core.term), Context: []byte(askMark),
			Vote: new(g.host.life), Commit: new(round), LogTerm: new(l.until),
		})
	}
	g.tryOpen()
}

// tryOpen lets this replica vote, and stand if nobody has more, once all have answered.
// Who the others are is known only once the node's metadata is as new as its start.
func (g *Group) tryOpen() {
	if !g.host.membersKnown.Load() {
		return
	}
	l := g.lapse
	was := l.open
	if l.judge(g.core.end(), g.others()) && !was {
		g.standIn = 1
	}
	if l.open && !was {
		g.spec.Logger.Info("all replicas have told where their logs end: this one votes for the furthest", "group", g.spec.Group, "term", l.floor.term, "index", l.floor.index)
	}
}

// tickLapsed moves raft's clock only if this replica may stand for election.
func (g *Group) tickLapsed() {
	if g.leaderless%electionTicks == 0 {
		g.askEnds()
	}
	g.leaderless++
	l := g.lapse
	if !l.open || g.core.end().before(l.floor) {
		return
	}
	g.core.rn.Tick()
	g.stand()
}

// Lapsed reports whether this replica may have forgotten the end of its log, and
// which nodes it waits for; none if it waits for a leader only.
func (g *Group) Lapsed() (waitsFor []record.NodeID, lapsed bool) {
	p := g.waitsFor.Load()
	if p == nil {
		return nil, false
	}
	return *p, true
}

// noteMissing makes known who has not answered the round that ends now.
func (g *Group) noteMissing() {
	nodes := []record.NodeID{}
	peers := *g.peers.Load()
	if g.core.leader == 0 {
		for _, id := range g.lapse.missing(g.others()) {
			nodes = append(nodes, peers[record.ReplicaID(id)])
		}
	}
	slices.Sort(nodes)
	g.waitsFor.Store(&nodes)
}

// recollect ends the lapse once the log has what was forgotten.
func (g *Group) recollect() {
	if g.lapse == nil || g.core == nil || !g.lapse.over(g.core.end()) {
		return
	}
	g.endLapse()
	g.spec.Logger.Info("replica has what it may have forgotten, and votes again", "group", g.spec.Group, "index", g.core.log.last())
}

// endLapse: the record follows, in the log, the entries that end it.
func (g *Group) endLapse() {
	if g.lapse == nil {
		return
	}
	g.lapse, g.leaderless = nil, 0
	g.waitsFor.Store(nil)
	g.writeLapse()
}

// writeLapse writes down whether entries may be unsynced and what may be forgotten.
// What the group writes afterwards is not answered for before this is durable.
func (g *Group) writeLapse() {
	g.dirty = true
	g.host.writer.Submit(wal.Batch{Records: []wal.Record{lapseRecord(g.spec.Group, g.relaxed, g.lapse)}, Sync: true, Done: func(_ []wal.Position, err error) {
		if err != nil {
			g.host.fail(err)
		}
	}})
}

func lapseRecord(id record.Group, relaxed bool, l *lapse) wal.Record {
	r := wal.Record{Kind: wal.KindLapse, Group: id}
	if relaxed {
		r.Vote = 1
	}
	if l != nil {
		r.Term = record.Term(l.until)
	}
	return r
}

// SetRelaxed changes whether entries are answered for before they are synced.
func (g *Group) SetRelaxed(on bool) {
	g.Do(func() {
		if g.core == nil || g.relaxed == on {
			return
		}
		g.relaxed = on
		g.writeLapse() // what was written before is synced with it
	})
}
