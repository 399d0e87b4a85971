package test

import (
	"strconv"
	"testing"
	"time"
)

// Three empty folders become one cluster, whichever comes last.
func TestClusterForms(t *testing.T) {
	c := prepareCluster(t, 3)
	began := time.Now()
	c.launch(2, 3)
	time.Sleep(500 * time.Millisecond)
	select {
	case <-c.node(2).exited:
		t.Fatalf("node 2 does not wait: %s", c.node(2).log)
	default:
	}
	if !c.node(2).log.contains("a new cluster needs all of its masters once") {
		t.Errorf("node 2 does not say for whom it waits: %s", c.node(2).log)
	}
	c.launch(1)
	c.waitReady(1, 2, 3)
	t.Logf("ready after %v", time.Since(began).Round(time.Millisecond))
	c.createTopic("t", 3)
	l := c.startLoad("t", 3, lightLoad)
	l.flowing(300)
	l.finish()
	for _, id := range c.order {
		if code := c.node(id).stop(); code != 0 {
			t.Errorf("node %d ends with %d", id, code)
		}
	}
	for _, id := range c.order {
		if c.node(id).log.contains(`"level":"ERROR"`) {
			t.Errorf("errors were logged: %s", c.node(id).log)
		}
	}
}

// launchRefused starts a node that must end, and say why.
func (c *cluster) launchRefused(n *node, because string) {
	c.t.Helper()
	n.launch()
	select {
	case <-n.exited:
	case <-time.After(15 * time.Second):
		c.t.Errorf("a node that must be refused (%s) runs: %s", because, n.log)
		n.kill()
		return
	}
	n.started = false
	if !n.log.contains(because) {
		c.t.Errorf("the node does not say %q: %s", because, n.log)
	}
	if n.log.contains(`"level":"ERROR"`) {
		c.t.Errorf("a refusal is no error of the node's: %s", n.log)
	}
}

// Who does not belong here is refused with a reason, and disturbs nobody.
func TestStrangersAreRefused(t *testing.T) {
	c := newCluster(t, 3)
	c.createTopic("t", 2)
	l := c.startLoad("t", 2, lightLoad)
	stranger := func(id int, dir string, flags ...string) *node {
		n := prepareNode(t, dir, append([]string{"--node-id", strconv.Itoa(id), "--masters", c.mastersFlag()}, flags...)...)
		if id <= 3 {
			n.peer = freePort(t)
		}
		return n
	}
	// An id that is in use.
	taken := stranger(2, t.TempDir(), "--roles", "broker")
	c.launchRefused(taken, "node id 2")
	// A folder that says it is of another cluster.
	c.launchRefused(stranger(4, t.TempDir(), "--roles", "broker", "--cluster-id", "3f1c2a52-5d5e-4b57-9a39-0c39dd1d4f10"), "wrong cluster id")
	// A node of another cluster, with its own data.
	other := newNode(t)
	if code := other.stop(); code != 0 {
		t.Fatalf("ends with %d", code)
	}
	moved := stranger(1, other.dir, "--roles", "broker")
	moved.flags[1] = "1"
	c.launchRefused(moved, "wrong cluster id")
	// A clone of a node's disk, beside the node.
	original := c.node(3)
	if code := original.stop(); code != 0 {
		t.Fatalf("ends with %d", code)
	}
	image := original.image()
	c.start(3)
	c.launchRefused(stranger(3, image), "this is an older copy of the data folder of node 3")
	l.flowing(200)
	for _, id := range c.order {
		c.node(id).alive()
	}
	l.finish()
}

// A node without the role master joins and takes its share.
func TestBrokerJoins(t *testing.T) {
	c := newCluster(t, 3)
	c.createTopic("before", 2)
	l := c.startLoad("before", 2, lightLoad)
	c.add(4, "--roles", "broker")
	c.start(4)
	c.createTopic("after", 12)
	d, err := c.metadata(4, "after")
	if err != nil {
		t.Fatal(err)
	}
	hosts := map[int32]int{}
	for _, p := range d.Partitions {
		for _, r := range p.Replicas {
			hosts[r]++
		}
	}
	if hosts[4] < 5 || hosts[4] > 13 {
		t.Errorf("replicas by node: %v", hosts)
	}
	more := c.startLoad("after", 12, lightLoad)
	more.flowing(200)
	// It is no voter of the masters: two of the three others are needed, not three of four.
	c.node(4).kill()
	l.flowing(100)
	c.start(4)
	more.flowing(100)
	l.finish()
	more.finish()
}

// Copies of a partition stand in different zones.
func TestZonesKeepCopiesApart(t *testing.T) {
	c := &cluster{t: t, nodes: map[int]*node{}, masters: []int{1, 2, 3}}
	zones := map[int32]string{1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
	for id := 1; id <= 6; id++ {
		flags := []string{"--zone", zones[int32(id)]}
		if id > 3 {
			flags = append(flags, "--roles", "broker")
		}
		c.add(id, flags...)
	}
	c.start(c.order...)
	c.createTopic("t", 12)
	d, err := c.metadata(5, "t")
	if err != nil {
		t.Fatal(err)
	}
	leaders := map[int32]int{}
	for _, p := range d.Partitions {
		seen := map[string]bool{}
		for _, r := range p.Replicas {
			seen[zones[r]] = true
		}
		if len(seen) != 3 {
			t.Errorf("partition %d: replicas %v stand in zones %v", p.Partition, p.Replicas, seen)
		}
		leaders[p.Leader]++
	}
	t.Logf("leaders by node: %v", leaders)
}
