package master

import (
	"slices"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// A rolling upgrade: the cluster's level follows the last node, and from then on there is
// no way back.
func TestTheLevelIsRaisedOnceTheLastNodeIsUpgraded(t *testing.T) {
	c := newCluster(t, 1, "", "", "", "")
	c.topic("a", 6, 3)
	c.settle()
	if l := c.log.image().Level; l != 0 {
		t.Fatalf("level %d, of nodes that know none", l)
	}
	for id := record.NodeID(1); id <= 4; id++ {
		c.kill(id)
		c.run(5 * time.Second)
		c.levels[id] = 1
		c.back(id, false)
		c.run(5 * time.Second)
		if l := c.log.image().Level; l != meta.Level(id/4) {
			t.Fatalf("level %d when %d of 4 nodes are upgraded", l, id)
		}
	}
	c.settle()
	if c.raised != 1 {
		t.Fatalf("raised %d times", c.raised)
	}
	old := meta.Node{ID: 2, Incarnation: "0", Roles: []string{"broker"}, Kafka: "127.0.0.1:9092"}
	r, err := c.log.Propose(t.Context(), meta.RegisterNode(c.now, old))
	if err != nil {
		t.Fatal(err)
	}
	wantErr(t, r.(meta.Result).Err, meta.ErrOldProgram)
}

// A node that is away keeps its level: the others wait for it, or it is removed.
func TestANodeThatIsAwayHoldsTheLevel(t *testing.T) {
	c := newCluster(t, 1, "", "", "")
	c.kill(3)
	for id := record.NodeID(1); id <= 2; id++ {
		c.levels[id] = 1
		c.register(id, "", meta.RegisterNode)
	}
	c.run(time.Minute)
	if next, behind := c.log.image().NextLevel(); c.log.image().Level != 0 || next != 1 || !slices.Equal(behind, []record.NodeID{3}) {
		t.Fatalf("level %d, next %d waits for %v", c.log.image().Level, next, behind)
	}
	c.log.apply(t, meta.RemoveNode(c.now, 3, false))
	c.run(time.Second)
	if l := c.log.image().Level; l != 1 {
		t.Fatalf("level %d without the old node", l)
	}
}

func TestARaisedLevelIsCarriedOut(t *testing.T) {
	log := &committed{machine: meta.New()}
	log.apply(t, meta.RegisterNode(planTime, meta.Node{ID: 1, Incarnation: "i", Roles: []string{"broker"}, Kafka: "x:1", Level: 1}))
	plan := Plan(View{Now: planTime, Image: log.image(), Alive: map[record.NodeID]Seen{1: {true, planTime}}})
	if _, err := log.master(1).CarryOut(t.Context(), plan, 0); err != nil {
		t.Fatal(err)
	}
	if l := log.image().Level; l != 1 {
		t.Fatalf("level %d", l)
	}
}
