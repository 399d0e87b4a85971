package group

import (
	"maps"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/group/grouppb"
)

// Sync asks for the member's assignment; the leader's call brings them all. The
// reply, a *SyncResponse, comes when they are committed.
func (c *Coordinator) Sync(now time.Time, t Token, req *SyncRequest) Effects {
	c.now = now
	refuse := func(err error) { c.reply(t, &SyncResponse{Err: err}) }
	if err := c.check(req.Group); err != nil {
		refuse(err)
		return c.take()
	}
	if g := c.consumerGroup(req.Group); g != nil {
		c.classicSync(g, t, req)
		return c.take()
	}
	g := c.open(req.Group)
	switch {
	case g == nil:
		refuse(ErrUnknownMember)
	case g.busy && g.phase == Stable: // a member is being replaced
		c.enqueue(g, t, func() { c.sync(g, t, req) }, refuse)
	default:
		c.sync(g, t, req)
		c.settle(g)
	}
	return c.take()
}

// check is what every call for a group begins with.
func (c *Coordinator) check(name string) error {
	if !c.leading {
		return ErrNotCoordinator
	}
	return checkName(name)
}

func (c *Coordinator) sync(g *live, t Token, req *SyncRequest) {
	refuse := func(err error) { c.reply(t, &SyncResponse{Err: err}) }
	m, err := g.find(req.MemberID, req.Instance)
	switch {
	case err != nil:
		refuse(err)
		return
	case req.Generation != g.generation:
		refuse(ErrIllegalGeneration)
		return
	case req.ProtocolType != "" && req.ProtocolType != g.protocolType, req.Protocol != "" && req.Protocol != g.protocol:
		refuse(ErrInconsistentProtocol)
		return
	}
	switch g.phase {
	case Stable:
		m.synced = true
		c.alive(m)
		c.reply(t, g.syncResponse(m))
	case Completing:
		c.syncWait(g, m, t, req)
	default:
		refuse(ErrRebalancing)
	}
}

// syncWait holds the call until the assignment is committed, which the leader's
// call sets going.
func (c *Coordinator) syncWait(g *live, m *member, t Token, req *SyncRequest) {
	leads := m.ID == g.leader && !g.busy
	if leads {
		switch n := g.bytesOf(req.Assignments); {
		case n > c.cfg.MaxGroupBytes:
			c.reply(t, &SyncResponse{Err: ErrTooLarge})
			return
		case !c.takes(2 * n):
			c.reply(t, &SyncResponse{Err: ErrShardFull})
			return
		}
	}
	if m.sync != 0 { // the client asks again
		c.replySync(m, &SyncResponse{Err: ErrRebalancing})
	}
	m.sync, m.synced = t, true
	c.waiting[t] = m
	if !leads {
		return
	}
	cmd := &grouppb.Assign{Group: g.name, Base: uint64(g.base.version()), Generation: g.generation}
	for _, id := range slices.Sorted(maps.Keys(req.Assignments)) {
		if g.members[id] != nil {
			cmd.Assignments = append(cmd.Assignments, &grouppb.Assignment{Member: id, Data: req.Assignments[id]})
		}
	}
	c.change(g, &grouppb.Command{Kind: &grouppb.Command_Assign{Assign: cmd}}, func() { c.assigned(g) })
}

// bytesOf is how large the assignments of the group's members are together.
func (g *live) bytesOf(assignments map[string][]byte) int {
	n := 0
	for id, a := range assignments {
		if g.members[id] != nil {
			n += len(a)
		}
	}
	return n
}

// assigned answers all who wait for the assignment that was just committed.
func (c *Coordinator) assigned(g *live) {
	g.phase = Stable
	for _, m := range g.ordered() {
		if s := g.base.Member(m.ID); s != nil {
			c.assign(g, m, s.Assignment)
		} else {
			c.assign(g, m, nil)
		}
		if m.sync != 0 {
			c.replySync(m, g.syncResponse(m))
		}
	}
}

func (g *live) syncResponse(m *member) *SyncResponse {
	return &SyncResponse{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: m.Assignment}
}

// Heartbeat says that a member is alive, and tells it whether to rejoin. It
// neither waits nor proposes.
func (c *Coordinator) Heartbeat(now time.Time, req *HeartbeatRequest) error {
	c.now = now
	if err := c.check(req.Group); err != nil {
		return err
	}
	g := c.groups[req.Group]
	if g == nil {
		if g := c.consumers[req.Group]; g != nil {
			return c.classicHeartbeat(g, req)
		}
		return ErrUnknownMember
	}
	m, err := g.find(req.MemberID, req.Instance)
	if err != nil {
		return err
	}
	if req.Generation != g.generation {
		return ErrIllegalGeneration
	}
	c.alive(m)
	if g.phase == Preparing {
		return ErrRebalancing
	}
	return nil
}

// Leave takes members out. The reply, a *LeaveResponse, does not wait for the
// rebalance that follows: until that is committed the partitions of those who
// left belong to nobody else.
func (c *Coordinator) Leave(now time.Time, t Token, req *LeaveRequest) Effects {
	c.now = now
	refuse := func(err error) { c.reply(t, &LeaveResponse{Err: err}) }
	if err := c.check(req.Group); err != nil {
		refuse(err)
		return c.take()
	}
	if g := c.consumerGroup(req.Group); g != nil {
		c.classicLeave(g, t, req)
		return c.take()
	}
	g := c.open(req.Group)
	if g == nil {
		c.reply(t, &LeaveResponse{Errs: slices.Repeat([]error{ErrUnknownMember}, len(req.Members))})
		return c.take()
	}
	c.enqueue(g, t, func() {
		r := &LeaveResponse{Errs: make([]error, len(req.Members))}
		for i, l := range req.Members {
			r.Errs[i] = c.leave(g, l)
		}
		c.reply(t, r)
		c.gone(g)
	}, refuse)
	return c.take()
}

func (c *Coordinator) leave(g *live, l LeaveMember) error {
	if g.pending[l.ID] != nil && l.Instance == "" {
		c.unpromise(g, l.ID)
		return nil
	}
	if s := g.statics[l.Instance]; l.ID == "" && l.Instance != "" && s != nil {
		l.ID = s.ID // an administrator knows the instance only
	}
	m, err := g.find(l.ID, l.Instance)
	if err != nil {
		return err
	}
	c.remove(g, m)
	return nil
}
