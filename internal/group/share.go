package group

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// shareGroup is a share group that has members. Nothing of it is replicated: members of
// a share group read the same partitions side by side, so that an assignment gives no
// right which must not be given twice. Who holds which message the partitions know. A
// coordinator that takes over takes members in as they come, with the epochs that
// they have (adopts).
type shareGroup struct {
	name  string
	epoch int32 // counts the changes of who is in and what is read
	// members by id. Invariant: there is at least one.
	members map[string]*shareMember
	bytes   int // of the members
	// stale: what members are assigned is not of this epoch yet.
	stale bool
	// reads are the topics that members read, and topicsHash is of those of them that
	// were there when partitions were assigned last.
	reads      []string
	topicsHash uint64
}

// shareMember is one member.
type shareMember struct {
	id, zone, clientID, clientHost string
	topics                         []string // sorted
	epoch                          int32    // that it was told last
	assigned                       Partitions
	session                        time.Duration
	deadline                       time.Time // end of the session unless a sign of life comes
	timer                          timer     // fires not before the deadline it was set for
}

func (m *shareMember) bytes() int {
	n := consumerBytes + sessionBytes + 2*len(m.id) + len(m.zone) + len(m.clientID) + len(m.clientHost)
	for _, t := range m.topics {
		n += 16 + len(t)
	}
	return n
}

// ShareHeartbeat is how a member joins, stays in and leaves a share group. It waits for
// nothing.
func (c *Coordinator) ShareHeartbeat(now time.Time, req *ShareHeartbeatRequest) *ShareHeartbeatResponse {
	c.now = now
	refuse := func(err error) *ShareHeartbeatResponse {
		return &ShareHeartbeatResponse{Err: err, MemberID: req.MemberID}
	}
	if err := c.checkShare(req); err != nil {
		return refuse(err)
	}
	g := c.shares[req.Group]
	var m *shareMember
	if g != nil {
		m = g.members[req.MemberID]
	}
	switch {
	case req.Epoch == leave && m == nil:
		return refuse(ErrUnknownMember)
	case req.Epoch == leave:
		c.removeShare(g, m)
		return &ShareHeartbeatResponse{MemberID: req.MemberID, Epoch: leave}
	case m == nil && req.Epoch > 0 && !c.adopts(now):
		return refuse(ErrUnknownMember)
	case m == nil && req.Epoch > 0 && req.Topics == nil:
		return refuse(ErrLoading) // it says all there is of it when it comes again
	case m != nil && req.Epoch > m.epoch:
		return refuse(fmt.Errorf("%w: the member says %d, it was given %d: it must join again", ErrFencedEpoch, req.Epoch, m.epoch))
	}
	g, m, err := c.admitShare(g, m, req)
	if err != nil {
		return refuse(err)
	}
	return c.beatShare(g, m, req)
}

// beatShare answers a member that is alive.
func (c *Coordinator) beatShare(g *shareGroup, m *shareMember, req *ShareHeartbeatRequest) *ShareHeartbeatResponse {
	m.session = req.Session
	if m.session <= 0 {
		m.session = c.cfg.ConsumerSession
	}
	m.deadline = c.now.Add(m.session)
	if m.timer.index == 0 || m.deadline.Before(m.timer.at) {
		c.timers.set(&m.timer, m.deadline)
	}
	r := &ShareHeartbeatResponse{MemberID: m.id, Interval: req.Interval}
	if r.Interval <= 0 {
		r.Interval = c.cfg.ConsumerInterval
	}
	before := m.assigned
	c.assignShare(g)
	if r.Epoch = g.epoch; req.Epoch != g.epoch || req.Topics != nil || !m.assigned.equal(before) {
		r.Assignment, r.HasAssignment = m.assigned, true
	}
	m.epoch = g.epoch
	return r
}

// adopts says that members may come which an earlier coordinator took in.
func (c *Coordinator) adopts(now time.Time) bool {
	return now.Sub(c.ledSince) < 2*c.cfg.ConsumerSession
}

// checkShare looks at the request, and at whether the name is a stream group's.
func (c *Coordinator) checkShare(req *ShareHeartbeatRequest) error {
	invalid := func(text string) error { return fmt.Errorf("%w: %s", ErrInvalidRequest, text) }
	switch {
	case !c.leading:
		return ErrNotCoordinator
	case checkName(req.Group) != nil:
		return invalid("the group id is empty, too long, or not text")
	case req.MemberID == "" || len(req.MemberID) > MaxNameBytes || !utf8.ValidString(req.MemberID):
		return invalid("the member id is empty, too long, or not text")
	case len(req.Zone) > MaxNameBytes || !utf8.ValidString(req.Zone):
		return invalid("the rack id is too long, or not text")
	case req.Epoch < leave:
		return invalid("the member epoch is below -1")
	case req.Epoch == 0 && len(req.Topics) == 0:
		return invalid("who joins must say what topics it reads")
	case slices.ContainsFunc(req.Topics, func(t string) bool { return !utf8.ValidString(t) }):
		return invalid("a topic's name is not text")
	case c.topics == nil:
		return ErrLoading // it is not known yet what there is to read
	case c.streams(req.Group):
		return fmt.Errorf("%w: %q is a consumer group with members", ErrGroupNotFound, req.Group)
	}
	req.ClientID, req.ClientHost = strings.ToValidUTF8(req.ClientID, "?"), strings.ToValidUTF8(req.ClientHost, "?")
	return nil
}

// streams says that the name is that of a stream group with members.
func (c *Coordinator) streams(name string) bool {
	if g := c.groups[name]; g != nil && (len(g.members) > 0 || g.busy) {
		return true
	}
	return c.consumers[name] != nil || !c.m.State(name).empty()
}

// shared refuses stream members of a group that share members are in.
func (c *Coordinator) shared(name string) bool { return c.shares[name] != nil }

// admitShare takes over what the request says of its member, who may be new.
func (c *Coordinator) admitShare(g *shareGroup, m *shareMember, req *ShareHeartbeatRequest) (*shareGroup, *shareMember, error) {
	next := shareMember{id: req.MemberID}
	if m != nil {
		next = *m
	}
	next.clientID, next.clientHost = req.ClientID, req.ClientHost
	if req.Zone != "" {
		next.zone = req.Zone
	}
	if req.Topics != nil {
		next.topics = sortedTopics(req.Topics)
	}
	size := next.bytes()
	more := size
	switch {
	case m != nil:
		more -= m.bytes()
	case g == nil && c.full():
		return nil, nil, ErrTooManyGroups
	case g != nil && len(g.members) >= c.cfg.MaxMembers:
		return nil, nil, ErrGroupFull
	}
	switch {
	case size > c.cfg.MaxMemberBytes:
		return nil, nil, fmt.Errorf("%w: the member says more than %d bytes of itself", ErrTooLarge, c.cfg.MaxMemberBytes)
	case g != nil && more > 0 && g.bytes+more > c.cfg.MaxGroupBytes:
		return nil, nil, ErrGroupFull
	case !c.takes(more):
		return nil, nil, ErrShardFull
	}
	if g == nil {
		g = &shareGroup{name: req.Group, members: map[string]*shareMember{}}
		c.shares[req.Group] = g
		c.bytes += liveBytes + len(req.Group)
	}
	g.bytes += more
	c.bytes += more
	changed := m == nil || !slices.Equal(m.topics, next.topics)
	if m == nil {
		m = &shareMember{}
		g.members[next.id] = m
		next.timer.fire = func() { c.shareSilent(g, m) }
		g.epoch = max(g.epoch, req.Epoch) // of one that an earlier coordinator took in
		*m = next
	} else {
		m.zone, m.clientID, m.clientHost, m.topics = next.zone, next.clientID, next.clientHost, next.topics
	}
	if changed {
		g.changed()
	}
	return g, m, nil
}

func (g *shareGroup) changed() {
	g.epoch++
	g.stale = true
}

// shareSilent looks whether a member has really been silent for so long.
func (c *Coordinator) shareSilent(g *shareGroup, m *shareMember) {
	if m.deadline.After(c.now) {
		c.timers.set(&m.timer, m.deadline)
		return
	}
	c.removeShare(g, m)
}

// removeShare takes a member out, and forgets a group that has none left.
func (c *Coordinator) removeShare(g *shareGroup, m *shareMember) {
	c.timers.stop(&m.timer)
	delete(g.members, m.id)
	g.bytes -= m.bytes()
	c.bytes -= m.bytes()
	g.changed()
	if len(g.members) == 0 {
		delete(c.shares, g.name)
		c.bytes -= liveBytes + len(g.name)
	}
}

// checkShareTopics begins a new epoch in groups for whom topics changed.
func (c *Coordinator) checkShareTopics() {
	for _, name := range slices.Sorted(maps.Keys(c.shares)) {
		if g := c.shares[name]; !g.stale && c.hashShared(g) != g.topicsHash {
			g.changed()
		}
	}
}

func (c *Coordinator) hashShared(g *shareGroup) (h uint64) {
	for _, name := range g.reads {
		if t := c.topics.byName[name]; t != nil {
			h += t.hash
		}
	}
	return h
}

// DescribeShare tells who is in the group and who reads what.
func (c *Coordinator) DescribeShare(name string) *ShareDescription {
	d := &ShareDescription{Group: name, Topics: c.topics}
	if d.Err = c.check(name); d.Err != nil {
		return d
	}
	g := c.shares[name]
	if g == nil {
		d.Err = ErrGroupNotFound
		return d
	}
	c.assignShare(g)
	d.Epoch = g.epoch
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		m := g.members[id]
		d.Members = append(d.Members, DescribedShareMember{
			ID: m.id, Zone: m.zone, ClientID: m.clientID, ClientHost: m.clientHost, Epoch: m.epoch, Topics: m.topics, Assigned: m.assigned,
		})
	}
	return d
}
