package group

import "github.com/tube-mq/tube/internal/group/grouppb"

// prepare starts a rebalance, unless one is under way, and ends it at once if
// everybody is there.
func (c *Coordinator) prepare(g *live) {
	if g.phase != Preparing {
		wait := g.maxRebalance()
		if g.initial = g.phase == Empty && c.cfg.InitialDelay > 0 && len(g.members) > 0; g.initial {
			g.initialEnd, g.newcomers = c.now.Add(wait), false
			wait = min(wait, c.cfg.InitialDelay)
		}
		g.phase = Preparing
		for _, m := range g.ordered() {
			if m.sync != 0 {
				c.replySync(m, &SyncResponse{Err: ErrRebalancing})
			}
		}
		c.timers.set(&g.timer, c.now.Add(wait))
	}
	c.maybeComplete(g)
}

// maybeComplete ends the joining when nobody is missing.
func (c *Coordinator) maybeComplete(g *live) {
	if g.phase == Preparing && !g.busy && !g.initial && g.joined == len(g.members) && len(g.pending) == 0 {
		c.complete(g)
	}
}

// complete makes the next generation of those who have joined. Dynamic members
// who have not are out; static ones keep their place.
func (c *Coordinator) complete(g *live) {
	c.timers.stop(&g.timer)
	var leader *member
	members := g.ordered()
	for _, m := range members {
		switch {
		case !m.joined && m.Instance == "":
			c.remove(g, m)
		case m.joined && (leader == nil || m.ID == g.leader):
			leader = m
		}
	}
	if len(g.members) > 0 && leader == nil {
		c.timers.set(&g.timer, c.now.Add(g.maxRebalance())) // only absent static members: wait on
		return
	}
	if len(g.members) == 0 && g.base.empty() {
		g.phase, g.leader, g.protocol = Empty, "", "" // nobody has ever heard of a generation
		return
	}
	st := &State{ProtocolType: g.protocolType, Generation: g.generation + 1}
	if leader != nil {
		st.Leader, st.Protocol = leader.ID, g.choose(leader)
	}
	for _, m := range members {
		if g.members[m.ID] == m {
			st.Members = append(st.Members, m.Member)
		}
	}
	c.change(g, putGeneration(g, st), func() { c.begin(g) })
}

func putGeneration(g *live, st *State) *grouppb.Command {
	pb := st.proto()
	pb.Version, pb.TimeMillis = 0, 0
	for _, m := range pb.Members {
		m.Assignment = nil
	}
	return &grouppb.Command{Kind: &grouppb.Command_PutGeneration{PutGeneration: &grouppb.PutGeneration{
		Group: g.name, Base: uint64(g.base.version()), State: pb,
	}}}
}

// begin tells everybody of the generation that was just committed.
func (c *Coordinator) begin(g *live) {
	g.adopt(g.base)
	g.joined = 0
	if g.base.empty() {
		g.phase = Empty
		return
	}
	g.phase = Completing
	for _, m := range g.ordered() {
		m.joined, m.synced = false, false
		c.assign(g, m, nil)
		if m.join != 0 {
			c.replyJoin(m, g.joinResponse(m))
		}
	}
	c.timers.set(&g.timer, c.now.Add(g.maxRebalance()))
}

// phaseOver is the end of the group's patience.
func (c *Coordinator) phaseOver(g *live) {
	if g.busy {
		g.queue = append(g.queue, queued{run: func() { c.phaseOver(g) }})
		return
	}
	if c.now.Before(g.timer.at) {
		return // set anew while this waited in the queue
	}
	switch {
	case g.phase == Preparing && g.initial:
		if left := g.initialEnd.Sub(c.now); g.newcomers && left > 0 {
			g.newcomers = false
			c.timers.set(&g.timer, c.now.Add(min(left, c.cfg.InitialDelay)))
			return
		}
		g.initial = false
		c.complete(g)
	case g.phase == Preparing:
		c.complete(g)
	case g.phase == Completing || g.phase == Stable:
		c.dropUnsynced(g)
	}
	c.settle(g)
}

// dropUnsynced takes out who joined but never asked for its assignment, the
// leader that does not assign first of all.
func (c *Coordinator) dropUnsynced(g *live) {
	dropped := false
	for _, m := range g.ordered() {
		if !m.synced {
			c.remove(g, m)
			dropped = true
		}
	}
	if dropped {
		c.prepare(g)
	}
}

// sessionOver looks whether a member has really been silent for so long.
func (c *Coordinator) sessionOver(g *live, m *member) {
	switch {
	case g.members[m.ID] != m:
	case m.join != 0 || m.sync != 0:
		c.alive(m) // it waits for us
		c.timers.set(&m.timer, m.deadline)
	case m.deadline.After(c.now):
		c.timers.set(&m.timer, m.deadline)
	case g.busy:
		g.queue = append(g.queue, queued{run: func() { c.sessionOver(g, m) }})
	default:
		c.remove(g, m)
		c.gone(g)
		c.settle(g)
	}
}

// gone follows the removal of members.
func (c *Coordinator) gone(g *live) {
	if g.phase == Stable || g.phase == Completing {
		c.prepare(g)
		return
	}
	c.maybeComplete(g)
}
