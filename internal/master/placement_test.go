package master

import (
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// spread counts replicas and preferred leaders of each node.
func spread(placement [][]record.NodeID) (replicas, leaders map[record.NodeID]int) {
	replicas, leaders = map[record.NodeID]int{}, map[record.NodeID]int{}
	for _, nodes := range placement {
		leaders[nodes[0]]++
		for _, n := range nodes {
			replicas[n]++
		}
	}
	return replicas, leaders
}

func TestReplicasAreSpreadOverZonesThenByLoad(t *testing.T) {
	im := newLog(t, "a", "a", "b", "b", "c", "c").image()
	got, err := Place(im, 60, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	for p, nodes := range got {
		zones := map[string]bool{}
		for _, n := range nodes {
			zones[im.Nodes[n].Zone] = true
		}
		if len(zones) != 3 {
			t.Fatalf("partition %d is on nodes %v, in %d zones", p, nodes, len(zones))
		}
	}
	replicas, leaders := spread(got)
	for n := range im.Nodes {
		if replicas[n] != 30 || leaders[n] != 10 {
			t.Errorf("node %d has %d replicas and leads %d, want 30 and 10", n, replicas[n], leaders[n])
		}
	}
}

func TestMoreReplicasThanZonesAreOnNodesOfTheirOwn(t *testing.T) {
	got, err := Place(newLog(t, "a", "a", "b").image(), 6, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	for p, nodes := range got {
		if replicas, _ := spread([][]record.NodeID{nodes}); len(replicas) != 3 {
			t.Fatalf("partition %d has two replicas on one node: %v", p, nodes)
		}
	}
}

func TestNewNodesTakeNewReplicas(t *testing.T) {
	c := newLog(t, "", "")
	if _, err := c.master(1).CreateTopic(t.Context(), TopicSpec{Name: "old", Partitions: 10, ReplicationFactor: 1}); err != nil {
		t.Fatal(err)
	}
	c.apply(t, meta.RegisterNode(time.UnixMilli(2), meta.Node{ID: 3, Incarnation: "i", Roles: []string{"broker"}, Kafka: "127.0.0.1:9092"}))
	got, err := Place(c.image(), 5, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if replicas, _ := spread(got); replicas[3] != 5 {
		t.Fatalf("nodes 1 and 2 have 5 replicas each, and of 5 new ones %v", replicas)
	}
}

func TestReplicasGoToBrokersThatAreUp(t *testing.T) {
	c := newLog(t, "", "", "", "")
	c.apply(t, meta.RegisterNode(time.UnixMilli(2), meta.Node{ID: 5, Incarnation: "i", Roles: []string{"master"}, Kafka: "127.0.0.1:9092"}))
	c.apply(t, meta.SetNodeState(time.UnixMilli(2), 1, meta.NodeDown))
	c.apply(t, meta.SetNodeState(time.UnixMilli(2), 2, meta.NodeDraining))
	got, err := Place(c.image(), 8, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	if replicas, _ := spread(got); len(replicas) != 2 || replicas[3] != 8 || replicas[4] != 8 {
		t.Fatalf("replicas are on %v, want 3 and 4", replicas)
	}
	// The majority is up: a node that is down takes the rest, and leads nothing.
	got, err = Place(c.image(), 8, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	if replicas, leaders := spread(got); replicas[1] != 8 || replicas[2] != 0 || leaders[1] != 0 {
		t.Fatalf("replicas are on %v, leaders %v; node 1 is down, node 2 drains", replicas, leaders)
	}
	_, err = Place(c.image(), 1, 4, 1)
	wantErr(t, err, meta.ErrInvalidReplicas)
	c.apply(t, meta.SetNodeState(time.UnixMilli(2), 3, meta.NodeDown))
	_, err = Place(c.image(), 1, 2, 1)
	wantErr(t, err, meta.ErrInvalidReplicas)
}

// A sick node takes what the others cannot, before one that is down does, and is
// nobody's preferred leader.
func TestReplicasGoToSickBrokersLast(t *testing.T) {
	c := newLog(t, "", "", "", "")
	c.apply(t, meta.SetNodeSick(time.UnixMilli(2), 1, "slow disk"))
	got, err := Place(c.image(), 8, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	if replicas, _ := spread(got); replicas[1] != 0 {
		t.Fatalf("replicas are on %v; node 1 is sick", replicas)
	}
	c.apply(t, meta.SetNodeState(time.UnixMilli(2), 2, meta.NodeDown))
	got, err = Place(c.image(), 8, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	if replicas, leaders := spread(got); replicas[1] != 8 || leaders[1] != 0 {
		t.Fatalf("replicas are on %v, leaders %v; node 1 is sick, node 2 down", replicas, leaders)
	}
}

func TestReplicationFactorHasLimitsAndADefault(t *testing.T) {
	for zones, want := range map[int]int{1: 1, 2: 2, 3: 3, 5: 3} {
		got, err := Place(newLog(t, make([]string, zones)...).image(), 1, -1, 1)
		if err != nil || len(got[0]) != want {
			t.Errorf("of %d nodes: %v, %v, want %d replicas", zones, got, err, want)
		}
	}
	for _, factor := range []int{0, -2, 4, 32767} {
		_, err := Place(newLog(t, "", "", "").image(), 1, factor, 1)
		wantErr(t, err, meta.ErrInvalidReplicas)
	}
	_, err := Place(newLog(t).image(), 1, -1, 1)
	wantErr(t, err, meta.ErrInvalidReplicas)
}
