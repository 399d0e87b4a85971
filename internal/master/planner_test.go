package master

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// replicasOn counts what a node shall have in the end.
func (c *cluster) replicasOn(id record.NodeID) int {
	n := 0
	c.each(func(_ record.TopicPartition, p *meta.Placement) {
		for _, r := range p.Wanted() {
			if r.Node == id && !r.Lost {
				n++
			}
		}
	})
	return n
}

func (c *cluster) run(d time.Duration) {
	for range int(d / time.Second) {
		c.second()
	}
}

func TestANodeThatIsBackInTimeMovesNothing(t *testing.T) {
	c := newCluster(t, 1, "", "", "", "")
	c.topic("a", 30, 3)
	c.settle()
	c.kill(2)
	c.run(9 * time.Minute)
	if s := c.log.image().Nodes[2].State; s != meta.NodeDown {
		t.Fatalf("node 2 is %s", s)
	}
	c.back(2, false)
	c.settle()
	if c.reassigned != 0 {
		t.Fatalf("%d partitions moved", c.reassigned)
	}
	c.each(func(tp record.TopicPartition, p *meta.Placement) {
		if c.leads[tp] != p.Replicas[0].Node && c.ledBy(p.Replicas[0].Node) == 0 {
			t.Errorf("partition %d is led by %d, not %d", tp.Partition, c.leads[tp], p.Replicas[0].Node)
		}
	})
}

func (c *cluster) ledBy(id record.NodeID) int {
	n := 0
	for _, led := range c.leads {
		if led == id {
			n++
		}
	}
	return n
}

func TestANodeThatStaysAwayIsReplaced(t *testing.T) {
	c := newCluster(t, 1, "a", "a", "b", "b", "c", "c")
	c.topic("a", 60, 3)
	c.settle()
	had := c.replicasOn(2)
	c.kill(2)
	c.run(9*time.Minute + 50*time.Second)
	if c.reassigned != 0 {
		t.Fatal("moved too soon")
	}
	c.settle()
	if c.reassigned != had || c.copies != had || c.replicasOn(2) != 0 {
		t.Fatalf("%d moved, %d copied, node 2 had %d and has %d", c.reassigned, c.copies, had, c.replicasOn(2))
	}
	// The zone has one other node: it takes them all.
	if n := c.replicasOn(1); n != 60 {
		t.Fatalf("node 1 has %d", n)
	}
	c.back(2, false)
	c.settle()
	if c.reassigned != had {
		t.Fatal("what was replaced moved again when the node came back")
	}
}

func TestWithoutAnotherNodeNothingIsReplaced(t *testing.T) {
	c := newCluster(t, 1, "", "", "")
	c.topic("a", 5, 3)
	c.kill(3)
	c.settle()
	if c.reassigned != 0 {
		t.Fatalf("%d moved", c.reassigned)
	}
	said := strings.Join(Problems(c.view()), "\n")
	for _, want := range []string{
		"5 partitions with fewer live replicas than there should be: a/0, a/1, a/2, a/3, a/4",
		"5 partitions with a replica that should be replaced, and no other broker to put it on",
		"node 3 is down since",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not said in\n%s", want, said)
		}
	}
	c.add(4, "")
	c.settle()
	if c.replicasOn(4) != 5 || c.copies != 5 {
		t.Fatalf("the new node has %d of 5, %d copied", c.replicasOn(4), c.copies)
	}
}

func TestADrainingNodeIsEmptied(t *testing.T) {
	c := newCluster(t, 1, "", "", "", "")
	c.topic("a", 40, 3)
	c.settle()
	had := c.replicasOn(1)
	c.log.apply(t, meta.DrainNode(c.now, 1, true))
	for range 5 {
		c.second()
	}
	if n := c.ledBy(1); n > 0 {
		t.Errorf("a draining node leads %d partitions", n)
	}
	if said := strings.Join(Problems(c.view()), "\n"); !strings.Contains(said, "node 1 is draining: ") {
		t.Errorf("problems: %s", said)
	}
	c.settle()
	m := c.log.master(1)
	if n := m.Nodes()[0]; !n.Drained || n.Replicas != 0 || c.copies != had {
		t.Fatalf("drained %v, %d replicas left, %d of %d copied", n.Drained, n.Replicas, c.copies, had)
	}
	if p := Problems(c.view()); len(p) > 0 {
		t.Fatalf("problems: %q", p)
	}
	if err := m.RemoveNode(t.Context(), 1, false); err != nil {
		t.Fatal(err)
	}
}

func TestADrainWithoutAnotherNodeIsToldAndUndone(t *testing.T) {
	c := newCluster(t, 1, "", "", "")
	c.topic("a", 4, 3)
	c.log.apply(t, meta.DrainNode(c.now, 1, true))
	c.settle()
	if said := strings.Join(Problems(c.view()), "\n"); c.reassigned != 0 || !strings.Contains(said, "4 replicas are left, and no other broker can take 4 of them") {
		t.Fatalf("%d moved; problems: %s", c.reassigned, said)
	}
}

func TestAFlappingNodeDoesNotDisturb(t *testing.T) {
	c := newCluster(t, 1, "", "", "", "")
	c.topic("a", 20, 3)
	c.settle()
	transfers := c.transfers
	for range 200 {
		c.kill(2)
		c.run(2 * time.Second)
		c.alive[2] = Seen{true, c.now}
		c.run(2 * time.Second)
	}
	if c.states != 0 || c.reassigned != 0 || c.transfers-transfers > 0 {
		t.Fatalf("%d states, %d moves, %d transfers", c.states, c.reassigned, c.transfers-transfers)
	}
}

// What sees a minority does nothing, however long.
func TestAMasterThatIsCutOffMovesNothing(t *testing.T) {
	c := newCluster(t, 1, "", "", "", "", "")
	c.topic("a", 20, 1)
	for id := record.NodeID(2); id <= 4; id++ {
		c.kill(id)
	}
	c.run(30 * time.Minute)
	if c.states != 0 || c.reassigned != 0 {
		t.Fatalf("%d states, %d moves", c.states, c.reassigned)
	}
	if p := Problems(c.view()); len(p) == 0 || !strings.Contains(p[0], "only 2 of 5 nodes are heard of") {
		t.Fatalf("problems: %q", p)
	}
}

// Also of what was found before it was cut off.
func TestWhatIsCutOffLaterMovesNothing(t *testing.T) {
	c := newCluster(t, 1, make([]string, 7)...)
	c.topic("a", 40, 3)
	c.kill(2)
	c.kill(3)
	c.run(time.Minute)
	if c.states != 2 {
		t.Fatalf("%d states", c.states)
	}
	c.kill(4)
	c.kill(5)
	c.run(30 * time.Minute)
	if c.states != 2 || c.reassigned != 0 {
		t.Fatalf("%d states, %d moves", c.states, c.reassigned)
	}
}

// Half of the nodes, and most masters, may take the others for down, so that
// these can come back with an empty disk. They move nothing.
func TestHalfOfTheNodesWithMostMasters(t *testing.T) {
	c := newCluster(t, 1, "", "")
	c.topic("a", 4, 1)
	c.log.apply(t, meta.RegisterNode(c.now, meta.Node{ID: 2, Incarnation: "0", Roles: []string{"broker"}, Kafka: "x:1"}))
	c.kill(2)
	c.run(20 * time.Minute)
	if c.states != 1 || c.reassigned != 0 {
		t.Fatalf("%d states, %d moves", c.states, c.reassigned)
	}
	two := newCluster(t, 1, "", "")
	two.kill(2)
	two.run(time.Minute)
	if two.states != 0 {
		t.Fatalf("one of two masters took the other for down")
	}
}

// A partition without a majority cannot change its members: it takes no room.
func TestPartitionsWithoutAMajorityWait(t *testing.T) {
	c := newCluster(t, 1, make([]string, 7)...)
	c.topic("a", 60, 3)
	c.settle()
	c.kill(2)
	c.kill(3)
	c.settle()
	waiting := 0
	c.each(func(tp record.TopicPartition, p *meta.Placement) {
		if on2, on3 := on(p.Replicas, 2), on(p.Replicas, 3); on2 && on3 {
			waiting++
			if p.Target != nil {
				t.Errorf("partition %d shall move: %+v", tp.Partition, p)
			}
		} else if on2 || on3 {
			t.Errorf("partition %d was not replaced: %+v", tp.Partition, p)
		}
	})
	if said := strings.Join(Problems(c.view()), "\n"); waiting == 0 || !strings.Contains(said, fmt.Sprintf("%d partitions lost the majority", waiting)) {
		t.Fatalf("%d wait; problems: %s", waiting, said)
	}
}

func on(rs []meta.Replica, id record.NodeID) bool {
	return slices.ContainsFunc(rs, func(r meta.Replica) bool { return r.Node == id })
}

func TestANewMasterWaitsByItsOwnClock(t *testing.T) {
	c := newCluster(t, 1, "", "", "", "")
	c.topic("a", 8, 3)
	c.kill(2)
	c.run(9 * time.Minute)
	c.alive[2] = Seen{false, c.now} // as a master that has just become active has it
	c.run(2 * time.Minute)
	if c.reassigned != 0 {
		t.Fatal("moved after two minutes")
	}
	delete(c.alive, 2) // and before it has heard of anybody
	c.run(20 * time.Minute)
	if c.reassigned != 0 {
		t.Fatal("moved what nothing is known of")
	}
}

func TestAMoveNotBegunIsGivenUpWhenTheNodeIsBack(t *testing.T) {
	c := newCluster(t, 1, "", "", "", "")
	c.topic("a", 8, 3)
	c.settle()
	c.kill(2)
	c.now = c.now.Add(5 * time.Second)
	c.log.apply(t, meta.SetNodeState(c.now, 2, meta.NodeDown))
	c.now = c.now.Add(11 * time.Minute)
	had := c.replicasOn(2)
	for _, a := range Plan(c.view()) {
		c.carry(a.(Reassign)) // nothing is copied yet
	}
	if c.replicasOn(2) != 0 || c.reassigned != had {
		t.Fatalf("%d moves of %d", c.reassigned, had)
	}
	c.back(2, false)
	v := c.view()
	v.Begun = nil // it is not known: what was copied is not thrown away
	for _, a := range append(Plan(v), Plan(c.view())...) {
		if r, ok := a.(Reassign); ok {
			c.carry(r)
		}
	}
	if c.reassigned != 2*had {
		t.Fatalf("%d moves, %d there and %d back are right", c.reassigned, had, had)
	}
	if c.replicasOn(2) != had {
		t.Fatalf("%d of %d went back", c.replicasOn(2), had)
	}
	c.settle()
	if c.copies != 0 {
		t.Fatalf("%d copied", c.copies)
	}
}

func TestSickNodesGiveUpTheirLeaders(t *testing.T) {
	c := newCluster(t, 1, "", "", "")
	c.topic("a", 9, 3)
	c.settle()
	v := c.view()
	v.Sick = map[record.NodeID]string{1: "slow disk"}
	c.log.apply(t, meta.SetNodeSick(c.now, 1, "slow disk"))
	v.Image = c.log.image()
	led := c.ledBy(1)
	plan := Plan(v)
	if len(plan) != led || led == 0 {
		t.Fatalf("node 1 leads %d, plan %v", led, plan)
	}
	v.Behind = func(record.TopicPartition, record.NodeID) bool { return true }
	if plan := Plan(v); len(plan) != 0 {
		t.Fatalf("leaders go to replicas that lack something: %v", plan)
	}
	v.Behind = nil
	v.Tried = func(record.TopicPartition) bool { return true }
	if plan := Plan(v); len(plan) != 0 {
		t.Fatalf("what was tried is tried again at once: %v", plan)
	}
}

// A leader that has to go leaves the partition to one that stays.
func TestALeaderIsSucceededByWhoStays(t *testing.T) {
	c := newCluster(t, 1, "", "", "", "")
	c.topic("a", 1, 3)
	c.elect()
	var tp record.TopicPartition
	c.each(func(id record.TopicPartition, _ *meta.Placement) { tp = id })
	r := c.log.image().Partition(tp).Replicas
	c.leads[tp] = r[0].Node
	c.log.apply(t, meta.Reassign(c.now, []meta.Move{{TopicPartition: tp, Nodes: []record.NodeID{r[0].Node, r[2].Node, free(r)}}}, 0))
	c.log.apply(t, meta.DrainNode(c.now, r[0].Node, true))
	if got := transfers(Plan(c.view())); len(got) != 1 || got[0] != (TransferLeader{tp, r[0].Node, r[2].Node}) {
		t.Fatalf("%+v, of %v", got, r)
	}
	c.kill(r[2].Node)
	if got := transfers(Plan(c.view())); len(got) != 1 || got[0] != (TransferLeader{tp, r[0].Node, r[1].Node}) {
		t.Fatalf("%+v, of %v, and the third is dead", got, r)
	}
}

func transfers(plan []Action) (out []TransferLeader) {
	for _, a := range plan {
		if t, ok := a.(TransferLeader); ok {
			out = append(out, t)
		}
	}
	return out
}

// What nodes say of themselves is noted once, both ways; of one that is not heard
// of nothing new is known.
func TestSickNodesAreNotedBothWays(t *testing.T) {
	c := newCluster(t, 1, "", "", "")
	c.settle()
	v := c.view()
	v.Sick = map[record.NodeID]string{2: "slow disk"}
	note := func(want ...Action) {
		t.Helper()
		v.Image = c.log.image()
		if plan := Plan(v); !slices.Equal(plan, want) {
			t.Fatalf("plan %+v, want %+v", plan, want)
		}
	}
	note(SetSick{2, "slow disk"})
	c.log.apply(t, meta.SetNodeSick(c.now, 2, "slow disk"))
	note()
	if got := Problems(v); !slices.Contains(got, "node 2 is sick and leads only what no other node can: slow disk") {
		t.Fatalf("problems: %q", got)
	}
	v.Sick = nil
	v.Alive = maps.Clone(v.Alive)
	v.Alive[2] = Seen{Since: c.now}
	note()
	v.Alive[2] = Seen{Alive: true, Since: c.now}
	note(SetSick{2, ""})
}

// A sick node that is needed for every majority keeps what it leads.
func TestASickNodeThatIsNeededKeepsItsLeaders(t *testing.T) {
	c := newCluster(t, 1, "", "", "")
	c.topic("a", 6, 2)
	c.topic("b", 9, 3)
	c.each(func(tp record.TopicPartition, p *meta.Placement) { c.leads[tp] = p.Replicas[0].Node })
	v := c.view()
	v.Sick = map[record.NodeID]string{1: "slow disk"}
	c.log.apply(t, meta.SetNodeSick(c.now, 1, "slow disk"))
	v.Image = c.log.image()
	got := transfers(Plan(v))
	if len(got) == 0 {
		t.Fatal("no leader is moved")
	}
	for _, tr := range got {
		if n := len(v.Image.Partition(tr.TopicPartition).Replicas); n != 3 {
			t.Fatalf("a partition with %d replicas shall do without the sick one: %+v", n, tr)
		}
	}
	v.Sick[2] = "slow disk"
	c.log.apply(t, meta.SetNodeSick(c.now, 2, "slow disk"))
	v.Image = c.log.image()
	if got := transfers(Plan(v)); len(got) != 0 {
		t.Fatalf("most nodes are sick, and leaders move: %+v", got)
	}
}

// free is the one of four nodes that has no replica.
func free(rs []meta.Replica) record.NodeID {
	for id := record.NodeID(1); ; id++ {
		if !on(rs, id) {
			return id
		}
	}
}

// A node that is just back is not given leaders at once, and a few partitions
// that others lead are no reason.
func TestLeadersGoBackInTheirTime(t *testing.T) {
	c := newCluster(t, 1, "", "", "")
	c.topic("a", 60, 3)
	c.settle()
	c.kill(2)
	c.run(20 * time.Second)
	c.back(2, false)
	c.run(8 * time.Second)
	if n := c.ledBy(2); n != 0 {
		t.Fatalf("node 2 leads %d after 8 s", n)
	}
	c.settle()
	if n := c.ledBy(2); n < 18 {
		t.Fatalf("node 2 leads %d of the 20 it should", n)
	}
	moved := 0
	for tp, id := range c.leads { // two of twenty are led by others
		if id == 2 && moved < 2-(20-c.ledBy(2)) {
			c.leads[tp] = 1
			moved++
		}
	}
	if plan := Plan(c.view()); len(plan) != 0 {
		t.Fatalf("%v", plan)
	}
}

// place makes topic "a" with its partitions on the given nodes.
func (c *cluster) place(placement ...[]record.NodeID) record.TopicID {
	id := record.NewTopicID()
	c.log.apply(c.t, meta.CreateTopic(c.now, id, "a", placement, nil))
	c.elect()
	return id
}

// only are the moves of a plan: partition and nodes of each.
func only(plan []Action) string {
	var out []string
	for _, a := range plan {
		if r, ok := a.(Reassign); ok {
			out = append(out, fmt.Sprintf("%d %v %s", r.Partition, r.Nodes, r.Cause))
		}
	}
	return strings.Join(out, " ")
}

func TestWhatHasTheFewestReplicasLeftIsReplacedFirst(t *testing.T) {
	c := newCluster(t, 1, make([]string, 9)...)
	c.place([]record.NodeID{9, 1, 2, 3, 4}, []record.NodeID{4, 8, 9, 5, 6})
	c.config.MaxMoves = 1
	c.kill(8)
	c.kill(9)
	c.run(9 * time.Minute)
	c.now = c.now.Add(2 * time.Minute)
	if got := only(Plan(c.view())); !strings.HasPrefix(got, "1 [4 ") || strings.Contains(got, "replace ") {
		t.Fatalf("%s", got)
	}
}

func TestTheDeadAreReplacedBeforeThoseThatDrain(t *testing.T) {
	c := newCluster(t, 1, "", "", "", "")
	c.place([]record.NodeID{1, 2, 3})
	c.kill(3)
	c.run(5 * time.Second)
	c.log.apply(t, meta.DrainNode(c.now, 1, true))
	c.alive[3] = Seen{false, c.now.Add(-time.Hour)}
	c.log.apply(t, meta.SetNodeState(c.now, 4, meta.NodeUp))
	if got := only(Plan(c.view())); got != "0 [1 2 4] replace" {
		t.Fatalf("%s", got)
	}
}

// The places that a node left when it was removed by force are filled by the
// next one of its name, if there is no other.
func TestEmptyPlacesAreFilled(t *testing.T) {
	c := newCluster(t, 1, "", "", "")
	c.topic("a", 4, 3)
	c.kill(3)
	c.log.apply(t, meta.RemoveNode(c.now, 3, true))
	c.settle()
	if c.reassigned != 0 {
		t.Fatalf("%d moves to nowhere", c.reassigned)
	}
	c.inc[3]++
	c.add(3, "")
	c.settle()
	if n := c.replicasOn(3); n != 4 || c.copies != 4 {
		t.Fatalf("%d of 4, %d copied", n, c.copies)
	}
}

func TestAMoveThatLedBackIsNotGivenUp(t *testing.T) {
	c := newCluster(t, 1, "", "", "", "")
	id := c.place([]record.NodeID{1, 2, 3})
	tp := record.TopicPartition{Topic: id}
	for _, nodes := range [][]record.NodeID{{1, 2, 4}, {1, 2, 3}} {
		c.log.apply(t, meta.Reassign(c.now, []meta.Move{{TopicPartition: tp, Nodes: nodes, Cause: meta.CauseReplace}}, 0))
	}
	if plan := Plan(c.view()); len(plan) != 0 {
		t.Fatalf("%v", plan)
	}
}

// A node that has registered with another master is heard of here a little later.
func TestANodeJustRegisteredIsNotTakenForDown(t *testing.T) {
	c := newCluster(t, 1, "", "", "")
	c.kill(2)
	c.run(10 * time.Second)
	c.register(2, "", meta.RegisterNode)
	c.now = c.now.Add(time.Second)
	if plan := Plan(c.view()); len(plan) != 0 {
		t.Fatalf("%v", plan)
	}
	c.now = c.now.Add(3 * time.Second)
	if plan := Plan(c.view()); len(plan) != 1 || plan[0] != (SetState{2, meta.NodeDown}) {
		t.Fatalf("%v", plan)
	}
}

func TestLeadersMoveFewAtATimeAndNotWhileReplicasDo(t *testing.T) {
	c := newCluster(t, 1, "", "", "", "")
	var placement [][]record.NodeID
	for range 50 {
		placement = append(placement, []record.NodeID{1, 2, 3})
	}
	id := c.place(placement...)
	for i := range placement {
		c.leads[record.TopicPartition{Topic: id, Partition: record.Partition(i)}] = 2
	}
	c.now = c.now.Add(time.Minute)
	c.log.apply(t, meta.Reassign(c.now, []meta.Move{{TopicPartition: record.TopicPartition{Topic: id}, Nodes: []record.NodeID{1, 2, 4}}}, 0))
	plan := Plan(c.view())
	if len(plan) != 20 {
		t.Fatalf("%d at a time", len(plan))
	}
	for _, a := range plan {
		if a.(TransferLeader).Partition == 0 {
			t.Fatalf("%+v", a)
		}
	}
}

// Any cluster comes to rest: whatever is killed, comes back with or without its
// disk, drains or is added, and then everything is as it should be.
func TestClustersComeToRest(t *testing.T) {
	seeds := 40
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { storm(t, uint64(seed)) })
	}
}

func storm(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	zones := make([]string, 4+rng.IntN(5))
	for i := range zones {
		zones[i] = fmt.Sprint(rng.IntN(1 + rng.IntN(3)))
	}
	c := newCluster(t, seed, zones...)
	c.config.ReplaceAfter = time.Minute
	c.topic("a", 1+rng.IntN(20), 3)
	c.topic("b", 1+rng.IntN(10), 1+rng.IntN(3))
	for range 60 {
		c.fate(rng, len(zones))
		c.run(time.Duration(rng.IntN(60)) * time.Second)
	}
	for _, id := range sortedNodes(c.log.image()) {
		c.back(id, false)
		if c.log.image().Nodes[id].Drain && rng.IntN(2) == 0 {
			c.log.apply(t, meta.DrainNode(c.now, id, false))
		}
	}
	c.settle()
	atRest(c)
}

// fate does something to one node.
func (c *cluster) fate(rng *rand.Rand, n int) {
	id := record.NodeID(1 + rng.IntN(n))
	down, draining := 0, 0
	for _, n := range c.log.image().Nodes {
		if !c.alive[n.ID].Alive {
			down++
		}
		if n.Drain {
			draining++
		}
	}
	switch what := rng.IntN(8); {
	case what < 3 && down < (n-1)/2:
		c.kill(id)
	case what < 5:
		c.back(id, false)
	case what == 5 && down == 1: // more would lose data for good
		c.back(id, c.mayLose(id))
	case what == 6 && draining == 0:
		c.tracef("drain %d", id)
		c.log.apply(c.t, meta.DrainNode(c.now, id, true))
	case what == 7:
		c.tracef("undrain %d", id)
		c.log.apply(c.t, meta.DrainNode(c.now, id, false))
	}
}

// mayLose reports whether every partition on a node keeps a majority without it.
func (c *cluster) mayLose(id record.NodeID) bool {
	ok := true
	c.each(func(_ record.TopicPartition, p *meta.Placement) {
		left := 0
		for _, r := range p.Replicas {
			if r.Node != id && !r.Lost && c.alive[r.Node].Alive {
				left++
			}
		}
		ok = ok && 2*left > len(p.Replicas)
	})
	return ok
}

// atRest asserts that everything is where it should be.
func atRest(c *cluster) {
	im := c.log.image()
	free := 0
	for _, n := range im.Nodes {
		if n.State == meta.NodeDown {
			c.fail("node %d is down", n.ID)
		}
		if !n.Drain {
			free++
		}
	}
	c.each(func(tp record.TopicPartition, p *meta.Placement) {
		if p.Target != nil || p.Leaving != nil {
			c.fail("partition %d is under way: %+v", tp.Partition, p)
		}
		for _, r := range p.Replicas {
			if r.Lost || free >= len(p.Replicas) && im.Nodes[r.Node].Drain {
				c.fail("partition %d: replica %+v; node %+v", tp.Partition, r, im.Nodes[r.Node])
			}
		}
		if im.Nodes[c.leads[tp]].Drain && free > 0 && slices.ContainsFunc(p.Replicas, func(r meta.Replica) bool { return !im.Nodes[r.Node].Drain }) {
			c.fail("partition %d is led by a draining node", tp.Partition)
		}
	})
	for _, problem := range Problems(c.view()) {
		if !strings.Contains(problem, "in one zone") && !strings.Contains(problem, "no other broker") {
			c.fail("a problem is left: %s", problem)
		}
	}
}
