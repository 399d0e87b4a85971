package group

import (
	"errors"
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// reign drives one group whose partitions the coordinator assigns: consumers
// join, leave, fall silent, lose answers; proposals are held, lost and land late;
// leaders change; topics come, grow and go. At all times no partition is read by
// two, and in the end each has its fair share.
type reign struct {
	t     *testing.T
	rng   *rand.Rand
	now   time.Time
	m     *Machine
	copy  *Machine // a second replica
	c     *Coordinator
	index record.Index

	underWay, lost []Proposal
	token          Token
	calls          map[Token]*consumer
	consumers      []*consumer // of all that ever were; the living first asked
	topics         map[string]int
	version        record.Index
	epochs         map[string]int32 // member id → highest epoch told
	mixed          bool             // members of both protocols
}

// consumer is a client: what it believes.
type consumer struct {
	id, instance, zone string
	topics             []string
	pattern            string
	epoch              int32
	reads              Partitions // what it reads at the moment
	gives              Partitions // of reads: what it is to give up, and has not yet
	waits              bool       // for an answer
	drop               bool       // the answer gets lost
	full               bool       // the next heartbeat says all
	silent, gone       bool
	// Of one that speaks the classic protocol: its generation is epoch.
	classic bool
	member  string // the id that it was given
	stage   stage
	assigns map[string][]byte
}

func newReign(t *testing.T, seed int64) *reign {
	r := &reign{
		t: t, rng: rand.New(rand.NewSource(seed)), now: time.Unix(1_800_000_000, 0), m: NewMachine(), copy: NewMachine(),
		calls: map[Token]*consumer{}, topics: map[string]int{"a": 3, "b": 5}, epochs: map[string]int32{},
	}
	cfg := DefaultConfig()
	cfg.MaxMembers = 8
	r.c = NewCoordinator(cfg, r.m)
	r.carry(r.c.Lead(r.now))
	r.tellTopics()
	return r
}

func (r *reign) tellTopics() {
	r.version++
	var list []*Topic
	for name, n := range r.topics {
		list = append(list, &Topic{ID: topicID(name), Name: name, Partitions: n})
	}
	r.carry(r.c.SetTopics(r.now, NewTopics(r.version, list)))
}

func TestNobodyReadsWhatAnotherReads(t *testing.T) {
	for seed := range int64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := newReign(t, seed)
			for range 500 {
				r.step()
				r.check()
				r.pass(time.Duration(r.rng.Intn(2500)) * time.Millisecond)
			}
			r.converge()
		})
	}
}

func (r *reign) pass(d time.Duration) {
	r.now = r.now.Add(d)
	if r.rng.Intn(3) > 0 {
		r.carry(r.c.Tick(r.now))
	}
}

func (r *reign) step() {
	switch n := r.rng.Intn(40); {
	case n < 3:
		r.born()
	case n < 24:
		if c := r.pick(); c != nil {
			r.beat(c)
		}
	case n < 28:
		if c := r.pick(); c != nil {
			c.giveUp()
		}
	case n < 34:
		r.commit(1 + r.rng.Intn(3))
	case n == 34:
		r.leave()
	case n == 35:
		if c := r.pick(); c != nil && r.rng.Intn(3) == 0 {
			c.silent = true
		}
	case n == 36:
		r.changeTopics()
	case n == 37:
		if c := r.pick(); c != nil {
			r.subscribe(c)
			c.full = true
		}
	default:
		r.trouble()
	}
}

// pick is one of the consumers that are there and do not wait for an answer.
func (r *reign) pick() *consumer {
	var there []*consumer
	for _, c := range r.consumers {
		if !c.gone && !c.silent && !c.waits {
			there = append(there, c)
		}
	}
	if len(there) == 0 {
		return nil
	}
	return there[r.rng.Intn(len(there))]
}

func (r *reign) born() {
	c := &consumer{id: fmt.Sprintf("m%02d", len(r.consumers)), zone: []string{"", "x", "y"}[r.rng.Intn(3)], full: true}
	if r.rng.Intn(3) == 0 {
		c.instance = []string{"i", "j"}[r.rng.Intn(2)]
	}
	if r.mixed && r.rng.Intn(6) > 0 {
		c.classic, c.epoch = true, -1
	}
	r.subscribe(c)
	r.consumers = append(r.consumers, c)
	r.beat(c)
}

func (r *reign) subscribe(c *consumer) {
	c.pattern, c.topics = "", [][]string{{"a", "b"}, {"a", "b"}, {"a"}, {"b", "c"}}[r.rng.Intn(4)]
	if !c.classic && r.rng.Intn(4) == 0 {
		c.pattern, c.topics = "[a-c]", []string{}
	}
}

// giveUp is the client's revocation, done.
func (c *consumer) giveUp() {
	if len(c.gives) > 0 && c.classic {
		c.stage = mustJoin // to tell so
	}
	c.reads, c.gives = c.reads.minus(c.gives), nil
}

// name is the member's id in the group.
func (c *consumer) name() string {
	if c.classic {
		return c.member
	}
	return c.id
}

// beat sends a heartbeat. A revocation that is not done yet is not told.
func (r *reign) beat(c *consumer) {
	if c.classic {
		r.beatClassic(c)
		return
	}
	req := &ConsumerHeartbeatRequest{Group: "g", MemberID: c.id, Epoch: c.epoch}
	if len(c.gives) == 0 && (c.full || r.rng.Intn(3) > 0) {
		req.Owned, req.OwnedSaid = c.reads, true
	}
	if c.full || c.epoch == 0 {
		req.Instance, req.Zone, req.Rebalance, req.Topics, req.Pattern = c.instance, c.zone, 60*time.Second, c.topics, &c.pattern
		req.Owned, req.OwnedSaid = c.reads, true
	}
	c.full, c.drop = false, r.rng.Intn(12) == 0
	r.send(c, req)
}

func (r *reign) send(c *consumer, req *ConsumerHeartbeatRequest) {
	if resp := r.c.Beat(r.now, req); resp != nil {
		r.answer(c, resp)
		return
	}
	r.token++
	c.waits = true
	r.calls[r.token] = c
	r.carry(r.c.ConsumerHeartbeat(r.now, r.token, req))
}

func (r *reign) leave() {
	c := r.pick()
	if c == nil || c.epoch == 0 {
		return
	}
	if c.classic {
		c.reads, c.gives, c.gone = nil, nil, true
		r.call(c, func(t Token) Effects {
			return r.c.Leave(r.now, t, &LeaveRequest{Group: "g", Members: []LeaveMember{{ID: c.member}}})
		})
		return
	}
	epoch := int32(leave)
	if c.instance != "" && r.rng.Intn(2) == 0 {
		epoch = leftForNow
	}
	c.reads, c.gives, c.gone = nil, nil, true
	r.send(c, &ConsumerHeartbeatRequest{Group: "g", MemberID: c.id, Instance: c.instance, Epoch: epoch})
}

// answer is what a client makes of a response.
func (r *reign) answer(c *consumer, resp *ConsumerHeartbeatResponse) {
	c.waits = false
	switch {
	case c.gone:
	case c.drop:
		c.full = true
	case resp.Err == nil:
		if resp.Epoch < r.epochs[c.id] {
			r.t.Fatalf("epoch of %s went back from %d to %d", c.id, r.epochs[c.id], resp.Epoch)
		}
		r.epochs[c.id], c.epoch = resp.Epoch, resp.Epoch
		if resp.HasAssignment {
			c.gives = c.reads.minus(resp.Assignment)
			c.reads = c.reads.plus(resp.Assignment)
		}
	case errors.Is(resp.Err, ErrFencedEpoch), errors.Is(resp.Err, ErrUnknownMember), errors.Is(resp.Err, ErrFencedInstance),
		errors.Is(resp.Err, ErrUnreleasedInstance), errors.Is(resp.Err, ErrGroupFull), errors.Is(resp.Err, ErrGroupNotFound):
		c.reads, c.gives, c.epoch, c.full = nil, nil, 0, true
		r.epochs[c.id] = 0
	case errors.Is(resp.Err, ErrLoading), errors.Is(resp.Err, ErrNotCoordinator):
		c.full = true
	default:
		r.t.Fatalf("%s: %v", c.id, resp.Err)
	}
}

func (r *reign) changeTopics() {
	switch r.rng.Intn(4) {
	case 0:
		r.topics["c"] = 2
	case 1:
		delete(r.topics, "c")
	default:
		if n := r.topics["a"]; n < 9 {
			r.topics["a"] = n + 1
		}
	}
	r.tellTopics()
}

// trouble is what a cluster may do.
func (r *reign) trouble() {
	switch r.rng.Intn(4) {
	case 0: // the proposers give up; some of it lands later
		given := r.underWay
		r.underWay = nil
		r.lost = append(r.lost, given...)
		for _, p := range given {
			r.carry(r.c.Applied(r.now, p.ID, Result{Err: ErrLoading}))
		}
	case 1:
		r.land()
	case 2: // another leader
		r.carry(r.c.Resign())
		r.lost = append(r.lost, r.underWay...)
		r.underWay = nil
		r.land()
		r.carry(r.c.Lead(r.now))
	case 3: // the copy goes through a snapshot
		next := NewMachine()
		if err := next.Restore(r.copy.Snapshot()); err != nil {
			r.t.Fatal(err)
		}
		r.copy = next
	}
}

func (r *reign) land() {
	late := r.lost
	r.lost = nil
	for _, p := range late[:r.rng.Intn(len(late)+1)] {
		r.carry(r.c.Observe(r.now, r.apply(p.Data)))
	}
}

func (r *reign) commit(n int) {
	for range n {
		if len(r.underWay) == 0 {
			return
		}
		p := r.underWay[0]
		r.underWay = r.underWay[1:]
		res := r.apply(p.Data)
		r.carry(r.c.Observe(r.now, res))
		r.carry(r.c.Applied(r.now, p.ID, res))
	}
}

func (r *reign) apply(data []byte) Result {
	r.index++
	res := r.m.Apply(r.index, data)
	r.copy.Apply(r.index, data)
	if r.index%4 == 0 && r.m.Digest() != r.copy.Digest() {
		r.t.Fatal("replicas differ")
	}
	return res
}

func (r *reign) carry(e Effects) {
	for _, reply := range e.Replies {
		c := r.calls[reply.Token]
		if c == nil {
			r.t.Fatalf("answer to no call: %+v", reply.Response)
		}
		delete(r.calls, reply.Token)
		if resp, ok := reply.Response.(*ConsumerHeartbeatResponse); ok {
			r.answer(c, resp)
		} else {
			r.answerClassic(c, reply.Response)
		}
	}
	r.underWay = append(r.underWay, e.Proposals...)
	checkSizes(r.t, r.c)
}

// check looks for a partition that two read. One whom the group does not know
// any more, or not at that epoch, will hear of it; its commits are refused.
func (r *reign) check() {
	owner := map[record.TopicPartition]*consumer{}
	s := r.m.Consumers("g")
	if s == nil {
		return
	}
	for _, c := range r.consumers {
		if m := s.members[c.name()]; m == nil || m.Epoch != c.epoch && m.PreviousEpoch != c.epoch {
			continue
		}
		for _, tp := range c.reads {
			if other := owner[tp]; other != nil {
				r.t.Fatalf("%v is read by %s at epoch %d and by %s at epoch %d:\n%+v\n%+v", tp, other.id, other.epoch, c.id, c.epoch, s.members[other.name()], s.members[c.name()])
			}
			owner[tp] = c
		}
	}
}

// converge lets everybody who is there go on in peace.
func (r *reign) converge() {
	// Two processes of one name would take it from each other for ever.
	named := map[string]bool{}
	for _, c := range r.consumers {
		if r.mixed && c.instance != "" && !c.gone && !c.silent {
			c.silent = named[c.instance]
			named[c.instance] = true
		}
	}
	for range 120 {
		for len(r.underWay) > 0 {
			r.commit(1)
			r.check()
		}
		for _, c := range r.consumers {
			if c.gone || c.silent || c.waits {
				continue
			}
			c.giveUp()
			r.beat(c)
			r.check()
		}
		r.now = r.now.Add(time.Second)
		r.carry(r.c.Tick(r.now))
	}
	s := r.m.Consumers("g")
	if s == nil {
		return
	}
	if p := s.phase(); p != Stable && p != Empty {
		for _, c := range r.consumers {
			if m := s.members[c.name()]; m != nil {
				r.t.Logf("%s: %+v\nis to have %v of epoch %d; it believes: %+v", c.name(), *m, s.targets[m.ID], s.TargetEpoch, *c)
			}
		}
		r.t.Fatalf("the group is %s", p)
	}
	r.checkShares(s)
}

// checkShares compares what each reads with what it was to get.
func (r *reign) checkShares(s *Consumers) {
	var readers []reader
	for _, c := range r.consumers {
		m := s.members[c.name()]
		if m == nil {
			if !c.classic && !c.gone && !c.silent && c.epoch != 0 {
				r.t.Fatalf("%s believes that it is in the group, at epoch %d", c.id, c.epoch)
			}
			continue
		}
		if c.silent || c.gone {
			r.t.Fatalf("%s is still in the group", c.id)
		}
		if !c.reads.equal(m.Assigned) || !m.Assigned.equal(s.targets[c.name()]) {
			r.t.Fatalf("%s reads %v, is assigned %v, should have %v", c.id, c.reads, m.Assigned, s.targets[c.name()])
		}
		readers = append(readers, reader{id: c.name(), topics: r.c.topicsOf(m), has: c.reads})
	}
	if improvable(readers) {
		r.t.Fatalf("not balanced: %+v", readers)
	}
	if moved := reassign(r.t, Uniform, readers); moved != 0 {
		r.t.Fatalf("%d partitions would still move", moved)
	}
}
