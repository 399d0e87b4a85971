package group

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// live is a group as its coordinator sees it.
type live struct {
	name string
	// base is the State this is built on; nil if the Machine has none.
	base         *State
	phase        Phase
	generation   int32
	protocolType string
	protocol     string
	leader       string
	members      map[string]*member
	statics      map[string]*member // by instance id; a subset of members
	pending      map[string]*timer  // ids handed out, not joined with yet (KIP-394)
	knows        map[string]int     // protocol → how many members know it
	joined       int                // members that have joined the next generation
	bytes        int                // sum of the members'
	seq          uint64             // of the newest member

	// busy: a change of State is on its way. Invariant: nothing that it was made
	// from changes until its outcome is known.
	busy  bool
	queue []queued // calls that wait for !busy, in order; bounded by the calls under way

	timer timer // of the phase: end of the initial delay, of joining, of syncing
	// initial: the first rebalance waits for more members, until initialEnd.
	initial    bool
	initialEnd time.Time
	newcomers  bool // since the delay was last extended
}

type queued struct {
	token Token // 0: no call, an event of the coordinator's own
	run   func()
	fail  func(error)
}

// member is one live member.
type member struct {
	Member
	seq      uint64    // order of joining
	deadline time.Time // end of the session unless a sign of life comes
	timer    timer     // fires not before the deadline it was set for
	join     Token     // the join that waits; 0: none
	sync     Token     // the sync that waits; 0: none
	joined   bool      // in the next generation
	synced   bool      // has asked for this generation's assignment
}

func (c *Coordinator) newLive(name string) *live {
	g := &live{
		name: name, phase: Empty,
		members: map[string]*member{}, statics: map[string]*member{}, pending: map[string]*timer{}, knows: map[string]int{},
	}
	g.timer.fire = func() { c.phaseOver(g) }
	c.groups[name] = g
	c.bytes += liveBytes + len(name)
	return g
}

// load builds a live group from its State, as after a change of leader.
func (c *Coordinator) load(name string, st *State) *live {
	g := c.newLive(name)
	g.adopt(st)
	for i := range st.Members {
		m := c.insert(g, st.Members[i])
		m.synced = st.Assigned
	}
	switch {
	case st.empty():
	case st.Assigned:
		g.phase = Stable
	default:
		g.phase = Completing
		c.timers.set(&g.timer, c.now.Add(g.maxRebalance()))
	}
	return g
}

// adopt takes over what a State says of the group as a whole.
func (g *live) adopt(st *State) {
	g.base = st
	g.generation, g.protocolType, g.protocol, g.leader = 0, "", "", ""
	if st != nil {
		g.generation, g.protocolType, g.protocol, g.leader = st.Generation, st.ProtocolType, st.Protocol, st.Leader
	}
}

// insert adds a member and starts its session.
func (c *Coordinator) insert(g *live, mm Member) *member {
	g.seq++
	m := &member{Member: mm, seq: g.seq}
	m.timer.fire = func() { c.sessionOver(g, m) }
	g.members[m.ID] = m
	if m.Instance != "" {
		g.statics[m.Instance] = m
	}
	c.count(g, m, +1)
	c.alive(m)
	c.timers.set(&m.timer, m.deadline)
	return m
}

// remove takes a member out; whatever it waits for is answered.
func (c *Coordinator) remove(g *live, m *member) {
	c.answer(m, ErrUnknownMember)
	c.timers.stop(&m.timer)
	c.count(g, m, -1)
	if m.joined {
		g.joined--
	}
	delete(g.members, m.ID)
	if g.statics[m.Instance] == m {
		delete(g.statics, m.Instance)
	}
}

// count adds the member to the group's sums (sign +1) or takes it out (−1).
func (g *live) count(m *member, sign int) {
	g.bytes += sign * m.bytes()
	for _, p := range m.Protocols {
		if g.knows[p.Name] += sign; g.knows[p.Name] == 0 {
			delete(g.knows, p.Name)
		}
	}
}

// find checks who calls.
func (g *live) find(id, instance string) (*member, error) {
	if instance != "" {
		switch m := g.statics[instance]; {
		case m == nil:
			return nil, ErrUnknownMember
		case m.ID != id:
			return nil, ErrFencedInstance
		default:
			return m, nil
		}
	}
	if m := g.members[id]; m != nil {
		return m, nil
	}
	return nil, ErrUnknownMember
}

// ordered lists the members in the order in which they joined.
func (g *live) ordered() []*member {
	return slices.SortedFunc(maps.Values(g.members), func(a, b *member) int { return cmp.Compare(a.seq, b.seq) })
}

func (g *live) maxRebalance() time.Duration {
	var d time.Duration
	for _, m := range g.members {
		d = max(d, m.Rebalance)
	}
	return d
}

// shares reports that somebody with these protocols can be in the group. m is
// the member who asks, nil for a new one.
func (g *live) shares(protocolType string, protocols []Protocol, m *member) bool {
	if protocolType == "" || len(protocols) == 0 {
		return false
	}
	others := len(g.members)
	if m != nil {
		others--
	}
	if others == 0 {
		return true
	}
	if g.protocolType != protocolType {
		return false
	}
	for _, p := range protocols {
		n := g.knows[p.Name]
		if m != nil && m.knowsProtocol(p.Name) {
			n--
		}
		if n == others {
			return true
		}
	}
	return false
}

func (m *Member) knowsProtocol(name string) bool {
	return slices.ContainsFunc(m.Protocols, func(p Protocol) bool { return p.Name == name })
}

// choose picks the protocol: each member votes for the first in its list that
// all know; of those with the most votes, the one the leader likes best.
func (g *live) choose(leader *member) string {
	votes := map[string]int{}
	for _, m := range g.members {
		for _, p := range m.Protocols {
			if g.knows[p.Name] == len(g.members) {
				votes[p.Name]++
				break
			}
		}
	}
	best := ""
	for _, p := range leader.Protocols {
		if votes[p.Name] > votes[best] {
			best = p.Name
		}
	}
	return best
}
