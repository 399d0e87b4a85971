package group

import (
	"maps"
	"slices"
	"time"
)

// consumerGroup is what a coordinator knows of a group whose partitions it
// assigns, besides what the Machine holds: signs of life, and changes on their way.
type consumerGroup struct {
	name string
	// sessions, by member id. Invariant: while not busy, those of the members
	// that the Machine has.
	sessions map[string]*session
	// What is read, with the number of members who do.
	names, patterns map[string]int
	modern          int // members who speak the consumer protocol

	// busy: a change is on its way. What comes meanwhile waits and becomes the
	// next change, all of it together.
	busy  bool
	queue []*consumerOp // bounded by the calls under way and the members
	// classic is the State that the group had until now, while it becomes one of
	// this kind.
	classic *State
}

// session is one member's life as the coordinator sees it.
type session struct {
	member   *ConsumerMember // as of the last change
	timeout  time.Duration
	deadline time.Time
	joined   time.Time // when it came; zero: to another coordinator, or as a classic member
	due      time.Time // when it was told to come; zero: by another coordinator, or as a classic member
	timer    timer     // fires not before the deadline it was set for
	// patience ends when the member has not given up what it must, or, one of the
	// classic protocol, has not joined or synced as it must.
	patience          timer
	mustJoin, mustGet bool
}

// consumerOp is one thing to do to a group.
type consumerOp struct {
	token Token // 0: no call, an event of the coordinator's own
	// change makes the change. It must not touch the draft and return an error.
	change func(d *draft) error
	// member is to be reconciled afterwards; empty: nobody. Set by change.
	member string
	owned  Partitions
	said   bool
	before Partitions // what the member was assigned before
	// done answers, with the member as committed.
	done func(m *ConsumerMember, err error)
}

// newConsumerGroup makes the live part of a group.
func (c *Coordinator) newConsumerGroup(name string) *consumerGroup {
	g := &consumerGroup{name: name, sessions: map[string]*session{}, names: map[string]int{}, patterns: map[string]int{}}
	c.consumers[name] = g
	c.bytes += liveBytes + len(name)
	return g
}

// loadConsumers builds a live group from what the Machine holds, as after a
// change of leader: each member has a full session. Topics may have changed
// while nobody led.
func (c *Coordinator) loadConsumers(name string) *consumerGroup {
	g := c.newConsumerGroup(name)
	c.resync(g)
	c.checkTopics(g)
	return g
}

// consumerGroup finds a group whose partitions are assigned here, if it has
// members or is about to; nil if not.
func (c *Coordinator) consumerGroup(name string) *consumerGroup {
	if g := c.consumers[name]; g != nil {
		return g
	}
	if st := c.m.State(name); !st.empty() && st.ByCoordinator {
		c.dropClassic(name, ErrLoading)
		return c.loadConsumers(name)
	}
	return nil
}

// dropClassic lets go of the live classic group of that name.
func (c *Coordinator) dropClassic(name string, err error) {
	if old := c.groups[name]; old != nil {
		c.answerAll(old, err)
		c.discard(old)
	}
}

// replicated is what the Machine has of the group; an empty one if nothing.
func (c *Coordinator) replicated(g *consumerGroup) *Consumers {
	if r := c.m.Consumers(g.name); r != nil {
		return r
	}
	return newConsumers()
}

// observeConsumers follows a change that may have come from elsewhere.
func (c *Coordinator) observeConsumers(g *consumerGroup, r Result) {
	switch {
	case g != nil && g.busy:
		// Its own change; or if not, that one will be refused, and looks again then.
	case g == nil && c.groups[r.Group] == nil && r.State.empty():
	case g == nil:
		c.dropClassic(r.Group, ErrLoading)
		c.loadConsumers(r.Group)
	case r.State == nil || !r.State.ByCoordinator:
		c.endConsumers(g, ErrLoading)
		if !r.State.empty() {
			c.load(r.Group, r.State)
		}
	default:
		c.resync(g)
		c.settleConsumers(g)
	}
}

// resync makes the sessions those of the members that there are.
func (c *Coordinator) resync(g *consumerGroup) {
	members := c.replicated(g).members
	for _, id := range slices.Sorted(maps.Keys(g.sessions)) {
		if members[id] == nil {
			c.see(g, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(members)) {
		c.see(g, id)
	}
}

// see takes over what the Machine has of one member.
func (c *Coordinator) see(g *consumerGroup, id string) {
	m, s := c.replicated(g).members[id], g.sessions[id]
	switch {
	case m == nil && s == nil:
		return
	case m == nil:
		c.endSession(g, s)
		return
	case s == nil:
		s = &session{}
		s.timer.fire = func() { c.consumerSilent(g, s) }
		s.patience.fire = func() { c.patienceOver(g, s) }
		g.sessions[id] = s
		c.present++
		c.bytes += sessionBytes + len(id)
	case s.member == m:
		return
	default:
		g.read(s.member, -1)
	}
	old := s.member
	s.member, s.timeout = m, c.cfg.ConsumerSession
	if m.Classic != nil {
		s.timeout = m.Classic.Session
	}
	g.read(m, +1)
	if old == nil {
		c.aliveConsumer(s)
		c.timers.set(&s.timer, s.deadline)
	}
	switch {
	case m.Classic != nil:
	case len(m.Revoking) == 0:
		c.timers.stop(&s.patience)
	case old == nil || len(old.Revoking) == 0 || old.Epoch != m.Epoch:
		c.timers.set(&s.patience, c.now.Add(m.Rebalance))
	}
}

func (c *Coordinator) endSession(g *consumerGroup, s *session) {
	c.timers.stop(&s.timer)
	c.timers.stop(&s.patience)
	g.read(s.member, -1)
	delete(g.sessions, s.member.ID)
	c.present--
	c.bytes -= sessionBytes + len(s.member.ID)
}

// read counts what the member reads.
func (g *consumerGroup) read(m *ConsumerMember, sign int) {
	if m.Classic == nil {
		g.modern += sign
	}
	for _, t := range m.Topics {
		if g.names[t] += sign; g.names[t] == 0 {
			delete(g.names, t)
		}
	}
	if m.Pattern != "" {
		if g.patterns[m.Pattern] += sign; g.patterns[m.Pattern] == 0 {
			delete(g.patterns, m.Pattern)
		}
	}
}

// aliveConsumer starts the session anew. It costs the same however many there are.
func (c *Coordinator) aliveConsumer(s *session) { s.deadline = c.now.Add(s.timeout) }

// endConsumers lets a live group go, whatever it holds.
func (c *Coordinator) endConsumers(g *consumerGroup, err error) {
	g.answerAll(err)
	for _, s := range g.sessions {
		c.endSession(g, s)
	}
	delete(c.consumers, g.name)
	c.bytes -= liveBytes + len(g.name)
}

// settleConsumers drops a group that holds nothing which the Machine does not know.
func (c *Coordinator) settleConsumers(g *consumerGroup) {
	if len(g.sessions) == 0 && !g.busy && len(g.queue) == 0 && c.consumers[g.name] == g {
		c.endConsumers(g, nil)
	}
}

// answerAll answers everybody who waits to be part of a change.
func (g *consumerGroup) answerAll(err error) {
	queue := g.queue
	g.queue = nil
	for _, op := range queue {
		op.done(nil, err)
	}
}

// do makes op part of the next change.
func (c *Coordinator) do(g *consumerGroup, op *consumerOp) {
	if op.done == nil {
		op.done = func(*ConsumerMember, error) {}
	}
	g.queue = append(g.queue, op)
	if !g.busy {
		c.flush(g)
	}
}

// flush makes one change of all that waits.
func (c *Coordinator) flush(g *consumerGroup) {
	for len(g.queue) > 0 && !g.busy && c.consumers[g.name] == g {
		c.changeNow(g)
	}
	c.settleConsumers(g)
}

// changeNow makes one change of all that waits now, and puts it on its way if
// it changes anything.
func (c *Coordinator) changeNow(g *consumerGroup) {
	ops := g.queue
	g.queue = nil
	if c.topics == nil {
		for _, op := range ops {
			op.done(nil, ErrLoading) // it is not known yet what there is to read
		}
		return
	}
	d := c.draftOf(g)
	var in []*consumerOp
	for _, op := range ops {
		if err := op.change(d); err != nil {
			op.done(nil, err)
			continue
		}
		in = append(in, op)
	}
	if d.stale {
		d.retarget(c.topics, c.topicsOf)
	}
	for _, op := range in {
		if m := d.member(op.member); m != nil {
			if next := d.reconcile(m, op.owned, op.said); next != m {
				d.put(next)
			}
		}
	}
	if len(in) == 0 || !d.changed() {
		if g.classic != nil {
			c.lookAgain(g)
		}
		for _, op := range in {
			op.done(d.member(op.member), nil)
		}
		return
	}
	c.proposeChange(g, d, in)
}

// draftOf begins a change: of what there is, or of the classic group that is to
// be of this kind from now on.
func (c *Coordinator) draftOf(g *consumerGroup) *draft {
	if g.classic == nil {
		return c.replicated(g).draft()
	}
	from := c.fromClassic(g.classic)
	d := from.draft()
	maps.Copy(d.members, from.members)
	maps.Copy(d.targets, from.targets)
	d.stale = len(from.members) > 0
	return d
}

// proposeChange commits the draft that ops made, and answers them.
func (c *Coordinator) proposeChange(g *consumerGroup, d *draft, ops []*consumerOp) {
	g.busy = true
	c.reserved += d.grown
	ids := slices.Collect(maps.Keys(d.members))
	c.propose(d.command(g.name, c.m.State(g.name).version()), func(r Result) {
		g.busy = false
		c.reserved -= d.grown
		if c.consumers[g.name] == g {
			c.changeCommitted(g, ids, r)
		}
		for _, op := range ops {
			if r.Err != nil {
				op.done(nil, outward(r.Err))
			} else {
				op.done(c.replicated(g).members[op.member], nil)
			}
		}
		if c.consumers[g.name] == g && !c.maybeBecomeClassic(g) {
			c.flush(g)
		}
	})
}

// changeCommitted takes over what became of a change of these members.
func (c *Coordinator) changeCommitted(g *consumerGroup, ids []string, r Result) {
	if r.Err != nil {
		c.lookAgain(g)
		return
	}
	g.classic = nil
	for _, id := range ids {
		c.see(g, id)
	}
}

// lookAgain begins anew with what the Machine has, after a change that failed: the
// group may be a classic one, still or again.
func (c *Coordinator) lookAgain(g *consumerGroup) {
	g.classic = nil
	if st := c.m.State(g.name); !st.empty() && !st.ByCoordinator {
		c.endConsumers(g, ErrLoading)
		c.load(g.name, st)
		return
	}
	c.resync(g)
}

// consumerSilent looks whether a member has really been silent for so long.
func (c *Coordinator) consumerSilent(g *consumerGroup, s *session) {
	if s.deadline.After(c.now) {
		c.timers.set(&s.timer, s.deadline)
		return
	}
	c.do(g, &consumerOp{change: func(d *draft) error {
		if m := d.member(s.member.ID); m != nil && !s.deadline.After(c.now) {
			d.remove(m)
			d.stale = true
		} else if m != nil {
			c.timers.set(&s.timer, s.deadline)
		}
		return nil
	}, done: func(_ *ConsumerMember, err error) { c.again(g, s, &s.timer, err) }})
}

// again tries once more to take out a member after the attempt failed.
func (c *Coordinator) again(g *consumerGroup, s *session, t *timer, err error) {
	if err != nil && c.leading && c.consumers[g.name] == g && g.sessions[s.member.ID] == s {
		c.timers.set(t, c.now.Add(time.Second))
	}
}

// patienceOver takes out a member that does not do what it must.
func (c *Coordinator) patienceOver(g *consumerGroup, s *session) {
	epoch := s.member.Epoch
	c.do(g, &consumerOp{change: func(d *draft) error {
		m := d.member(s.member.ID)
		if m == nil {
			return nil
		}
		if m.Classic != nil && (s.mustJoin || s.mustGet) || m.Classic == nil && len(m.Revoking) > 0 && m.Epoch == epoch {
			d.remove(m)
			d.stale = true
		}
		return nil
	}, done: func(_ *ConsumerMember, err error) { c.again(g, s, &s.patience, err) }})
}
