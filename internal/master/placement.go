package master

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// preferredFactor is the replication factor of a topic whose creator does not
// say: what survives the loss of one node, or as many as there are nodes.
const preferredFactor = 3

// Place chooses nodes for n new partitions with factor replicas each (−1: the
// default): spread over zones first, then to the nodes with the fewest replicas,
// preferred leaders likewise. It depends on the image alone.
func Place(im *meta.Image, n, factor int) ([][]record.NodeID, error) {
	nodes := candidates(im)
	if factor == -1 {
		factor = min(preferredFactor, len(nodes))
	}
	if factor < 1 || factor > len(nodes) {
		return nil, fmt.Errorf("%w: %d; there are %d brokers that can take replicas", meta.ErrInvalidReplicas, factor, len(nodes))
	}
	out := make([][]record.NodeID, n)
	for i := range out {
		out[i] = placeOne(nodes, factor)
	}
	return out, nil
}

// load is what a node carries while partitions are being placed.
type load struct {
	node              *meta.Node
	replicas, leaders int
}

func candidates(im *meta.Image) []*load {
	var out []*load
	byID := map[record.NodeID]*load{}
	for id, n := range im.Nodes {
		if n.State == meta.NodeUp && slices.Contains(n.Roles, "broker") {
			l := &load{node: n}
			byID[id] = l
			out = append(out, l)
		}
	}
	for _, t := range im.Topics {
		for _, p := range t.Partitions {
			for i, r := range p.Replicas {
				if l := byID[r.Node]; l != nil {
					l.replicas++
					if i == 0 {
						l.leaders++
					}
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b *load) int { return cmp.Compare(a.node.ID, b.node.ID) })
	return out
}

// placeOne takes the least loaded node as leader, then one from each further
// zone before any zone has two.
func placeOne(nodes []*load, factor int) []record.NodeID {
	zones := map[string]int{}
	taken := make([]*load, 0, factor)
	for i := range factor {
		best := slices.MinFunc(nodes, func(a, b *load) int {
			return cmp.Or(
				boolCompare(slices.Contains(taken, a), slices.Contains(taken, b)),
				cmp.Compare(zones[a.node.Zone], zones[b.node.Zone]),
				leaderCompare(i == 0, a, b),
				cmp.Compare(a.replicas, b.replicas),
				cmp.Compare(a.node.ID, b.node.ID),
			)
		})
		taken = append(taken, best)
		zones[best.node.Zone]++
	}
	ids := make([]record.NodeID, factor)
	for i, l := range taken {
		ids[i] = l.node.ID
		l.replicas++
		if i == 0 {
			l.leaders++
		}
	}
	return ids
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func leaderCompare(leader bool, a, b *load) int {
	if !leader {
		return 0
	}
	return cmp.Compare(a.leaders, b.leaders)
}

// checkAssignment checks what somebody placed by hand.
func checkAssignment(im *meta.Image, assignment [][]record.NodeID) ([][]record.NodeID, error) {
	if len(assignment) == 0 || len(assignment) > meta.MaxPartitions {
		return nil, fmt.Errorf("%w: replicas for %d partitions; 1 to %d are allowed", meta.ErrInvalidPlacement, len(assignment), meta.MaxPartitions)
	}
	for i, nodes := range assignment {
		if len(nodes) == 0 || len(nodes) != len(assignment[0]) {
			return nil, fmt.Errorf("%w: partition %d has %d replicas, partition 0 has %d", meta.ErrInvalidPlacement, i, len(nodes), len(assignment[0]))
		}
		for j, n := range nodes {
			if im.Nodes[n] == nil {
				return nil, fmt.Errorf("%w: partition %d: there is no node %d", meta.ErrInvalidPlacement, i, n)
			}
			if slices.Contains(nodes[:j], n) {
				return nil, fmt.Errorf("%w: partition %d has two replicas on node %d", meta.ErrInvalidPlacement, i, n)
			}
		}
	}
	return assignment, nil
}
