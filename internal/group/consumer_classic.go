package group

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tube-mq/tube/internal/group/grouppb"
	"github.com/tube-mq/tube/internal/record"
)

// A group may have members of both protocols while its clients are replaced one
// by one. It is one whose partitions the coordinator assigns as long as one of
// them speaks the consumer protocol; members of the classic one are told of
// their next assignment by a rebalance of their own: their generation is their
// epoch.

// mayUpgrade tells whether the classic group may become one of the other kind.
func (c *Coordinator) mayUpgrade(g *live) error {
	switch {
	case len(g.members) == 0:
		return nil
	case g.protocolType != ConsumerProtocol:
		return fmt.Errorf("%w of the consumer protocol: %q is a classic group of type %q", ErrGroupNotFound, g.name, g.protocolType)
	case !c.cfg.Migration.upgrades():
		return fmt.Errorf("%w of the consumer protocol: %q is a classic group, and the migration policy is %s", ErrGroupNotFound, g.name, c.cfg.Migration)
	case g.base.empty() || !g.base.Assigned || c.topics == nil:
		return ErrLoading // it is not known just now who has what
	}
	for i := range g.base.Members {
		if _, ok := parseSubscription(g.base.Members[i].metadata(g.base.Protocol)); !ok {
			return fmt.Errorf("%w of the consumer protocol: what members of the classic group %q read is not understood", ErrGroupNotFound, g.name)
		}
	}
	return nil
}

// fromClassic is the classic group in the other form: who had what has it still.
// What a member said it has when it joined is its own too, unless it was given to
// another: it may not have heard yet that it is to give it up.
func (c *Coordinator) fromClassic(st *State) *Consumers {
	r := newConsumers()
	r.Epoch, r.TargetEpoch, r.Assignor = st.Generation, st.Generation, Assignors[0]
	for i := range st.Members {
		m := &st.Members[i]
		s, _ := parseSubscription(m.metadata(st.Protocol))
		n := &ConsumerMember{
			ID: m.ID, Instance: m.Instance, Zone: s.zone, ClientID: m.ClientID, ClientHost: m.ClientHost, Rebalance: m.Rebalance,
			Topics: s.topics, Epoch: st.Generation, PreviousEpoch: st.Generation,
			Classic: &Classic{Session: m.Session, Protocols: m.Protocols},
		}
		for _, tp := range c.byName(parseAssignment(m.Assignment)) {
			if r.owners[tp] == "" { // no assignment of clients is trusted to give each partition once
				n.Assigned = append(n.Assigned, tp)
			}
		}
		r.put(n)
		r.setTarget(n.ID, n.Assigned)
	}
	for i := range st.Members {
		n := r.members[st.Members[i].ID]
		s, _ := parseSubscription(st.Members[i].metadata(st.Protocol))
		has := *n
		for _, tp := range c.byName(s.owned) {
			if r.owners[tp] == "" {
				has.Assigned = has.Assigned.plus(Partitions{tp})
			}
		}
		r.put(&has)
	}
	return r
}

// classicJoin is a JoinGroup in such a group.
func (c *Coordinator) classicJoin(g *consumerGroup, t Token, req *JoinRequest) {
	refuse := func(err error) { c.refuseJoin(t, req.MemberID, err) }
	sub, ok := parseSubscription(req.Protocols[0].Metadata)
	if req.ProtocolType != ConsumerProtocol || !ok {
		refuse(ErrInconsistentProtocol)
		return
	}
	op := &consumerOp{token: t, owned: c.byName(sub.owned), said: true}
	op.change = func(d *draft) error {
		m, err := c.admitClassic(d, req, sub)
		if err == nil {
			op.member = m.ID
		}
		return err
	}
	op.done = func(m *ConsumerMember, err error) {
		if err == nil && m == nil {
			err = ErrUnknownMember
		}
		if err != nil {
			refuse(err)
			return
		}
		if s := g.sessions[m.ID]; s != nil {
			c.aliveConsumer(s)
			s.mustJoin, s.mustGet = false, true
			c.timers.set(&s.patience, c.now.Add(m.Rebalance))
		}
		c.reply(t, &JoinResponse{Generation: m.Epoch, ProtocolType: ConsumerProtocol, Protocol: m.Classic.Protocols[0].Name, MemberID: m.ID})
	}
	c.do(g, op)
}

// admitClassic finds the member, or makes it, and takes over what it says.
func (c *Coordinator) admitClassic(d *draft, req *JoinRequest, sub subscribed) (*ConsumerMember, error) {
	var m, old *ConsumerMember
	id := req.MemberID
	switch {
	case id == "" && req.Instance != "":
		if old = d.static(req.Instance); old != nil && old.Classic == nil && old.Epoch != leftForNow {
			return nil, ErrUnreleasedInstance
		}
		m, id = old, req.FreshID
	case id == "":
		id = req.FreshID // a name that was not promised hurts nobody here: it joins when it comes
	default:
		m = d.member(id)
		if err := checkIdentity(d.static, m, id, req.Instance); err != nil {
			return nil, err
		}
	}
	next := &ConsumerMember{ID: id}
	if m != nil {
		*next = *m
	}
	next.ID, next.ClientID, next.ClientHost, next.Rebalance = id, req.ClientID, req.ClientHost, req.Rebalance
	next.Topics, next.Pattern, next.Zone = sub.topics, "", sub.zone
	if req.Instance != "" {
		next.Instance = req.Instance
	}
	next.Classic = &Classic{Session: req.Session, Protocols: req.Protocols}
	if old != nil || next.Epoch < 0 {
		next.restart()
	}
	reads := m == nil || !slices.Equal(m.Topics, next.Topics) || m.Pattern != "" || m.Zone != next.Zone
	return next, c.replaceConsumer(d, m, old, next, reads)
}

// classicMember checks a call of a member of the classic protocol.
func (c *Coordinator) classicMember(g *consumerGroup, id, instance string, generation int32) (*session, error) {
	if g.classic != nil {
		return nil, ErrRebalancing // it is about to be known
	}
	d := c.replicated(g).view()
	m := d.member(id)
	if err := checkIdentity(d.static, m, id, instance); err != nil {
		return nil, err
	}
	s := g.sessions[id]
	switch {
	case m.Classic == nil || s == nil:
		return nil, ErrUnknownMember
	case m.Epoch != generation:
		return nil, ErrIllegalGeneration
	}
	return s, nil
}

// mustRejoin reports that there is something new for the member.
func (c *Coordinator) mustRejoin(g *consumerGroup, m *ConsumerMember) bool {
	d := c.replicated(g).view()
	return len(m.Revoking) > 0 || d.reconcile(m, nil, true) != m
}

// classicSync is a SyncGroup in such a group.
func (c *Coordinator) classicSync(g *consumerGroup, t Token, req *SyncRequest) {
	s, err := c.classicMember(g, req.MemberID, req.Instance, req.Generation)
	switch {
	case err != nil:
		c.reply(t, &SyncResponse{Err: err})
		return
	case req.ProtocolType != "" && req.ProtocolType != ConsumerProtocol || req.Protocol != "" && req.Protocol != s.member.Classic.Protocols[0].Name:
		c.reply(t, &SyncResponse{Err: ErrInconsistentProtocol})
		return
	case s.mustJoin:
		c.reply(t, &SyncResponse{Err: ErrRebalancing})
		return
	}
	c.aliveConsumer(s)
	s.mustGet = false
	c.timers.stop(&s.patience)
	c.reply(t, &SyncResponse{
		ProtocolType: ConsumerProtocol, Protocol: s.member.Classic.Protocols[0].Name, Assignment: encodeAssignment(c.named(s.member.Assigned)),
	})
}

// classicHeartbeat is a Heartbeat in such a group.
func (c *Coordinator) classicHeartbeat(g *consumerGroup, req *HeartbeatRequest) error {
	s, err := c.classicMember(g, req.MemberID, req.Instance, req.Generation)
	if err != nil {
		return err
	}
	c.aliveConsumer(s)
	if s.mustGet || !s.mustJoin && !c.mustRejoin(g, s.member) {
		return nil
	}
	if !s.mustJoin {
		s.mustJoin = true
		c.timers.set(&s.patience, c.now.Add(s.member.Rebalance))
	}
	return ErrRebalancing
}

// classicLeave is a LeaveGroup in such a group. An administrator may take out
// any member by its instance.
func (c *Coordinator) classicLeave(g *consumerGroup, t Token, req *LeaveRequest) {
	r := &LeaveResponse{Errs: make([]error, len(req.Members))}
	c.do(g, &consumerOp{token: t, change: func(d *draft) error {
		for i, l := range req.Members {
			m := d.member(l.ID)
			if l.ID == "" && l.Instance != "" {
				m = d.static(l.Instance)
			}
			if m == nil {
				r.Errs[i] = ErrUnknownMember
				continue
			}
			if r.Errs[i] = checkIdentity(d.static, m, m.ID, l.Instance); r.Errs[i] == nil {
				d.remove(m)
				d.stale = true
			}
		}
		return nil
	}, done: func(_ *ConsumerMember, err error) {
		if err != nil {
			r = &LeaveResponse{Err: err}
		}
		c.reply(t, r)
	}})
}

// maybeBecomeClassic makes the group classic once nobody in it speaks the
// consumer protocol; true if that is under way.
func (c *Coordinator) maybeBecomeClassic(g *consumerGroup) bool {
	if len(g.sessions) == 0 || g.modern > 0 || !c.cfg.Migration.downgrades() {
		return false
	}
	g.busy = true
	st := c.toClassic(c.replicated(g))
	c.propose(&grouppb.Command{Kind: &grouppb.Command_BecomeClassic{BecomeClassic: &grouppb.BecomeClassic{
		Group: g.name, Base: uint64(c.m.State(g.name).version()), State: st.proto(),
	}}}, func(r Result) {
		g.busy = false
		if c.consumers[g.name] != g {
			return
		}
		if r.Err != nil {
			c.lookAgain(g)
			c.flush(g)
			return
		}
		c.endConsumers(g, ErrLoading)
		old := c.load(g.name, r.State)
		c.prepare(old) // clients assign again
		c.settle(old)
	})
	return true
}

// toClassic is the group in the form of a generation that has its assignments.
func (c *Coordinator) toClassic(r *Consumers) *State {
	st := &State{ProtocolType: ConsumerProtocol, Generation: r.Epoch, Assigned: true}
	knows := map[string]int{}
	for _, id := range r.ids() {
		m := r.members[id]
		n := Member{
			ID: m.ID, Instance: m.Instance, ClientID: m.ClientID, ClientHost: m.ClientHost,
			Session: m.Classic.Session, Rebalance: m.Rebalance, Protocols: m.Classic.Protocols, Assignment: encodeAssignment(c.named(m.Assigned)),
		}
		st.Members = append(st.Members, n)
		for _, p := range n.Protocols {
			if knows[p.Name]++; knows[p.Name] == len(r.members) && st.Protocol == "" {
				st.Protocol = p.Name
			}
		}
	}
	st.Leader = st.Members[0].ID
	return st
}

// byName finds the partitions of topics that a client names.
func (c *Coordinator) byName(topics []namedPartitions) Partitions {
	var out []record.TopicPartition
	for _, n := range topics {
		if c.topics == nil || c.topics.byName[n.topic] == nil {
			continue
		}
		for _, p := range n.partitions {
			out = append(out, record.TopicPartition{Topic: c.topics.byName[n.topic].ID, Partition: p})
		}
	}
	return NewPartitions(out)
}

// named is the other way round; a topic that was deleted is left out.
func (c *Coordinator) named(ps Partitions) (out []namedPartitions) {
	ps.byTopic(func(id record.TopicID, partitions []record.Partition) {
		if t := c.topics.byID[id]; t != nil {
			out = append(out, namedPartitions{t.Name, partitions})
		}
	})
	slices.SortFunc(out, func(a, b namedPartitions) int { return strings.Compare(a.topic, b.topic) })
	return out
}
