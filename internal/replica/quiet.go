package replica

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/tube-mq/tube/internal/record"
)

// A group with nothing to do costs nothing. When all of its replicas have all of
// its log, its leader says so and stops its clock, and so do those who agree. From
// then on it is the transport's heartbeat between the nodes that counts, one for
// all groups: a node that is not heard of any more wakes the groups that it has a
// replica of (PeerDown), and they elect as ever. So does any message, and whatever
// gives raft something to do. Who is woken ticks at once, which wakes the others.

// quietAfter is how many ticks a group is idle before it goes quiet. Waking costs
// a message each way, so there is little to gain from waiting.
const quietAfter = 3

// quietMark is the context of the heartbeat that says that a group goes quiet: as
// long as any (see wire.go), and none that a question has.
const quietMark = "go quiet"

// tickOnce moves raft's clock.
func (g *Group) tickOnce() {
	if g.lapse != nil {
		g.tickLapsed()
		return
	}
	if g.tickWary() {
		return
	}
	g.advance()
	g.knock()
	g.stand()
	if !g.core.idle() {
		g.idleTicks = 0
		return
	}
	g.idleTicks++
}

// stand stands for election when the time for it has come, if nobody leads then.
func (g *Group) stand() {
	if g.standIn == 0 {
		return
	}
	if g.standIn--; g.standIn == 0 && g.core.leader == 0 && !g.leavesIt() {
		if err := g.core.campaign(); err != nil {
			g.spec.Logger.Debug("cannot stand for election", "group", g.spec.Group, "err", err)
		}
	}
}

// knock wakes the others if this replica knows no leader: it may have come back
// before its node was missed. A learner stands for no election, and would wait for
// ever.
func (g *Group) knock() {
	if g.core.leader != 0 {
		g.leaderless = 0
		return
	}
	if g.leaderless%electionTicks == 0 {
		g.rouse()
	}
	g.leaderless++
}

// idle reports whether this replica leads and everybody has everything.
func (c *core) idle() bool {
	if !c.lead || !c.serving || c.doubt || len(c.waiting) > 0 || c.applied != c.log.last() || !c.reads.empty() || len(c.log.conf.GetVotersOutgoing()) > 0 {
		return false
	}
	if c.rn.BasicStatus().LeadTransferee != raft.None {
		return false // raft's clock has to give it up if the other does not lead; until then proposals are refused
	}
	idle := true
	c.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		idle = idle && pr.Match == c.applied && (id == uint64(c.id) || pr.State == tracker.StateReplicate)
	})
	return idle
}

// heard reports whether all replicas have answered since raft counted last: a
// leader that goes quiet otherwise could be deposed by its own clock on waking.
func (c *core) heard() bool {
	heard := true
	c.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		heard = heard && (id == uint64(c.id) || pr.RecentActive)
	})
	return heard
}

func (g *Group) peersAlive() bool {
	for r, node := range *g.peers.Load() {
		if r != g.spec.Replica && !g.host.cfg.Alive(node) {
			return false
		}
	}
	return true
}

func (g *Group) goQuiet() {
	c := g.core
	c.rn.WithProgress(func(id uint64, _ raft.ProgressType, _ tracker.Progress) {
		if id != uint64(c.id) {
			g.send(&raftpb.Message{
				Type: raftpb.MsgHeartbeat.Enum(), To: new(id), From: new(uint64(c.id)), Term: new(c.term),
				Commit: new(c.applied), Context: []byte(quietMark),
			})
		}
	})
	g.setQuiet(true)
}

// isMark reports whether a message is a leader's word that the group goes quiet.
func isMark(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgHeartbeat && string(m.GetContext()) == quietMark
}

// hush follows a leader's word that the group goes quiet, once all that came with it
// is dealt with. If there is more to do than the leader knows, the word is a
// heartbeat like any other, whose answer has the mark and wakes the leader.
func (g *Group) hush(m *raftpb.Message) {
	c := g.core
	node, ok := (*g.peers.Load())[record.ReplicaID(c.leader)]
	if ok && g.host.cfg.Alive(node) && m.GetTerm() == c.term && m.GetFrom() == c.leader &&
		c.applied == m.GetCommit() && c.log.last() == m.GetCommit() && !g.installing && !g.unsettled {
		g.setQuiet(true)
		return
	}
	c.step(m)
	g.work()
}

// wakes reports whether a message ends the quiet. Answers to a leader's last
// heartbeats say nothing new.
func wakes(m *raftpb.Message) bool {
	if m.GetType() != raftpb.MsgHeartbeatResp || isLapseWord(m) {
		return true
	}
	refused := string(m.GetContext()) == quietMark
	if refused {
		m.Context = nil // it is none of raft's
	}
	return refused
}

func (g *Group) setQuiet(on bool) {
	g.quiet, g.idleTicks = on, 0
	g.retick()
}

// wakeUp ends the quiet: raft's clock runs again, and a leader's heartbeat, due
// now, wakes the others.
func (g *Group) wakeUp() {
	if g.quiet && g.core != nil {
		g.setQuiet(false)
		g.advance()
	}
}

// rouse wakes the other replicas, which may be quiet: this one is about to stop
// although its node lives on, or it has just started and knows no leader. It is the
// answer to a heartbeat that nobody sent: whoever leads hears that this replica is
// there, and nobody else takes it for more than a knock.
func (g *Group) rouse() {
	c := g.core
	for _, id := range slices.Concat(c.log.conf.GetVoters(), c.log.conf.GetVotersOutgoing(), c.log.conf.GetLearners()) {
		if id != uint64(c.id) {
			g.rouseOne(id)
		}
	}
}

func (g *Group) rouseOne(id uint64) {
	g.send(&raftpb.Message{
		Type: raftpb.MsgHeartbeatResp.Enum(), To: new(id), From: new(uint64(g.core.id)), Term: new(g.core.term), Context: []byte(quietMark),
	})
}

// lookEvery is how many ticks pass until every quiet follower has looked once
// whether its leader is still there: a leader that stops without a word, while its
// node lives on, would else never be missed.
const lookEvery = 3000

// lookStep is how many ticks lie between two walks over all groups.
const lookStep = 10

// lookAgain wakes a few followers, those whose turn is in the next lookStep ticks.
func (h *Host) lookAgain(tick int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, g := range h.groups {
		if int(id)%lookEvery/lookStep == tick%lookEvery/lookStep && !g.Status().Leading && !g.Alone() {
			g.Do(g.look)
		}
	}
}

// look wakes this replica and the leader it knows, whose heartbeat then comes at once. Without
// that the clocks of all who look at the same time would run out together, and they
// would elect another.
func (g *Group) look() {
	if !g.quiet || g.core == nil {
		return
	}
	g.wakeUp()
	if leader := g.core.leader; leader != 0 && leader != uint64(g.core.id) {
		g.rouseOne(leader)
	}
}

// PeerDown says that a node is not heard of any more: groups that have a replica
// there must find out for themselves. Those that it led elect at once, if the
// majority has not heard of it either.
func (h *Host) PeerDown(node record.NodeID) {
	for _, g := range h.Groups() {
		for _, n := range *g.peers.Load() {
			if n == node {
				g.Do(func() { g.leaderLost(node) })
				break
			}
		}
	}
}

// standTicks spreads the elections after a node's death over so many ticks.
const standTicks = 3

func (g *Group) leaderLost(node record.NodeID) {
	if g.core == nil {
		return
	}
	g.wakeUp()
	if at, ok := (*g.peers.Load())[record.ReplicaID(g.core.leader)]; ok && at == node && !g.core.lead {
		// Whoever still hears of the leader refuses to vote for another.
		if err := g.core.rn.ForgetLeader(); err == nil {
			g.standIn = g.standTurn()
		}
	}
}

// standTurn is when it is this replica's turn to stand, in ticks.
func (g *Group) standTurn() int {
	return 1 + int((uint64(g.core.id)*7+g.core.term+uint64(g.spec.Group))%standTicks)
}

// doubtAfter is how many ticks this process may miss before its leaderships are
// in doubt: others may have elected meanwhile.
const doubtAfter = electionTicks / 2

// late reports whether this process has not run for so long that others may lead.
func (h *Host) late() bool { return h.lateAs(time.Since(h.started)) }

// lateAs is late at a moment since started.
func (h *Host) lateAs(now time.Duration) bool {
	at := h.lateAt.Load()
	return at != 0 && now > time.Duration(at)
}

// ticked notes that the clock has moved, at a moment since started, and moves again so many
// ticks later.
func (h *Host) ticked(now time.Duration, steps int) {
	missed := doubtAfter
	if steps > quietSteps {
		missed += steps
	}
	h.lateAt.Store(int64(now) + int64(missed)*int64(h.cfg.TickInterval))
}

// endCalm has the clock move a tick from now, if it was to rest for longer. What has been
// late stays late.
func (h *Host) endCalm() {
	if soon := int64(time.Since(h.started) + doubtAfter*h.cfg.TickInterval); h.lateAt.Load() > soon {
		h.lateAt.Store(soon)
	}
	select {
	case h.clockRuns <- struct{}{}:
	default:
	}
}

// alone reports whether nobody else takes part in any of the groups. h.mu is held.
func (h *Host) alone() bool {
	for _, g := range h.groups {
		if !g.alone.Load() {
			return false
		}
	}
	return true
}

// doubt has every leadership confirmed by a majority before it counts again. From
// when it returns no group says that it leads, even one whose turn is yet to come.
func (h *Host) doubt() {
	pause := h.pauses.Add(1)
	for _, g := range h.Groups() {
		g.Do(func() { g.doubt(pause) })
	}
}

func (g *Group) doubt(pause int64) {
	if g.core == nil || !g.core.lead || g.core.alone() {
		g.sure.Store(pause) // whom it elects later is elected after the pause
		return
	}
	g.core.doubt = true
	term := g.core.term
	g.core.reads.fresh = append(g.core.reads.fresh, func(err error) {
		g.sure.Store(pause)
		// A majority that was asked before another pause says nothing of that.
		if err == nil && g.core != nil && g.core.term == term && pause == g.host.pauses.Load() {
			g.core.doubt = false
		}
	})
}
