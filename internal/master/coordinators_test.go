package master

import (
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// coordinating is a view of masters 1 to n, all there for a minute.
func coordinating(n int) View {
	v := View{Now: time.Unix(1000, 0), Image: &meta.Image{Nodes: map[record.NodeID]*meta.Node{}}, Alive: map[record.NodeID]Seen{}}
	for id := record.NodeID(1); int(id) <= n; id++ {
		v.Image.Nodes[id] = &meta.Node{ID: id, Roles: []string{meta.RoleMaster}, State: meta.NodeUp}
		v.Alive[id] = Seen{Alive: true, Since: v.Now.Add(-time.Minute)}
	}
	return v
}

// ledBy carries transfers out and counts shards by node.
func ledBy(leads map[record.Group]record.NodeID, ts []ShardTransfer) map[record.NodeID]int {
	for _, t := range ts {
		leads[t.Group] = t.To
	}
	count := map[record.NodeID]int{}
	for _, n := range leads {
		count[n]++
	}
	return count
}

func TestCoordinatorsAreSpreadEvenly(t *testing.T) {
	for _, masters := range []int{1, 2, 3, 5, 7} {
		v := coordinating(masters)
		leads := map[record.Group]record.NodeID{}
		for g := record.Group(2); g < 10; g++ {
			leads[g] = 1
		}
		count := ledBy(leads, SpreadCoordinators(v, leads))
		for id := range v.Image.Nodes {
			if n := count[id]; n < 8/masters || n > (8+masters-1)/masters {
				t.Errorf("%d masters: node %d leads %d of 8 shards: %v", masters, id, n, count)
			}
		}
		if again := SpreadCoordinators(v, leads); len(again) > 0 {
			t.Errorf("%d masters: even, but moved again: %v", masters, again)
		}
	}
}

func TestOnlyMastersThatAreThereCoordinate(t *testing.T) {
	v := coordinating(5)
	v.Image.Nodes[2].Drain = true
	v.Sick = map[record.NodeID]string{3: "its disk is slow"}
	v.Alive[4] = Seen{Alive: false, Since: v.Now.Add(-time.Minute)}
	v.Alive[5] = Seen{Alive: true, Since: v.Now.Add(-time.Second)} // only just
	leads := map[record.Group]record.NodeID{2: 1, 3: 2, 4: 3, 5: 4}
	count := ledBy(leads, SpreadCoordinators(v, leads))
	// Who is not heard of has a successor soon, by its group's own election.
	if count[1] != 3 || count[4] != 1 {
		t.Errorf("led by %v, want all by node 1 but the one whose leader is silent", count)
	}
}

func TestWhoSeesFewNodesMovesNoCoordinator(t *testing.T) {
	v := coordinating(4)
	v.Alive[3], v.Alive[4] = Seen{Since: v.Now.Add(-time.Minute)}, Seen{Since: v.Now.Add(-time.Minute)}
	if out := SpreadCoordinators(v, map[record.Group]record.NodeID{2: 1, 3: 1, 4: 1}); len(out) > 0 {
		t.Errorf("sees half of the nodes and moves %v", out)
	}
}
