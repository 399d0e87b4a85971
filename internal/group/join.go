package group

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tube-mq/tube/internal/group/grouppb"
)

// Join asks for a place in the next generation. The reply, a *JoinResponse,
// comes when the generation is committed.
func (c *Coordinator) Join(now time.Time, t Token, req *JoinRequest) Effects {
	c.now = now
	refuse := func(err error) { c.refuseJoin(t, req.MemberID, err) }
	if err := c.checkJoin(req); err != nil {
		refuse(err)
		return c.take()
	}
	if g := c.consumerGroup(req.Group); g != nil {
		c.classicJoin(g, t, req)
		return c.take()
	}
	if c.shared(req.Group) {
		refuse(fmt.Errorf("%w: %q is a share group with members", ErrInconsistentProtocol, req.Group))
		return c.take()
	}
	g := c.open(req.Group)
	switch {
	case g == nil && req.MemberID != "":
		refuse(ErrUnknownMember)
		return c.take()
	case g == nil && c.full():
		refuse(ErrTooManyGroups)
		return c.take()
	case g == nil:
		g = c.newLive(req.Group)
	}
	c.enqueue(g, t, func() { c.join(g, t, req) }, refuse)
	return c.take()
}

func (c *Coordinator) refuseJoin(t Token, member string, err error) {
	c.reply(t, &JoinResponse{Err: err, Generation: -1, MemberID: member})
}

// full reports that the shard has no room for another group. It may count a
// group twice that is both stored and live, so it looks closer only near the limit.
func (c *Coordinator) full() bool {
	n := c.m.Len() + len(c.shares)
	if n+len(c.groups)+len(c.consumers) < c.cfg.MaxGroups {
		return false
	}
	for name := range c.consumers {
		if c.m.State(name) == nil {
			n++
		}
	}
	for _, g := range c.groups {
		if g.base == nil {
			n++
		}
	}
	return n >= c.cfg.MaxGroups
}

// checkJoin looks at the request alone, and brings it into the form that is kept.
func (c *Coordinator) checkJoin(req *JoinRequest) error {
	if !c.leading {
		return ErrNotCoordinator
	}
	if err := checkName(req.Group); err != nil {
		return err
	}
	if req.Session < c.cfg.MinSession || req.Session > c.cfg.MaxSession {
		return ErrSessionTimeout
	}
	if req.Rebalance <= 0 {
		req.Rebalance = req.Session
	}
	if req.ProtocolType == "" || len(req.Protocols) == 0 {
		return ErrInconsistentProtocol
	}
	if !utf8.ValidString(req.Instance) || !utf8.ValidString(req.ProtocolType) || len(req.Instance) > MaxNameBytes || len(req.MemberID) > 2*MaxNameBytes {
		return ErrInvalidRequest
	}
	for i, p := range req.Protocols {
		twice := slices.ContainsFunc(req.Protocols[:i], func(q Protocol) bool { return q.Name == p.Name })
		if twice || !utf8.ValidString(p.Name) {
			return ErrInconsistentProtocol
		}
	}
	req.ClientID, req.ClientHost = strings.ToValidUTF8(req.ClientID, "?"), strings.ToValidUTF8(req.ClientHost, "?")
	req.FreshID = strings.ToValidUTF8(req.FreshID, "?")
	if m := req.member(""); m.bytes() > c.cfg.MaxMemberBytes {
		return ErrTooLarge
	}
	return nil
}

func (r *JoinRequest) member(id string) Member {
	return Member{
		ID: id, Instance: r.Instance, ClientID: r.ClientID, ClientHost: r.ClientHost,
		Session: r.Session, Rebalance: r.Rebalance, Protocols: r.Protocols,
	}
}

// join decides what kind of join it is.
func (c *Coordinator) join(g *live, t Token, req *JoinRequest) {
	var old *member
	switch {
	case req.MemberID == "" && req.Instance != "":
		old = g.statics[req.Instance] // a static member that was started again, or nil
	case req.MemberID != "" && g.pending[req.MemberID] == nil:
		m, err := g.find(req.MemberID, req.Instance)
		if err != nil {
			c.refuseJoin(t, req.MemberID, err)
			return
		}
		old = m
	}
	if !g.shares(req.ProtocolType, req.Protocols, old) {
		c.refuseJoin(t, req.MemberID, ErrInconsistentProtocol)
		return
	}
	if err := c.room(g, req, old); err != nil {
		c.refuseJoin(t, req.MemberID, err)
		return
	}
	switch {
	case old == nil:
		c.joinNew(g, t, req)
	case req.MemberID == "":
		c.joinReplacing(g, old, t, req)
	default:
		c.rejoin(g, old, t, req)
	}
}

// room refuses what would make the group larger than allowed.
func (c *Coordinator) room(g *live, req *JoinRequest, old *member) error {
	next := req.member(req.MemberID)
	size := g.bytes + next.bytes()
	switch {
	case old != nil:
		size -= old.bytes()
	case g.pending[req.MemberID] == nil && len(g.members)+len(g.pending) >= c.cfg.MaxMembers:
		return ErrGroupFull
	}
	if size > c.cfg.MaxGroupBytes {
		return ErrGroupFull
	}
	more := 2 * (size - g.bytes)
	if old == nil {
		more += memberBytes
	}
	if !c.takes(more) {
		return ErrShardFull
	}
	return nil
}

// joinNew adds a member, or gives it the id that it must come back with.
func (c *Coordinator) joinNew(g *live, t Token, req *JoinRequest) {
	id := req.MemberID
	if id == "" {
		id = req.FreshID
		if req.NeedsKnownID && req.Instance == "" {
			c.promise(g, id, req.Session)
			c.refuseJoin(t, id, ErrMemberIDRequired)
			return
		}
	}
	c.unpromise(g, id)
	g.protocolType = req.ProtocolType
	m := c.insert(g, req.member(id))
	g.newcomers = true
	c.wait(g, m, t)
	c.prepare(g)
}

// promise keeps an id for a client until its session would be over.
func (c *Coordinator) promise(g *live, id string, session time.Duration) {
	p := &timer{}
	p.fire = func() {
		c.unpromise(g, id)
		if !g.busy {
			c.maybeComplete(g)
		}
		c.settle(g)
	}
	c.unpromise(g, id)
	g.pending[id] = p
	c.bytes += promiseBytes + len(id)
	c.timers.set(p, c.now.Add(session))
}

// wait marks the member as joined; t is answered with the generation.
func (c *Coordinator) wait(g *live, m *member, t Token) {
	if m.join != 0 { // the client asks again: the earlier call is not waited for any more
		c.replyJoin(m, &JoinResponse{Err: ErrRebalancing, Generation: -1, MemberID: m.ID})
	}
	m.join = t
	c.waiting[t] = m
	if !m.joined {
		m.joined = true
		g.joined++
	}
}

// rejoin is a member's next join.
func (c *Coordinator) rejoin(g *live, m *member, t Token, req *JoinRequest) {
	same := m.matches(req.Protocols)
	if same && (g.phase == Completing || g.phase == Stable && g.leader != m.ID) {
		// It missed the answer; nothing changes for the others.
		c.reply(t, g.joinResponse(m))
		c.alive(m)
		return
	}
	c.update(g, m, req)
	c.wait(g, m, t)
	c.prepare(g)
}

func (m *Member) matches(protocols []Protocol) bool {
	return slices.EqualFunc(m.Protocols, protocols, func(a, b Protocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}

// update takes over what the request says of the member. A static member stays
// one, also when a rejoin leaves the instance out.
func (c *Coordinator) update(g *live, m *member, req *JoinRequest) {
	c.count(g, m, -1)
	instance, assignment := m.Instance, m.Assignment
	m.Member = req.member(m.ID)
	m.Instance, m.Assignment = instance, assignment
	c.count(g, m, +1)
	g.protocolType = req.ProtocolType
}

// joinReplacing gives a static member's place to its next incarnation under a
// new id; the old one is fenced. If it reads what the old one read, the others
// are not disturbed (KIP-345).
func (c *Coordinator) joinReplacing(g *live, old *member, t Token, req *JoinRequest) {
	if g.phase != Stable || !old.readsAlike(g.protocol, req) || g.chooseWith(old, req) != g.protocol {
		c.rename(g, old, req.FreshID)
		c.update(g, old, req)
		c.wait(g, old, t)
		c.prepare(g)
		return
	}
	oldID, next := old.ID, req.member(req.FreshID)
	cmd := &grouppb.Command{Kind: &grouppb.Command_ReplaceMember{ReplaceMember: &grouppb.ReplaceMember{
		Group: g.name, Base: uint64(g.base.version()), OldMember: oldID, Member: next.proto(),
	}}}
	// The reply is the first thing to do once the proposal's fate is known; as
	// part of the queue it is given whatever that is.
	g.queue = slices.Insert(g.queue, 0, queued{t, func() {
		r := g.joinResponse(old)
		if g.leader == old.ID && !req.CanSkipAssignment {
			r.Leader, r.Members, r.SkipAssignment = oldID, nil, false // it would assign again: let it follow
		} else if g.leader == old.ID {
			r.SkipAssignment = true
		}
		c.reply(t, r)
	}, func(err error) { c.refuseJoin(t, "", err) }})
	c.change(g, cmd, func() {
		c.rename(g, old, req.FreshID)
		c.update(g, old, req)
		c.alive(old)
	})
}

// rename gives a static member a new id. Whoever calls with the old one is fenced.
func (c *Coordinator) rename(g *live, m *member, id string) {
	c.answer(m, ErrFencedInstance)
	delete(g.members, m.ID)
	if g.leader == m.ID {
		g.leader = id
	}
	c.count(g, m, -1)
	m.ID = id
	c.count(g, m, +1)
	g.members[id] = m
}

// readsAlike reports that the request subscribes to what the member did. What
// else stands in the metadata (what it owns) differs after every start.
func (m *Member) readsAlike(protocol string, req *JoinRequest) bool {
	next := req.member("")
	was, is := m.metadata(protocol), next.metadata(protocol)
	if req.ProtocolType == ConsumerProtocol {
		a, okA := subscribedTopics(was)
		b, okB := subscribedTopics(is)
		if okA && okB {
			slices.Sort(a)
			slices.Sort(b)
			return slices.Equal(a, b)
		}
	}
	return bytes.Equal(was, is)
}

// chooseWith is the protocol that would be chosen if old were as req says.
func (g *live) chooseWith(old *member, req *JoinRequest) string {
	was := old.Member
	g.count(old, -1)
	old.Member = req.member(was.ID)
	g.count(old, +1)
	defer func() {
		g.count(old, -1)
		old.Member = was
		g.count(old, +1)
	}()
	leader := g.members[g.leader]
	if leader == nil {
		leader = old
	}
	return g.choose(leader)
}

// joinResponse tells a member about the generation that there is.
func (g *live) joinResponse(m *member) *JoinResponse {
	r := &JoinResponse{
		Generation: g.generation, ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader, MemberID: m.ID,
	}
	if m.ID == g.leader {
		for _, o := range g.ordered() {
			r.Members = append(r.Members, JoinMember{o.ID, o.Instance, o.metadata(g.protocol)})
		}
	}
	return r
}
