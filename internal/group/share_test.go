package group

import (
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// shareRig is a coordinator with topics a (4 partitions), b (1) and c (7).
type shareRig struct {
	t   *testing.T
	now time.Time
	m   *Machine
	c   *Coordinator
}

func shareTopics(index record.Index, partitions map[string]int) *Topics {
	var all []*Topic
	for _, name := range slices.Sorted(maps.Keys(partitions)) {
		all = append(all, &Topic{ID: record.TopicID{name[0]}, Name: name, Partitions: partitions[name]})
	}
	return NewTopics(index, all)
}

func newShareRig(t *testing.T, change func(*Config)) *shareRig {
	r := &shareRig{t: t, now: time.Unix(1_800_000_000, 0), m: NewMachine()}
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	r.c = NewCoordinator(cfg, r.m)
	r.c.SetTopics(r.now, shareTopics(1, map[string]int{"a": 4, "b": 1, "c": 7}))
	r.c.Lead(r.now)
	return r
}

// failover has another coordinator take over, of another node.
func (r *shareRig) failover() {
	cfg, topics := r.c.cfg, r.c.topics
	r.c = NewCoordinator(cfg, r.m)
	r.c.SetTopics(r.now, topics)
	r.c.Lead(r.now)
}

func (r *shareRig) pass(d time.Duration) {
	r.now = r.now.Add(d)
	r.c.Tick(r.now)
}

func (r *shareRig) beat(member string, epoch int32, want error, topics ...string) *ShareHeartbeatResponse {
	r.t.Helper()
	resp := r.c.ShareHeartbeat(r.now, &ShareHeartbeatRequest{Group: "g", MemberID: member, Epoch: epoch, Topics: topics})
	if !errors.Is(resp.Err, want) || want == nil && resp.Err != nil {
		r.t.Fatalf("%s at %d: %v, want %v", member, epoch, resp.Err, want)
	}
	return resp
}

func (r *shareRig) join(member string, topics ...string) int32 {
	r.t.Helper()
	return r.beat(member, 0, nil, topics...).Epoch
}

func TestShareMembersComeAndGo(t *testing.T) {
	r := newShareRig(t, nil)
	r.beat("x", 0, ErrInvalidRequest)
	r.beat("", 0, ErrInvalidRequest, "a")
	r.beat("x", -2, ErrInvalidRequest)
	r.beat("x", -1, ErrUnknownMember)
	if e := r.join("x", "a", "nosuch"); e != 1 {
		t.Fatalf("epoch %d", e)
	}
	if again := r.beat("x", 1, nil); again.HasAssignment || again.Epoch != 1 {
		t.Fatalf("nothing changed: %+v", again)
	}
	if full := r.beat("x", 1, nil, "nosuch", "a"); !full.HasAssignment || full.Epoch != 1 {
		t.Fatalf("who says all there is may not have heard the last answer: %+v", full)
	}
	if e := r.join("y", "a"); e != 2 {
		t.Fatalf("epoch %d", e)
	}
	if x := r.beat("x", 1, nil); x.Epoch != 2 || len(x.Assignment) != 2 {
		t.Fatalf("%+v", x)
	}
	if lost := r.beat("x", 1, nil); lost.Epoch != 2 || !lost.HasAssignment {
		t.Fatalf("the last answer was lost: %+v", lost)
	}
	r.beat("x", 3, ErrFencedEpoch)
	r.beat("y", -1, nil)
	if x := r.beat("x", 2, nil); x.Epoch != 3 || len(x.Assignment) != 4 {
		t.Fatalf("%+v", x)
	}
	r.beat("x", 3, nil, "b")
	if d := r.c.DescribeShare("g"); d.Err != nil || d.Epoch != 4 || len(d.Members) != 1 || len(d.Members[0].Assigned) != 1 || d.Members[0].Assigned[0].Topic != (record.TopicID{'b'}) {
		t.Fatalf("%+v", d)
	}
}

// Who says nothing for as long as the session lasts is out; one with a shorter session
// than before, sooner.
func TestSilentShareMembersAreTakenOut(t *testing.T) {
	r := newShareRig(t, nil)
	r.join("x", "a")
	r.join("y", "a")
	r.pass(30 * time.Second)
	r.beat("x", 1, nil)
	r.pass(16 * time.Second)
	if d := r.c.DescribeShare("g"); len(d.Members) != 1 || d.Members[0].ID != "x" {
		t.Fatalf("%+v", d.Members)
	}
	r.c.ShareHeartbeat(r.now, &ShareHeartbeatRequest{Group: "g", MemberID: "x", Epoch: 2, Session: 10 * time.Second})
	r.pass(11 * time.Second)
	if d := r.c.DescribeShare("g"); !errors.Is(d.Err, ErrGroupNotFound) {
		t.Fatalf("%+v", d)
	}
	r.pass(2 * time.Minute)
	r.beat("x", 3, ErrUnknownMember)
	if r.c.bytes != 0 {
		t.Errorf("%d bytes are counted, and nobody is there", r.c.bytes)
	}
}

// Members go on with a coordinator that does not know them: they say all there is of
// them once more, keep their epochs, and none goes back.
func TestShareMembersAreAdoptedAfterFailover(t *testing.T) {
	r := newShareRig(t, nil)
	r.join("x", "a")
	last := r.join("y", "a")
	r.beat("x", 1, nil)
	r.failover()
	r.beat("x", 2, ErrLoading)
	x := r.beat("x", 2, nil, "a")
	if x.Epoch <= last || !x.HasAssignment {
		t.Fatalf("%+v, the last epoch was %d", x, last)
	}
	y := r.beat("y", 2, nil, "a")
	if y.Epoch <= x.Epoch || len(y.Assignment) != 2 {
		t.Fatalf("%+v after %+v", y, x)
	}
	r.failover()
	r.pass(2 * r.c.cfg.ConsumerSession)
	r.beat("x", x.Epoch, ErrUnknownMember, "a") // nobody waits that long
}

// A name is a stream group's or a share group's while it has members.
func TestShareAndStreamGroupsOfOneName(t *testing.T) {
	w := newWorld(t)
	w.c.SetTopics(w.now, shareTopics(1, map[string]int{"a": 4}))
	beat := func() error {
		return w.c.ShareHeartbeat(w.now, &ShareHeartbeatRequest{Group: "g", MemberID: "x", Topics: []string{"a"}}).Err
	}
	if err := beat(); err != nil {
		t.Fatal(err)
	}
	for _, reply := range w.c.Join(w.now, 1, &JoinRequest{Group: "g", Session: 10 * time.Second, ProtocolType: ConsumerProtocol, Protocols: []Protocol{{Name: "range"}}}).Replies {
		if err := reply.Response.(*JoinResponse).Err; !errors.Is(err, ErrInconsistentProtocol) {
			t.Fatalf("a classic member: %v", err)
		}
	}
	modern := func(token Token) error {
		e := w.c.ConsumerHeartbeat(w.now, token, &ConsumerHeartbeatRequest{Group: "g", MemberID: "m", Rebalance: time.Minute, Topics: []string{"a"}, OwnedSaid: true})
		w.effects(e)
		for _, reply := range e.Replies {
			return reply.Response.(*ConsumerHeartbeatResponse).Err
		}
		return nil
	}
	if err := modern(2); !errors.Is(err, ErrGroupNotFound) {
		t.Fatalf("a consumer: %v", err)
	}
	w.c.ShareHeartbeat(w.now, &ShareHeartbeatRequest{Group: "g", MemberID: "x", Epoch: -1})
	if err := modern(3); err != nil {
		t.Fatal(err)
	}
	if err := beat(); !errors.Is(err, ErrGroupNotFound) {
		t.Fatalf("a share member of a consumer group: %v", err)
	}
}

// Topics that grow, come and go are shared anew, and only then.
func TestShareGroupsFollowTopics(t *testing.T) {
	r := newShareRig(t, nil)
	r.join("x", "a", "d")
	r.c.SetTopics(r.now, shareTopics(2, map[string]int{"a": 4, "b": 3, "c": 7}))
	if x := r.beat("x", 1, nil); x.HasAssignment {
		t.Fatalf("nothing that it reads has changed: %+v", x)
	}
	r.c.SetTopics(r.now, shareTopics(3, map[string]int{"a": 6, "d": 2}))
	if x := r.beat("x", 1, nil); x.Epoch != 2 || len(x.Assignment) != 8 {
		t.Fatalf("%+v", x)
	}
	r.c.SetTopics(r.now, shareTopics(4, map[string]int{"d": 2}))
	if x := r.beat("x", 2, nil); x.Epoch != 3 || len(x.Assignment) != 2 {
		t.Fatalf("%+v", x)
	}
}

// Limits hold whatever members say.
func TestShareGroupsAreBounded(t *testing.T) {
	r := newShareRig(t, func(c *Config) { c.MaxMembers, c.MaxMemberBytes = 2, 1000 })
	r.beat("x", 0, ErrTooLarge, string(make([]byte, 1000)))
	r.join("x", "a")
	r.join("y", "a")
	r.beat("z", 0, ErrGroupFull, "a")
	r.beat("y", -1, nil)
	r.join("z", "a")
	r = newShareRig(t, func(c *Config) { c.MaxGroups = 1 })
	r.join("x", "a")
	if resp := r.c.ShareHeartbeat(r.now, &ShareHeartbeatRequest{Group: "h", MemberID: "x", Topics: []string{"a"}}); !errors.Is(resp.Err, ErrTooManyGroups) {
		t.Fatal(resp.Err)
	}
}

// However members come, go and change what they read: each partition of a topic that is
// read has somebody, each who reads it something, as many as the others give or take
// one, and what need not move stays.
func TestSharesAreEven(t *testing.T) {
	partitions := map[string]int{"a": 4, "b": 1, "c": 7}
	for seed := range int64(200) {
		rnd := rand.New(rand.NewSource(seed))
		r := newShareRig(t, nil)
		reads := map[string][]string{}
		for range 30 {
			id := fmt.Sprint("m", rnd.Intn(9))
			if _, in := reads[id]; in && rnd.Intn(3) == 0 {
				r.beat(id, -1, nil)
				delete(reads, id)
			} else {
				var topics []string
				for name := range partitions {
					if rnd.Intn(2) == 0 {
						topics = append(topics, name)
					}
				}
				if len(topics) == 0 {
					topics = []string{"a"}
				}
				r.join(id, topics...)
				reads[id] = topics
			}
			if len(reads) > 0 {
				checkShares(t, r.c.DescribeShare("g"), reads, partitions)
			}
		}
	}
}

func checkShares(t *testing.T, d *ShareDescription, reads map[string][]string, partitions map[string]int) {
	t.Helper()
	if d.Err != nil {
		t.Fatal(d.Err)
	}
	for name, count := range partitions {
		of, has := map[record.Partition]int{}, map[string]int{}
		for _, m := range d.Members {
			for _, tp := range m.Assigned {
				if tp.Topic == (record.TopicID{name[0]}) {
					of[tp.Partition]++
					has[m.ID]++
				}
			}
			if reading := slices.Contains(reads[m.ID], name); reading != (has[m.ID] > 0) {
				t.Fatalf("%s reads %v and has %v", m.ID, reads[m.ID], m.Assigned)
			}
		}
		if len(has) == 0 {
			continue
		}
		if len(of) != count {
			t.Fatalf("of topic %s partitions %v are read, it has %d", name, of, count)
		}
		even(t, slices.Collect(maps.Values(of)))
		even(t, slices.Collect(maps.Values(has)))
	}
}

func even(t *testing.T, counts []int) {
	t.Helper()
	if slices.Max(counts)-slices.Min(counts) > 1 {
		t.Fatalf("shares of %v", counts)
	}
}

func TestSpreadMovesOnlyWhatMust(t *testing.T) {
	for _, c := range []struct {
		last []int
		bins int
		want []int
	}{
		{[]int{0, 1, 2}, 3, []int{0, 1, 2}},
		{[]int{0, 0, 1, 1}, 3, []int{0, 0, 1, 2}},
		{[]int{0, 0, 0, 0}, 2, []int{0, 0, 1, 1}},
		{[]int{5, -1, 1}, 2, []int{0, 1, 1}},
	} {
		if got := spread(c.last, c.bins, 0); !slices.Equal(got, c.want) {
			t.Errorf("spread(%v, %d) is %v, want %v", c.last, c.bins, got, c.want)
		}
	}
}
