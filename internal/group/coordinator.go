package group

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/group/grouppb"
)

// Token names a call whose answer comes later; chosen by the caller, unique, not 0.
type Token uint64

// ProposalID names a proposal; never used twice by one Coordinator.
type ProposalID uint64

// Effects is what the caller has to carry out after a call. The order of the
// proposals matters for speed only.
type Effects struct {
	Replies   []Reply
	Proposals []Proposal
}

// Reply is the answer to the call that brought Token: *JoinResponse,
// *SyncResponse, *LeaveResponse, *CommitResponse, *DeleteOffsetsResponse; for
// DeleteGroup an error or nil.
type Reply struct {
	Token    Token
	Response any
}

// Proposal is a command to commit. Its outcome must be given to Applied.
type Proposal struct {
	ID   ProposalID
	Data []byte
}

// Coordinator runs the groups of one shard, of the classic protocol and of those
// whose partitions it assigns itself (KIP-848), while its node leads
// it. It is pure: time comes with the calls and must not go back; what is to be
// done comes out as Effects. It is not safe for concurrent use, and the Machine
// must not be applied to during a call.
type Coordinator struct {
	cfg Config
	m   *Machine

	leading bool
	now     time.Time
	// groups that have members or something under way. Invariant: every group
	// whose State has members is here while leading.
	groups map[string]*live
	// consumers is the same for groups whose partitions are assigned here.
	consumers map[string]*consumerGroup
	// present is how many sessions they have.
	present int
	// shares are the share groups that have members.
	shares map[string]*shareGroup
	// ledSince is when this coordinator took over.
	ledSince time.Time
	// topics is the newest view of them; nil: none yet. matched are those that a
	// pattern matches in it.
	topics  *Topics
	matched map[string][]*Topic
	timers  timers
	waiting map[Token]*member // joins and syncs that wait for others
	calls   map[ProposalID]func(Result)
	lastID  ProposalID
	// clockAt is up to when the machine's clock has been told the time.
	clockAt time.Time
	expire  timer
	out     Effects
	// bytes is what groups takes in memory, each member counted twice; reserved
	// is what commits under way may add to the Machine.
	bytes, reserved int
}

// NewCoordinator returns a coordinator that does not lead yet. Config must be valid.
func NewCoordinator(cfg Config, m *Machine) *Coordinator {
	c := &Coordinator{cfg: cfg, m: m, calls: map[ProposalID]func(Result){}}
	c.expire.fire = c.tellTime
	c.reset()
	return c
}

func (c *Coordinator) reset() {
	c.shares = map[string]*shareGroup{}
	c.consumers, c.matched = map[string]*consumerGroup{}, map[string][]*Topic{}
	c.groups, c.timers, c.waiting = map[string]*live{}, nil, map[Token]*member{}
	c.expire.index = 0
	c.bytes, c.reserved = 0, 0
	clear(c.calls)
}

// Lead takes over the shard with what the Machine knows. Every member gets a
// fresh session.
func (c *Coordinator) Lead(now time.Time) Effects {
	c.now = now
	if c.leading {
		return c.take()
	}
	c.leading, c.clockAt, c.ledSince = true, now, now
	for _, name := range slices.Sorted(maps.Keys(c.m.groups)) {
		switch st := c.m.State(name); {
		case st.empty():
		case st.ByCoordinator:
			c.loadConsumers(name)
		default:
			c.load(name, st)
		}
	}
	c.timers.set(&c.expire, now.Add(c.cfg.ExpireInterval))
	return c.take()
}

// Resign answers everybody who waits with ErrNotCoordinator and forgets what is
// not in the Machine. Outcomes that arrive later are ignored.
func (c *Coordinator) Resign() Effects {
	if c.leading {
		for _, name := range slices.Sorted(maps.Keys(c.groups)) {
			c.answerAll(c.groups[name], ErrNotCoordinator)
		}
		for _, name := range slices.Sorted(maps.Keys(c.consumers)) {
			c.consumers[name].answerAll(ErrNotCoordinator)
		}
		for _, id := range slices.Sorted(maps.Keys(c.calls)) {
			c.calls[id](Result{Err: ErrNotCoordinator})
		}
	}
	c.leading = false
	c.reset()
	return c.take()
}

// Applied brings a proposal's outcome: the Machine's Result, or a Result with
// any other error when the outcome is a failure or not known.
func (c *Coordinator) Applied(now time.Time, id ProposalID, r Result) Effects {
	c.now = now
	if done := c.calls[id]; done != nil {
		delete(c.calls, id)
		done(r)
	}
	return c.take()
}

// Observe must be told of every entry that the Machine applied while leading: a
// proposal that had been given up may land late and change a group behind the
// coordinator's back.
func (c *Coordinator) Observe(now time.Time, r Result) Effects {
	c.now = now
	if !c.leading || r.Err != nil || r.Group == "" {
		return c.take()
	}
	if g := c.consumers[r.Group]; g != nil || r.State != nil && r.State.ByCoordinator {
		c.observeConsumers(g, r)
	} else if c.groups[r.Group] != nil {
		c.open(r.Group)
	} else if !r.State.empty() {
		c.load(r.Group, r.State)
	}
	return c.take()
}

// Tick does what is due.
func (c *Coordinator) Tick(now time.Time) Effects {
	c.now = now
	for c.leading {
		t := c.timers.next(now)
		if t == nil {
			break
		}
		t.fire()
	}
	return c.take()
}

// Deadline is when Tick has something to do next; ok is false if never.
func (c *Coordinator) Deadline() (at time.Time, ok bool) {
	if len(c.timers) == 0 {
		return time.Time{}, false
	}
	return c.timers[0].at, true
}

// Cancel says that nobody waits for the call's answer any more. A member that
// joined keeps its place for as long as its session lasts.
func (c *Coordinator) Cancel(now time.Time, group string, t Token) {
	c.now = now
	if m := c.waiting[t]; m != nil {
		delete(c.waiting, t)
		if m.join == t {
			m.join = 0
		} else {
			m.sync = 0
		}
		c.alive(m)
		return
	}
	if g := c.groups[group]; g != nil {
		g.queue = slices.DeleteFunc(g.queue, func(q queued) bool { return q.token == t && t != 0 })
	}
}

// tellTime moves the Machine's clock by what has passed since it last did.
func (c *Coordinator) tellTime() {
	c.timers.set(&c.expire, c.now.Add(c.cfg.ExpireInterval))
	elapsed := c.now.Sub(c.clockAt)
	c.clockAt = c.now
	if c.m.Len() == 0 {
		return
	}
	c.propose(&grouppb.Command{Kind: &grouppb.Command_Expire{Expire: &grouppb.Expire{
		ElapsedMillis: elapsed.Milliseconds(), RetentionMillis: c.cfg.OffsetsRetention.Milliseconds(),
	}}}, func(Result) {})
}

func (c *Coordinator) take() Effects {
	e := c.out
	c.out = Effects{}
	return e
}

func (c *Coordinator) reply(t Token, response any) {
	c.out.Replies = append(c.out.Replies, Reply{t, response})
}

// propose asks for a command; done is called once, from Applied or Resign.
func (c *Coordinator) propose(cmd *grouppb.Command, done func(Result)) {
	cmd.TimeMillis = c.now.UnixMilli()
	data, err := proto.Marshal(cmd)
	if err != nil {
		panic(fmt.Sprintf("group: encoding a command: %v", err)) // strings are checked when they come in
	}
	c.lastID++
	c.calls[c.lastID] = done
	c.out.Proposals = append(c.out.Proposals, Proposal{c.lastID, data})
}

// change proposes a change of the group's State. Until its outcome is there the
// group is busy: what would change it too waits in its queue.
func (c *Coordinator) change(g *live, cmd *grouppb.Command, ok func()) {
	g.busy = true
	c.propose(cmd, func(r Result) {
		g.busy = false
		switch {
		case c.groups[g.name] != g: // dropped meanwhile; everybody has been answered
		case r.Err != nil:
			c.reload(g)
		default:
			g.base = r.State
			ok()
			c.drain(g)
		}
	})
}

// enqueue runs now, or when the group is no longer busy. fail answers the call
// if it comes to neither.
func (c *Coordinator) enqueue(g *live, t Token, run func(), fail func(error)) {
	g.queue = append(g.queue, queued{t, run, fail})
	if !g.busy {
		c.drain(g)
	}
}

func (c *Coordinator) drain(g *live) {
	for len(g.queue) > 0 && !g.busy {
		q := g.queue[0]
		g.queue = g.queue[1:]
		q.run()
	}
	c.settle(g)
}

// settle drops a group that holds nothing which the Machine does not know.
func (c *Coordinator) settle(g *live) {
	if len(g.members) == 0 && len(g.pending) == 0 && !g.busy && len(g.queue) == 0 && g.phase == Empty && c.groups[g.name] == g {
		c.discard(g)
	}
}

// open finds the group, nil if there is none, and makes sure that it is built
// on what the Machine holds: a late proposal may have changed that.
func (c *Coordinator) open(name string) *live {
	g, st := c.groups[name], c.m.State(name)
	switch {
	case g == nil && st == nil:
		return nil
	case g == nil:
		return c.load(name, st)
	case g.busy || g.base == st:
		return g
	case len(g.members) == 0 && st.empty():
		g.adopt(st)
		return g
	}
	c.reload(g)
	if c.consumers[name] != nil {
		return nil // it became one of the other kind
	}
	return c.open(name)
}

// reload gives up what is under way and starts again from the Machine.
func (c *Coordinator) reload(g *live) {
	c.answerAll(g, ErrLoading)
	c.discard(g)
	switch st := c.m.State(g.name); {
	case st.empty():
	case st.ByCoordinator:
		c.loadConsumers(g.name)
	default:
		c.load(g.name, st)
	}
}

// answerAll answers everybody who waits in the group.
func (c *Coordinator) answerAll(g *live, err error) {
	for _, m := range g.ordered() {
		c.answer(m, err)
	}
	queue := g.queue
	g.queue = nil
	for _, q := range queue {
		if q.fail != nil {
			q.fail(err)
		}
	}
}

// answer ends what the member waits for.
func (c *Coordinator) answer(m *member, err error) {
	if m.join != 0 {
		c.replyJoin(m, &JoinResponse{Err: err, Generation: -1, MemberID: m.ID})
	}
	if m.sync != 0 {
		c.replySync(m, &SyncResponse{Err: err})
	}
}

func (c *Coordinator) replyJoin(m *member, r *JoinResponse) {
	if m.join != 0 {
		c.reply(m.join, r)
		delete(c.waiting, m.join)
	}
	m.join = 0
	c.alive(m)
}

func (c *Coordinator) replySync(m *member, r *SyncResponse) {
	if m.sync != 0 {
		c.reply(m.sync, r)
		delete(c.waiting, m.sync)
	}
	m.sync = 0
	c.alive(m)
}

// alive starts the member's session anew. It costs the same however many there are.
func (c *Coordinator) alive(m *member) { m.deadline = c.now.Add(m.Session) }
