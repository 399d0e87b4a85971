package group

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/group/grouppb"
	"github.com/tube-mq/tube/internal/record"
)

// chaos drives one shard with random calls, held, lost and late proposals,
// changes of leader and restarts, and checks what must hold whatever happens.
type chaos struct {
	t     *testing.T
	rng   *rand.Rand
	now   time.Time
	m     *Machine
	copy  *Machine // a second replica
	c     *Coordinator
	index record.Index

	underWay, lost []Proposal
	token          Token
	open           map[Token]bool // calls without an answer
	answered       map[Token]bool
	ids            []string // member ids ever given
	gens           map[string]int32
}

func TestWhateverHappens(t *testing.T) {
	for seed := range int64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { newChaos(t, seed).run(400) })
	}
}

func newChaos(t *testing.T, seed int64) *chaos {
	c := &chaos{
		t: t, rng: rand.New(rand.NewSource(seed)), now: time.Unix(1_800_000_000, 0), m: NewMachine(), copy: NewMachine(),
		open: map[Token]bool{}, gens: map[string]int32{}, answered: map[Token]bool{}, ids: []string{""},
	}
	cfg := DefaultConfig()
	cfg.InitialDelay, cfg.OffsetsRetention = time.Duration(seed%2)*time.Second, 2*time.Hour
	cfg.MaxMembers = 5
	c.c = NewCoordinator(cfg, c.m)
	c.carry(c.c.Lead(c.now))
	return c
}

func (c *chaos) run(steps int) {
	for range steps {
		c.step()
		c.now = c.now.Add(time.Duration(c.rng.Intn(3000)) * time.Millisecond)
	}
	// In the end everything is committed, everybody's patience is over, and every
	// call has its answer.
	for range 200 {
		c.commit(len(c.underWay))
		if at, ok := c.c.Deadline(); ok && len(c.open) > 0 {
			if at.After(c.now) {
				c.now = at
			}
			c.carry(c.c.Tick(c.now))
		}
	}
	c.carry(c.c.Resign())
	if len(c.open) > 0 {
		c.t.Fatalf("calls without an answer: %v", c.open)
	}
}

func (c *chaos) newToken() Token {
	c.token++
	c.open[c.token] = true
	return c.token
}

func (c *chaos) id() string    { return c.ids[c.rng.Intn(len(c.ids))] }
func (c *chaos) group() string { return string(rune('a' + c.rng.Intn(2))) }
func (c *chaos) instance() string {
	return []string{"", "", "", "i", "j"}[c.rng.Intn(5)]
}

func (c *chaos) step() {
	name := c.group()
	gen := c.gens[name] - int32(c.rng.Intn(4)/3)
	switch c.rng.Intn(16) {
	case 0, 1, 2, 3:
		c.join(name)
	case 4, 5, 6:
		id := c.id()
		c.carry(c.c.Sync(c.now, c.newToken(), &SyncRequest{Group: name, Generation: gen, MemberID: id, Instance: c.instance(),
			Assignments: map[string][]byte{id: []byte(id), c.id(): []byte("x")}}))
	case 7:
		_ = c.c.Heartbeat(c.now, &HeartbeatRequest{name, gen, c.id(), c.instance()})
	case 8:
		c.carry(c.c.Leave(c.now, c.newToken(), &LeaveRequest{Group: name, Members: []LeaveMember{{ID: c.id(), Instance: c.instance()}}}))
	case 9, 10:
		c.carry(c.c.CommitOffsets(c.now, c.newToken(), &CommitRequest{Group: name, Generation: gen - int32(c.rng.Intn(9)/8*100), MemberID: c.id(),
			Topics: []CommitTopic{{record.TopicID{1}, "t", []CommitPartition{{Offset: record.Offset(c.rng.Intn(100))}}}}}))
	case 11:
		c.commit(c.rng.Intn(4))
	case 12, 13:
		c.commit(len(c.underWay))
		c.carry(c.c.Tick(c.now))
	case 14:
		c.rare(name)
	case 15:
		t := Token(c.rng.Intn(int(c.token) + 1))
		c.c.Cancel(c.now, name, t)
		c.c.Cancel(c.now, c.group(), t)
		delete(c.open, t)
	}
}

func (c *chaos) join(name string) {
	fresh := fmt.Sprintf("m%d", len(c.ids))
	c.ids = append(c.ids, fresh)
	id := c.id()
	if c.rng.Intn(2) == 0 {
		id = ""
	}
	c.carry(c.c.Join(c.now, c.newToken(), &JoinRequest{
		Group: name, MemberID: id, Instance: c.instance(), FreshID: fresh, NeedsKnownID: c.rng.Intn(3) == 0,
		Session: 30 * time.Second, Rebalance: 40 * time.Second, ProtocolType: ConsumerProtocol,
		Protocols: []Protocol{{"range", subscription("", "t")}},
	}))
}

func (c *chaos) rare(name string) {
	switch c.rng.Intn(6) {
	case 0:
		c.carry(c.c.DeleteGroup(c.now, c.newToken(), name))
	case 1:
		c.carry(c.c.DeleteOffsets(c.now, c.newToken(), &DeleteOffsetsRequest{name, []DeleteTopic{{record.TopicID{1}, "t", []record.Partition{0}}}}))
	case 2: // the proposers give up; some of it lands later
		given := c.underWay
		c.underWay = nil
		c.lost = append(c.lost, given...)
		for _, p := range given {
			c.carry(c.c.Applied(c.now, p.ID, Result{Err: ErrLoading}))
		}
	case 3:
		c.land()
	case 4: // another leader
		c.carry(c.c.Resign())
		c.lost = append(c.lost, c.underWay...)
		c.underWay = nil
		c.land()
		c.carry(c.c.Lead(c.now))
	case 5: // the copy goes through a snapshot
		next := NewMachine()
		if err := next.Restore(c.copy.Snapshot()); err != nil {
			c.t.Fatal(err)
		}
		c.copy = next
	}
}

func (c *chaos) land() {
	late := c.lost
	c.lost = nil
	c.rng.Shuffle(len(late), func(i, j int) { late[i], late[j] = late[j], late[i] })
	for _, p := range late[:c.rng.Intn(len(late)+1)] {
		c.carry(c.c.Observe(c.now, c.apply(p.Data)))
	}
}

// commit commits n of the proposals under way, in any order.
func (c *chaos) commit(n int) {
	for range n {
		if len(c.underWay) == 0 {
			return
		}
		i := c.rng.Intn(len(c.underWay))
		p := c.underWay[i]
		c.underWay = append(c.underWay[:i:i], c.underWay[i+1:]...)
		r := c.apply(p.Data)
		c.carry(c.c.Observe(c.now, r))
		c.carry(c.c.Applied(c.now, p.ID, r))
	}
}

// apply applies to both replicas and checks what one entry may do.
func (c *chaos) apply(data []byte) Result {
	var cmd grouppb.Command
	if err := proto.Unmarshal(data, &cmd); err != nil {
		c.t.Fatal(err)
	}
	co := cmd.GetCommitOffsets()
	name := co.GetGroup()
	before, had := c.m.Offset(name, record.TopicID{1}, 0)
	state := c.m.State(name)
	was := map[string]*State{"a": c.m.State("a"), "b": c.m.State("b")}

	c.index++
	r := c.m.Apply(c.index, data)
	c.copy.Apply(c.index, data)
	if c.m.Digest() != c.copy.Digest() {
		c.t.Fatal("replicas differ")
	}
	if co != nil {
		after, has := c.m.Offset(name, record.TopicID{1}, 0)
		member := state.Member(co.GetMember()) != nil && state.Generation == co.GetGeneration()
		outside := co.GetGeneration() < 0 && state.empty()
		if (before != after || had != has) && !member && !outside {
			c.t.Fatalf("offset moved from %v to %v by generation %d of %q in %+v", before, after, co.GetGeneration(), co.GetMember(), state)
		}
	}
	for g, old := range was {
		if s := c.m.State(g); old != nil && s != nil && s.Generation < old.Generation {
			c.t.Fatalf("generation of %s went back from %d to %d", g, old.Generation, s.Generation)
		}
	}
	return r
}

func (c *chaos) carry(e Effects) {
	for _, r := range e.Replies {
		if r.Token == 0 {
			c.t.Fatalf("reply to nobody: %+v", r.Response)
		}
		if c.answered[r.Token] {
			c.t.Fatalf("call %d answered twice: %+v", r.Token, r.Response)
		}
		c.answered[r.Token] = true
		delete(c.open, r.Token)
		if j, ok := r.Response.(*JoinResponse); ok && j.Err == nil {
			c.joined(j)
		}
	}
	c.underWay = append(c.underWay, e.Proposals...)
	checkSizes(c.t, c.c)
}

// joined checks that a promise of a generation is covered by what is committed.
func (c *chaos) joined(j *JoinResponse) {
	for _, name := range []string{"a", "b"} {
		s := c.m.State(name)
		if s.Member(j.MemberID) != nil && s.Generation == j.Generation {
			c.gens[name] = j.Generation
			return
		}
	}
	c.t.Fatalf("joined a generation that is not committed: %+v", j)
}

func TestAHeartbeatCostsTheSameForAnyNumberOfMembers(t *testing.T) {
	const members = 15_000
	cfg := DefaultConfig()
	cfg.InitialDelay = 0
	m := NewMachine()
	c := NewCoordinator(cfg, m)
	now := time.Unix(1_800_000_000, 0)
	st := &State{ProtocolType: ConsumerProtocol, Protocol: "range", Generation: 1, Leader: "m0"}
	for i := range members {
		st.Members = append(st.Members, Member{ID: fmt.Sprintf("m%d", i), Session: 30 * time.Second, Rebalance: time.Minute, Protocols: []Protocol{{"range", nil}}})
	}
	data, err := proto.Marshal(putGeneration(&live{name: "g"}, st))
	if err != nil {
		t.Fatal(err)
	}
	if r := m.Apply(1, data); r.Err != nil {
		t.Fatal(r.Err)
	}
	c.Lead(now)
	beat := &HeartbeatRequest{Group: "g", Generation: 1, MemberID: "m7"}
	if n := testing.AllocsPerRun(100, func() {
		if err := c.Heartbeat(now, beat); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a heartbeat allocates %v times", n)
	}
	// Between sessions' ends a tick finds nothing to do.
	before := c.timers[0]
	c.Tick(now.Add(29 * time.Second))
	if c.timers[0] != before {
		t.Error("a tick before any deadline moved timers")
	}
}
