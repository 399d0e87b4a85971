package group

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// maxPatternBytes bounds a subscription's regular expression.
const maxPatternBytes = 4096

// Beat is a heartbeat that changes nothing, answered at once; nil if it is to go
// the long way of ConsumerHeartbeat. It costs no entry, and the same however
// many members there are.
func (c *Coordinator) Beat(now time.Time, req *ConsumerHeartbeatRequest) *ConsumerHeartbeatResponse {
	c.now = now
	g := c.consumers[req.Group]
	if !c.leading || g == nil || g.classic != nil || req.Epoch <= 0 {
		return nil
	}
	s := g.sessions[req.MemberID]
	if s == nil {
		return nil
	}
	r := c.replicated(g)
	d, m := r.view(), r.members[req.MemberID]
	if m == nil || m.Classic != nil || checkIdentity(d.static, m, req.MemberID, req.Instance) != nil || checkEpoch(m, req) != nil {
		return nil
	}
	if !req.changesNothing(m) {
		return nil
	}
	if d.reconcile(m, req.Owned, req.OwnedSaid) != m {
		return nil
	}
	c.aliveConsumer(s)
	return c.beaten(g, m, req, m.Assigned)
}

// changesNothing reports that what the request says of its member is known.
func (r *ConsumerHeartbeatRequest) changesNothing(m *ConsumerMember) bool {
	return (r.Rebalance <= 0 || r.Rebalance == m.Rebalance) && (r.Zone == "" || r.Zone == m.Zone) &&
		(r.Topics == nil || slices.Equal(r.Topics, m.Topics) || slices.Equal(sortedTopics(r.Topics), m.Topics)) &&
		(r.Pattern == nil || *r.Pattern == m.Pattern) && (r.Assignor == nil || *r.Assignor == m.Assignor)
}

// sortedTopics is the form in which subscriptions are kept.
func sortedTopics(topics []string) []string {
	out := slices.Clone(topics)
	slices.Sort(out)
	return slices.Compact(out)
}

// beaten answers a heartbeat of m, which was assigned before until now.
func (c *Coordinator) beaten(g *consumerGroup, m *ConsumerMember, req *ConsumerHeartbeatRequest, before Partitions) *ConsumerHeartbeatResponse {
	s := g.sessions[m.ID]
	if s != nil && req.Epoch == 0 {
		s.joined = c.now
	}
	r := &ConsumerHeartbeatResponse{MemberID: m.ID, Epoch: m.Epoch, Interval: c.interval(g, m)}
	if s != nil {
		s.due = c.now.Add(r.Interval)
	}
	if req.Epoch == 0 || req.Epoch < m.Epoch && req.Epoch == m.PreviousEpoch || req.full() || !m.Assigned.equal(before) {
		r.Assignment, r.HasAssignment = m.Assigned, true
	}
	return r
}

// ConsumerHeartbeat is how a member joins, stays in and leaves a group whose
// partitions are assigned here. The reply, a *ConsumerHeartbeatResponse, comes
// when what it says is committed. It does not wait for other members.
func (c *Coordinator) ConsumerHeartbeat(now time.Time, t Token, req *ConsumerHeartbeatRequest) Effects {
	c.now = now
	refuse := func(err error) { c.reply(t, &ConsumerHeartbeatResponse{Err: err, MemberID: req.MemberID}) }
	if err := c.checkHeartbeat(req); err != nil {
		refuse(err)
		return c.take()
	}
	g := c.consumerGroup(req.Group)
	switch {
	case g != nil:
		c.beat(g, t, req)
	case req.Epoch != 0:
		refuse(ErrUnknownMember)
	case c.shared(req.Group):
		refuse(fmt.Errorf("%w: %q is a share group with members", ErrGroupNotFound, req.Group))
	case c.m.State(req.Group) == nil && c.groups[req.Group] == nil && c.full():
		refuse(ErrTooManyGroups)
	default:
		c.found(t, req, refuse)
	}
	return c.take()
}

// found begins a group of this kind, or makes a classic one of that name become one.
func (c *Coordinator) found(t Token, req *ConsumerHeartbeatRequest, refuse func(error)) {
	old := c.open(req.Group)
	if old == nil {
		g := c.newConsumerGroup(req.Group)
		c.beat(g, t, req)
		return
	}
	c.enqueue(old, t, func() {
		if err := c.mayUpgrade(old); err != nil {
			refuse(err)
			return
		}
		was := old.base
		c.answerAll(old, ErrRebalancing)
		c.discard(old)
		g := c.newConsumerGroup(req.Group)
		if was != nil && !was.ByCoordinator {
			g.classic = was
		}
		c.beat(g, t, req)
	}, func(err error) {
		if errors.Is(err, ErrRebalancing) {
			err = ErrLoading // the group just became what it is to be; there is no rebalance in those
		}
		refuse(err)
	})
}

// checkHeartbeat looks at the request alone, and brings it into the form that is kept.
func (c *Coordinator) checkHeartbeat(req *ConsumerHeartbeatRequest) error {
	invalid := func(text string) error { return fmt.Errorf("%w: %s", ErrInvalidRequest, text) }
	switch {
	case !c.leading:
		return ErrNotCoordinator
	case checkName(req.Group) != nil:
		return invalid("the group id is empty, too long, or not text")
	case req.MemberID == "" || len(req.MemberID) > 2*MaxNameBytes || !utf8.ValidString(req.MemberID):
		return invalid("the member id is empty, too long, or not text")
	case len(req.Instance) > MaxNameBytes || !utf8.ValidString(req.Instance) || len(req.Zone) > MaxNameBytes || !utf8.ValidString(req.Zone):
		return invalid("the instance id or the rack id is too long, or not text")
	case req.Epoch < leftForNow:
		return invalid("the member epoch is below -2")
	case req.Epoch == 0 && req.Rebalance <= 0:
		return invalid("who joins must say its rebalance timeout")
	case req.Epoch == 0 && (!req.OwnedSaid || len(req.Owned) > 0):
		return invalid("who joins must say that it has no partitions")
	case req.Epoch == 0 && req.Topics == nil && req.Pattern == nil:
		return invalid("who joins must say what topics it reads")
	case req.Assignor != nil && *req.Assignor != "" && !slices.Contains(Assignors, *req.Assignor):
		return fmt.Errorf("%w %q; there are %s", ErrUnsupportedAssignor, *req.Assignor, strings.Join(Assignors, ", "))
	case slices.ContainsFunc(req.Topics, func(t string) bool { return !utf8.ValidString(t) }):
		return invalid("a topic's name is not text")
	}
	if req.Pattern != nil && *req.Pattern != "" {
		if len(*req.Pattern) > maxPatternBytes || !utf8.ValidString(*req.Pattern) {
			return fmt.Errorf("%w: longer than %d bytes, or not text", ErrInvalidPattern, maxPatternBytes)
		}
		if _, err := compilePattern(*req.Pattern); err != nil {
			return fmt.Errorf("%w: %v", ErrInvalidPattern, err)
		}
	}
	if req.Topics != nil {
		req.Topics = sortedTopics(req.Topics)
	}
	req.ClientID, req.ClientHost = strings.ToValidUTF8(req.ClientID, "?"), strings.ToValidUTF8(req.ClientHost, "?")
	return nil
}

// beat makes the heartbeat part of the group's next change.
func (c *Coordinator) beat(g *consumerGroup, t Token, req *ConsumerHeartbeatRequest) {
	op := &consumerOp{token: t, owned: req.Owned, said: req.OwnedSaid}
	op.change = func(d *draft) error {
		if req.Epoch < 0 {
			return c.leaveConsumers(d, req)
		}
		m, err := c.admit(d, req)
		if err != nil {
			return err
		}
		op.member, op.before = m.ID, m.Assigned
		return nil
	}
	op.done = func(m *ConsumerMember, err error) {
		switch {
		case err != nil:
			c.reply(t, &ConsumerHeartbeatResponse{Err: err, MemberID: req.MemberID})
		case req.Epoch < 0:
			c.reply(t, &ConsumerHeartbeatResponse{MemberID: req.MemberID, Epoch: req.Epoch})
		case m == nil:
			c.reply(t, &ConsumerHeartbeatResponse{Err: ErrUnknownMember, MemberID: req.MemberID}) // taken out in the same change
		default:
			if s := g.sessions[m.ID]; s != nil {
				c.aliveConsumer(s)
			}
			c.reply(t, c.beaten(g, m, req, op.before))
		}
	}
	if s := g.sessions[req.MemberID]; s != nil && req.Epoch >= 0 {
		c.aliveConsumer(s)
	}
	c.do(g, op)
}

// checkIdentity tells whether who calls is m.
func checkIdentity(static func(string) *ConsumerMember, m *ConsumerMember, id, instance string) error {
	if instance != "" {
		switch owner := static(instance); {
		case owner == nil:
			return ErrUnknownMember
		case owner.ID != id:
			return ErrFencedInstance
		}
	}
	if m == nil {
		return ErrUnknownMember
	}
	return nil
}

// checkEpoch fences who is not where it was brought to. One that missed the last
// answer is behind, and has nothing that it may not have.
func checkEpoch(m *ConsumerMember, req *ConsumerHeartbeatRequest) error {
	switch {
	case req.Epoch == m.Epoch:
		return nil
	case req.Epoch > m.Epoch:
		return fmt.Errorf("%w: the member says %d, it was given %d: it must drop its partitions and join again", ErrFencedEpoch, req.Epoch, m.Epoch)
	case req.Epoch != m.PreviousEpoch || !req.OwnedSaid || !req.Owned.within(m.Assigned):
		return fmt.Errorf("%w: the member says %d, it is at %d: it must drop its partitions and join again", ErrFencedEpoch, req.Epoch, m.Epoch)
	}
	return nil
}

// admit finds the member, or makes it, and takes over what it says of itself.
func (c *Coordinator) admit(d *draft, req *ConsumerHeartbeatRequest) (*ConsumerMember, error) {
	m := d.member(req.MemberID)
	if req.Epoch > 0 {
		if err := checkIdentity(d.static, m, req.MemberID, req.Instance); err != nil {
			return nil, err
		}
		if err := checkEpoch(m, req); err != nil {
			return nil, err
		}
		return c.updateConsumer(d, m, nil, req)
	}
	var old *ConsumerMember // a static member whose place it takes
	if req.Instance != "" {
		if old = d.static(req.Instance); old != nil && old.ID == req.MemberID {
			old = nil
		}
	}
	if old != nil && old.Classic == nil && old.Epoch != leftForNow {
		return nil, ErrUnreleasedInstance
	}
	if old != nil && m != nil {
		return nil, fmt.Errorf("%w: the member is in the group without this instance id", ErrInvalidRequest)
	}
	if old != nil {
		m = old
	}
	return c.updateConsumer(d, m, old, req)
}

// updateConsumer puts the member as the request says it is. old, if not nil, gives its
// place to it.
func (c *Coordinator) updateConsumer(d *draft, m, old *ConsumerMember, req *ConsumerHeartbeatRequest) (*ConsumerMember, error) {
	if m != nil && old == nil && m.Classic == nil && req.changesNothing(m) && (req.Instance == "" || req.Instance == m.Instance) && m.Epoch >= 0 {
		return m, nil
	}
	next := &ConsumerMember{ID: req.MemberID}
	if m != nil {
		*next = *m
	}
	next.ID, next.ClientID, next.ClientHost, next.Classic = req.MemberID, req.ClientID, req.ClientHost, nil
	req.tell(next)
	if old != nil || next.Epoch < 0 {
		next.restart()
	}
	reads := m == nil || !slices.Equal(m.Topics, next.Topics) || m.Pattern != next.Pattern
	return next, c.replaceConsumer(d, m, old, next, reads || m.Assignor != next.Assignor || m.Zone != next.Zone)
}

// tell writes what the request says into the member.
func (r *ConsumerHeartbeatRequest) tell(m *ConsumerMember) {
	if r.Instance != "" {
		m.Instance = r.Instance
	}
	if r.Zone != "" {
		m.Zone = r.Zone
	}
	if r.Rebalance > 0 {
		m.Rebalance = r.Rebalance
	}
	if r.Topics != nil {
		m.Topics = r.Topics
	} else if r.Epoch == 0 {
		m.Topics = nil
	}
	if r.Pattern != nil {
		m.Pattern = *r.Pattern
	} else if r.Epoch == 0 {
		m.Pattern = ""
	}
	if r.Assignor != nil {
		m.Assignor = *r.Assignor
	}
}

// restart makes the member one that has just come, with what it is to have: a
// process that takes another's place has given up what that one had.
func (m *ConsumerMember) restart() {
	m.Epoch, m.PreviousEpoch, m.Revoking, m.Waiting = 0, 0, nil, false
}

// replaceConsumer puts next in the place of m, or of old if that is another one.
func (c *Coordinator) replaceConsumer(d *draft, m, old, next *ConsumerMember, reads bool) error {
	size := next.bytes()
	if size > c.cfg.MaxMemberBytes+next.Assigned.bytes()*4+next.Revoking.bytes()*4 {
		return fmt.Errorf("%w: the member says more than %d bytes of itself", ErrTooLarge, c.cfg.MaxMemberBytes)
	}
	more := size
	if m != nil {
		more -= m.bytes()
	} else if d.count >= c.cfg.MaxMembers {
		return ErrGroupFull
	}
	if m == nil {
		more += sessionBytes + len(next.ID)
	}
	if more = max(0, more); more > 0 && d.base.bytes+d.grown+more > c.cfg.MaxGroupBytes {
		return ErrGroupFull
	}
	if more > 0 && !c.takes(d.grown+more) {
		return ErrShardFull
	}
	d.grown += more
	if old != nil {
		target := d.target(old.ID)
		d.remove(old)
		d.targets[next.ID] = target
	}
	d.put(next)
	d.stale = d.stale || reads
	return nil
}

// leaveConsumers takes the member out, or marks a static one as away.
func (c *Coordinator) leaveConsumers(d *draft, req *ConsumerHeartbeatRequest) error {
	m := d.member(req.MemberID)
	if err := checkIdentity(d.static, m, req.MemberID, req.Instance); err != nil {
		return err
	}
	if req.Epoch == leave {
		d.remove(m)
		d.stale = true
		return nil
	}
	if m.Instance == "" { // its own: franz-go does not repeat it when it goes
		return fmt.Errorf("%w: the member has no instance id to come back by", ErrInvalidRequest)
	}
	away := *m
	away.Epoch, away.PreviousEpoch, away.Revoking, away.Waiting = leftForNow, m.Epoch, nil, false
	d.put(&away)
	return nil
}

// DescribeConsumers tells who is in the group and who has what.
func (c *Coordinator) DescribeConsumers(name string) *ConsumerDescription {
	d := &ConsumerDescription{Group: name, Phase: Dead, Topics: c.topics}
	if d.Err = c.check(name); d.Err != nil {
		return d
	}
	r := c.m.Consumers(name)
	if r == nil {
		d.Err = ErrGroupNotFound
		if c.m.State(name) != nil || c.groups[name] != nil {
			d.Err = fmt.Errorf("%w of the consumer protocol: %q is a classic group", ErrGroupNotFound, name)
		}
		return d
	}
	d.Phase, d.Epoch, d.TargetEpoch, d.Assignor = r.phase(), r.Epoch, r.TargetEpoch, r.Assignor
	for _, id := range r.ids() {
		d.Members = append(d.Members, DescribedConsumer{r.members[id], r.targets[id]})
	}
	return d
}

// phase is the group's state as Kafka names it.
func (c *Consumers) phase() Phase {
	switch {
	case len(c.members) == 0:
		return Empty
	case c.TargetEpoch < c.Epoch:
		return Assigning
	}
	for _, m := range c.members {
		if !m.settled(c.TargetEpoch) {
			return Reconciling
		}
	}
	return Stable
}
