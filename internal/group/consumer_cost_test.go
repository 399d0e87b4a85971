package group

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// herd is a group of many consumers whose every change is committed at once.
type herd struct {
	t       testing.TB
	m       *Machine
	c       *Coordinator
	now     time.Time
	entries int
	bytes   int
	answers map[Token]*ConsumerHeartbeatResponse
	reads   map[string]Partitions
	epochs  map[string]int32
	token   Token
}

func newHerd(t testing.TB, topics ...*Topic) *herd {
	h := &herd{t: t, m: NewMachine(), now: time.Unix(1_800_000_000, 0), answers: map[Token]*ConsumerHeartbeatResponse{}, reads: map[string]Partitions{}, epochs: map[string]int32{}}
	h.c = NewCoordinator(DefaultConfig(), h.m)
	h.carry(h.c.SetTopics(h.now, NewTopics(1, topics)))
	h.carry(h.c.Lead(h.now))
	return h
}

func (h *herd) carry(e Effects) {
	for _, r := range e.Replies {
		h.answers[r.Token] = r.Response.(*ConsumerHeartbeatResponse)
	}
	for _, p := range e.Proposals {
		h.entries++
		h.bytes += len(p.Data)
		r := h.m.Apply(h.m.Index()+1, p.Data)
		h.carry(h.c.Observe(h.now, r))
		h.carry(h.c.Applied(h.now, p.ID, r))
	}
}

// beat is one heartbeat of a member that gives up at once what it must.
func (h *herd) beat(id string, topics []string) (asks bool) {
	req := &ConsumerHeartbeatRequest{Group: "g", MemberID: id, Epoch: h.epochs[id], Owned: h.reads[id], OwnedSaid: true}
	if req.Epoch == 0 {
		req.Rebalance, req.Topics = time.Minute, topics
	}
	r := h.c.Beat(h.now, req)
	if r == nil {
		h.token++
		h.carry(h.c.ConsumerHeartbeat(h.now, h.token, req))
		r = h.answers[h.token]
	}
	if r == nil || r.Err != nil {
		h.t.Fatalf("%s: %+v", id, r)
	}
	changed := r.Epoch != h.epochs[id]
	h.epochs[id] = r.Epoch
	if r.HasAssignment {
		changed = changed || !h.reads[id].equal(r.Assignment)
		h.reads[id] = r.Assignment
	}
	return changed
}

// settle lets all beat until nothing changes any more.
func (h *herd) settle(ids, topics []string) (rounds int) {
	for again := true; again; rounds++ {
		again = false
		for _, id := range ids {
			again = h.beat(id, topics) || again
		}
		if rounds > 10 {
			h.t.Fatal("it does not settle")
		}
	}
	return rounds
}

func many(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("m%05d", i))
	}
	return ids
}

// 500 members, 5,000 partitions: one more joins. Each member writes what it must,
// no more, and no more partitions move than must.
func TestOneMoreMemberOf500(t *testing.T) {
	topics := topicsOf(50, 100)
	var names []string
	for _, x := range topics {
		names = append(names, x.Name)
	}
	h := newHerd(t, topics...)
	ids := many(500)
	h.settle(ids, names)
	before := map[string]Partitions{}
	for id, ps := range h.reads {
		before[id] = ps
	}
	h.entries, h.bytes = 0, 0
	began := time.Now()
	rounds := h.settle(append(ids, "new"), names)
	t.Logf("settled in %d rounds of heartbeats, %d entries of %d bytes, %v", rounds, h.entries, h.bytes, time.Since(began))
	moved := 0
	for id, was := range before {
		moved += len(was.minus(h.reads[id]))
		if more := h.reads[id].minus(was); len(more) > 0 {
			t.Errorf("%s got %v from another one", id, more)
		}
	}
	if moved != 9 || len(h.reads["new"]) != 9 {
		t.Errorf("%d partitions moved, the new one has %d; want 9", moved, len(h.reads["new"]))
	}
	// One for the newcomer, one for each of the others' epochs, one more for each of
	// the nine that give something up, and at most as many for who waits.
	if h.entries > 1+500+9+9 {
		t.Errorf("%d entries", h.entries)
	}
	if p := h.m.Consumers("g").phase(); p != Stable {
		t.Errorf("the group is %s", p)
	}
}

// The fewer members a coordinator has, the more often they come, so that a newcomer soon
// has its share.
func TestMembersComeMoreOftenWhileThereAreFew(t *testing.T) {
	h := newHerd(t, topicsOf(1, 100)...)
	ids := many(3000)
	after := func(members int) time.Duration {
		h.settle(ids[:members], []string{"t000"})
		h.now = h.now.Add(time.Minute / 2) // nobody has just joined
		return h.c.Beat(h.now, &ConsumerHeartbeatRequest{Group: "g", MemberID: ids[0], Epoch: h.epochs[ids[0]]}).Interval
	}
	for _, want := range []struct {
		members  int
		interval time.Duration
	}{{1, time.Second}, {500, time.Second}, {1500, 3 * time.Second}, {3000, 5 * time.Second}} {
		if got := after(want.members); got != want.interval {
			t.Errorf("%d members come every %v, want %v", want.members, got, want.interval)
		}
	}
	h.carry(h.c.Lead(h.now))
	for g := range h.c.consumers {
		if n := len(h.c.consumers[g].sessions); n != h.c.present {
			t.Errorf("%d sessions are counted, there are %d", h.c.present, n)
		}
	}
}

func TestAConsumersHeartbeatCostsNoEntryAndTheSameForAnyNumber(t *testing.T) {
	h := newHerd(t, topicsOf(1, 100)...)
	ids := many(15_000)
	// They come while a change is under way, so that they become few entries.
	var last Effects
	for i, id := range ids {
		h.token++
		e := h.c.ConsumerHeartbeat(h.now, h.token, &ConsumerHeartbeatRequest{
			Group: "g", MemberID: id, Rebalance: time.Minute, Topics: []string{"t000"}, OwnedSaid: true,
		})
		if i == 0 {
			last = e
		} else if len(e.Proposals) != 0 {
			t.Fatal("a second change began")
		}
	}
	h.carry(last)
	if h.entries != 2 {
		t.Fatalf("%d entries for 15,000 members that came together, want 2", h.entries)
	}
	for _, id := range ids {
		h.reads[id], h.epochs[id] = nil, 2
	}
	h.epochs[ids[0]], h.reads[ids[0]] = 1, h.m.Consumers("g").members[ids[0]].Assigned
	h.settle(ids, []string{"t000"})
	h.entries = 0
	req := &ConsumerHeartbeatRequest{Group: "g", MemberID: ids[77], Epoch: h.epochs[ids[77]]}
	if n := testing.AllocsPerRun(100, func() {
		if r := h.c.Beat(h.now, req); r == nil || r.Err != nil {
			t.Fatalf("%+v", r)
		}
	}); n > 1 {
		t.Errorf("a heartbeat allocates %v times, want its answer only", n)
	}
	if h.entries != 0 {
		t.Errorf("it cost %d entries", h.entries)
	}
	first := h.c.timers[0]
	h.carry(h.c.Tick(h.now.Add(44 * time.Second)))
	if h.c.timers[0] != first {
		t.Error("a tick before any deadline moved timers")
	}
	// A change of leader: everybody has a full session, and all is there.
	if e := h.c.Resign(); len(e.Replies) != 0 {
		t.Errorf("%d answers to nobody", len(e.Replies))
	}
	next := NewMachine()
	if err := next.Restore(h.m.Snapshot()); err != nil || next.Digest() != h.m.Digest() || next.Bytes() != h.m.Bytes() {
		t.Fatalf("after a snapshot: %v, %d bytes, were %d", err, next.Bytes(), h.m.Bytes())
	}
	h.m, h.c = next, NewCoordinator(DefaultConfig(), next)
	h.now = h.now.Add(time.Hour)
	h.carry(h.c.SetTopics(h.now, NewTopics(1, topicsOf(1, 100))))
	h.carry(h.c.Lead(h.now))
	h.carry(h.c.Tick(h.now.Add(44 * time.Second)))
	if r := h.c.Beat(h.now.Add(44*time.Second), req); r == nil || r.Err != nil || h.entries != 0 {
		t.Errorf("after a change of leader: %+v, %d entries", r, h.entries)
	}
}

func TestNothingIsAssignedBeforeTopicsAreKnown(t *testing.T) {
	c := NewCoordinator(DefaultConfig(), NewMachine())
	c.Lead(time.Unix(0, 0))
	e := c.ConsumerHeartbeat(time.Unix(0, 0), 1, &ConsumerHeartbeatRequest{Group: "g", MemberID: "m", Rebalance: time.Minute, Topics: []string{"t"}, OwnedSaid: true})
	if len(e.Proposals) != 0 || len(e.Replies) != 1 || !errors.Is(e.Replies[0].Response.(*ConsumerHeartbeatResponse).Err, ErrLoading) {
		t.Errorf("%+v", e)
	}
	if len(c.consumers) != 0 {
		t.Error("a group stays behind")
	}
}

func BenchmarkBeat(b *testing.B) {
	h := newHerd(b, topicsOf(1, 100)...)
	ids := many(2000)
	h.settle(ids, []string{"t000"})
	req := &ConsumerHeartbeatRequest{Group: "g", MemberID: ids[77], Epoch: h.epochs[ids[77]]}
	b.ReportAllocs()
	for b.Loop() {
		if h.c.Beat(h.now, req) == nil {
			b.Fatal("the long way")
		}
	}
}
