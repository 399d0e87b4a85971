package master

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// preferredFactor is the replication factor of a topic whose creator does not
// say: what survives the loss of one node, or as many as there are nodes.
const preferredFactor = 3

// Place chooses nodes for n new partitions with factor replicas each (−1: the
// default): spread over zones first, then to the nodes with the fewest replicas,
// preferred leaders likewise. Brokers that drain take none; those that are sick, as
// their disk is slow, only if there are not enough others, and so those that are
// down, but those never half of a partition or more.
// It depends on the image and the seed alone: the seed decides between equals.
func Place(im *meta.Image, n, factor int, seed uint64) ([][]record.NodeID, error) {
	f := newFleet(im, seed, stays)
	if factor == -1 {
		factor = min(preferredFactor, len(f.nodes))
	}
	brokers := len(im.Brokers())
	if factor < 1 || factor > brokers {
		return nil, fmt.Errorf("%w: %d; there are %d brokers", meta.ErrInvalidReplicas, factor, brokers)
	}
	up := f.up()
	if factor > len(f.nodes) || up < factor/2+1 {
		return nil, fmt.Errorf("%w: %d; of %d brokers %d are up and not draining", meta.ErrInvalidReplicas, factor, brokers, up)
	}
	if up >= factor {
		f.leaveOut(func(l *load) bool { return !takes(l.node) })
	}
	out := make([][]record.NodeID, n)
	for i := range out {
		out[i] = f.placeOne(factor)
	}
	f.spreadLeaders(out, nil)
	return out, nil
}

// DefaultFactor is the replication factor of a topic whose creator does not say.
func DefaultFactor(im *meta.Image) int {
	f := newFleet(im, 0, stays)
	return max(1, min(preferredFactor, len(f.nodes)))
}

// load is what a node carries, or will when all that was decided is done.
type load struct {
	node              *meta.Node
	zone              *zoneLoad
	replicas, leaders int
	tie               int // decides between equals
}

type zoneLoad struct{ nodes, replicas int }

// fleet are the brokers that something can be placed on.
type fleet struct {
	nodes []*load // by id
	byID  map[record.NodeID]*load
}

// newFleet weighs the brokers that may take replicas, by what there shall be in
// the end.
func newFleet(im *meta.Image, seed uint64, may func(*meta.Node) bool) *fleet {
	f := &fleet{byID: map[record.NodeID]*load{}}
	for _, n := range im.Brokers() {
		if may(n) {
			l := &load{node: n}
			f.byID[n.ID] = l
			f.nodes = append(f.nodes, l)
		}
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	for i, tie := range rng.Perm(len(f.nodes)) {
		f.nodes[i].tie = tie
	}
	f.zone()
	for _, t := range im.Topics {
		for i := range t.Partitions {
			for j, r := range t.Partitions[i].Wanted() {
				if l := f.byID[r.Node]; l != nil {
					l.take(1)
					if j == 0 {
						l.leaders++
					}
				}
			}
		}
	}
	return f
}

// zone sums up nodes by zone.
func (f *fleet) zone() {
	zones := map[string]*zoneLoad{}
	for _, l := range f.nodes {
		z := zones[l.node.Zone]
		if z == nil {
			z = &zoneLoad{}
			zones[l.node.Zone] = z
		}
		z.nodes++
		z.replicas += l.replicas
		l.zone = z
	}
}

func (l *load) take(n int) {
	l.replicas += n
	l.zone.replicas += n
}

// takes reports whether a node can be given replicas: one that drains is not up.
func takes(n *meta.Node) bool { return n.State == meta.NodeUp }

// stays reports whether a node will take replicas once it is up.
func stays(n *meta.Node) bool { return !n.Drain }

func (f *fleet) up() int {
	n := 0
	for _, l := range f.nodes {
		if takes(l.node) {
			n++
		}
	}
	return n
}

func (f *fleet) leaveOut(out func(*load) bool) {
	f.nodes = slices.DeleteFunc(f.nodes, func(l *load) bool {
		if out(l) {
			delete(f.byID, l.node.ID)
			return true
		}
		return false
	})
	f.zone()
}

// best is the node that a partition with replicas on taken should have its next
// one on; nil if there is none. zones counts the replicas in each zone.
func (f *fleet) best(taken []record.NodeID, zones map[string]int) *load {
	var best *load
	for _, l := range f.nodes {
		if slices.Contains(taken, l.node.ID) {
			continue
		}
		if best == nil || compareLoads(l, best, zones) < 0 {
			best = l
		}
	}
	return best
}

func compareLoads(a, b *load, zones map[string]int) int {
	return cmp.Or(
		cmp.Compare(unfit(a), unfit(b)),
		cmp.Compare(zones[a.node.Zone], zones[b.node.Zone]),
		// The mean of each zone, so that zones with the same number of nodes stay even.
		cmp.Compare(a.zone.replicas*b.zone.nodes, b.zone.replicas*a.zone.nodes),
		cmp.Compare(a.replicas, b.replicas),
		cmp.Compare(a.leaders, b.leaders),
		cmp.Compare(a.tie, b.tie),
	)
}

// unfit says who comes last: nodes that are sick, and behind them those that are
// down. Neither is given leaders.
func unfit(l *load) int {
	switch {
	case l.node.State == meta.NodeDown:
		return 2
	case l.node.Sick != "":
		return 1
	}
	return 0
}

// placeOne takes one node from each zone before any zone has two, and lets the
// one with the fewest preferred leaders lead.
func (f *fleet) placeOne(factor int) []record.NodeID {
	zones := map[string]int{}
	nodes := make([]record.NodeID, 0, factor)
	lead := 0
	for i := range factor {
		l := f.best(nodes, zones)
		zones[l.node.Zone]++
		nodes = append(nodes, l.node.ID)
		l.take(1)
		if first := f.byID[nodes[lead]]; unfit(l) == 0 && l.leaders < first.leaders {
			lead = i
		}
	}
	nodes[0], nodes[lead] = nodes[lead], nodes[0]
	f.byID[nodes[0]].leaders++
	return nodes
}

// spreadLeaders evens out preferred leaders by changing the order of the given
// partitions' nodes: along a path of partitions if need be, each of which passes
// its leader on. changed, if not nil, hears of each partition touched.
func (f *fleet) spreadLeaders(partitions [][]record.NodeID, changed func(i int)) {
	led := map[record.NodeID][]int{} // partitions, by who leads them
	for i, nodes := range partitions {
		led[nodes[0]] = append(led[nodes[0]], i)
	}
	for {
		from := slices.Clone(f.nodes)
		slices.SortFunc(from, func(a, b *load) int {
			return cmp.Or(cmp.Compare(b.leaders, a.leaders), cmp.Compare(a.node.ID, b.node.ID))
		})
		path := []int(nil)
		for _, l := range from {
			if path = f.leaderPath(l, partitions, led); path != nil {
				break
			}
		}
		if path == nil {
			return
		}
		f.passOn(path, partitions, led)
		if changed != nil {
			for i := 0; i < len(path); i += 2 {
				changed(path[i])
			}
		}
	}
}

// leaderPath finds how a node with many leaders can pass one on to a node with
// at least two fewer: partitions and the place in each of who leads it next, one
// after the other.
func (f *fleet) leaderPath(start *load, partitions [][]record.NodeID, led map[record.NodeID][]int) []int {
	type step struct {
		node             record.NodeID
		before           int // step
		partition, place int
	}
	steps := []step{{node: start.node.ID, before: -1}}
	seen := map[record.NodeID]bool{start.node.ID: true}
	for at := 0; at < len(steps); at++ {
		for _, p := range led[steps[at].node] {
			for place, n := range partitions[p] {
				l := f.byID[n]
				if l == nil || seen[n] || unfit(l) != 0 {
					continue
				}
				seen[n] = true
				steps = append(steps, step{n, at, p, place})
				if l.leaders > start.leaders-2 {
					continue
				}
				var path []int
				for s := len(steps) - 1; steps[s].before >= 0; s = steps[s].before {
					path = append(path, steps[s].partition, steps[s].place)
				}
				return path
			}
		}
	}
	return nil
}

func (f *fleet) passOn(path []int, partitions [][]record.NodeID, led map[record.NodeID][]int) {
	for i := 0; i < len(path); i += 2 {
		p, place := path[i], path[i+1]
		nodes := partitions[p]
		from, to := nodes[0], nodes[place]
		led[from] = slices.DeleteFunc(led[from], func(q int) bool { return q == p })
		led[to] = append(led[to], p)
		nodes[0], nodes[place] = to, from
		f.byID[from].leaders--
		f.byID[to].leaders++
	}
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
			if !im.Nodes[n].Has(meta.RoleBroker) {
				return nil, fmt.Errorf("%w: partition %d: node %d is no broker", meta.ErrInvalidPlacement, i, n)
			}
			if slices.Contains(nodes[:j], n) {
				return nil, fmt.Errorf("%w: partition %d has two replicas on node %d", meta.ErrInvalidPlacement, i, n)
			}
		}
	}
	return assignment, nil
}
