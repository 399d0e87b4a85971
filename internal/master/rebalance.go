package master

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// Rebalance says what has to move so that no partition has two replicas in one
// zone that could be in two, brokers have as many replicas as one another, and
// are the preferred leaders of as many partitions. A move with the same nodes in
// another order copies nothing. Partitions that are moving already are left alone.
func Rebalance(im *meta.Image) []meta.Move {
	b := newBalancer(im)
	b.parting()
	for b.step() {
	}
	nodes := make([][]record.NodeID, len(b.partitions))
	for i, p := range b.partitions {
		nodes[i] = p.nodes
	}
	b.fleet.spreadLeaders(nodes, nil)
	var out []meta.Move
	for _, p := range b.partitions {
		if !slices.Equal(p.nodes, p.before) {
			out = append(out, meta.Move{TopicPartition: p.TopicPartition, Nodes: p.nodes, Cause: meta.CauseRebalance})
		}
	}
	return out
}

type balancer struct {
	im         *meta.Image
	fleet      *fleet
	partitions []*balanced // by topic's name and number
	on         map[record.NodeID][]*balanced
}

type balanced struct {
	record.TopicPartition
	name          string
	nodes, before []record.NodeID
}

func newBalancer(im *meta.Image) *balancer {
	b := &balancer{im: im, on: map[record.NodeID][]*balanced{}, fleet: newFleet(im, 0, takes)}
	for _, t := range im.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if p.Target != nil || slices.ContainsFunc(p.Replicas, func(r meta.Replica) bool { return r.Lost }) {
				continue
			}
			bp := &balanced{TopicPartition: record.TopicPartition{Topic: t.ID, Partition: record.Partition(i)}, name: t.Name, before: nodesOf(p.Replicas)}
			bp.nodes = slices.Clone(bp.before)
			b.partitions = append(b.partitions, bp)
		}
	}
	slices.SortFunc(b.partitions, func(x, y *balanced) int {
		return cmp.Or(cmp.Compare(x.name, y.name), cmp.Compare(x.Partition, y.Partition))
	})
	for _, p := range b.partitions {
		for _, n := range p.nodes {
			b.on[n] = append(b.on[n], p)
		}
	}
	return b
}

func nodesOf(rs []meta.Replica) []record.NodeID {
	out := make([]record.NodeID, len(rs))
	for i, r := range rs {
		out[i] = r.Node
	}
	return out
}

func (b *balancer) zones(nodes []record.NodeID) map[string]int { return zonesOf(b.im, nodes) }

// parting puts replicas that share a zone into zones of their own.
func (b *balancer) parting() {
	for _, p := range b.partitions {
		for {
			zones := b.zones(p.nodes)
			to := b.fleet.best(p.nodes, zones)
			var from *load
			for _, id := range p.nodes {
				if l := b.fleet.byID[id]; l != nil && (from == nil || cmp.Or(cmp.Compare(zones[l.node.Zone], zones[from.node.Zone]), cmp.Compare(l.replicas, from.replicas)) > 0) {
					from = l
				}
			}
			if to == nil || from == nil || zones[to.node.Zone]+1 >= zones[from.node.Zone] {
				break
			}
			b.move(p, from, to)
		}
	}
}

func (b *balancer) move(p *balanced, from, to *load) {
	i := slices.Index(p.nodes, from.node.ID)
	p.nodes[i] = to.node.ID
	b.on[from.node.ID] = slices.DeleteFunc(b.on[from.node.ID], func(q *balanced) bool { return q == p })
	b.on[to.node.ID] = append(b.on[to.node.ID], p)
	from.take(-1)
	to.take(1)
	if i == 0 {
		from.leaders--
		to.leaders++
	}
}

// step moves one replica from a node that has many to one that has at least two
// fewer; false: there is none left that may.
func (b *balancer) step() bool {
	order := slices.Clone(b.fleet.nodes)
	slices.SortStableFunc(order, func(x, y *load) int { return cmp.Compare(y.replicas, x.replicas) })
	for _, from := range order {
		for _, to := range slices.Backward(order) {
			if from.replicas-to.replicas < 2 {
				break
			}
			if p := b.movable(from, to); p != nil {
				b.move(p, from, to)
				return true
			}
		}
	}
	return false
}

// movable finds a partition that can pass a replica from one node to another
// without lying in fewer zones, better one that from is not preferred to lead.
func (b *balancer) movable(from, to *load) *balanced {
	var best *balanced
	for _, p := range b.on[from.node.ID] {
		if slices.Contains(p.nodes, to.node.ID) {
			continue
		}
		if from.zone != to.zone {
			if zones := b.zones(p.nodes); zones[to.node.Zone]+1 > zones[from.node.Zone] {
				continue
			}
		}
		if p.nodes[0] != from.node.ID {
			return p
		}
		if best == nil {
			best = p
		}
	}
	return best
}

// changeFactor says how each partition of a topic gets n replicas. More go where
// new ones would be placed; fewer leave where they are needed least.
func changeFactor(im *meta.Image, t *meta.Topic, n int) ([]meta.Move, error) {
	if brokers := len(im.Brokers()); n < 1 || n > brokers {
		return nil, fmt.Errorf("%w: %d; there are %d brokers", meta.ErrInvalidReplicas, n, brokers)
	}
	f := newFleet(im, 0, takes)
	var out []meta.Move
	for i := range t.Partitions {
		p := &t.Partitions[i]
		nodes := nodesOf(p.Wanted())
		for len(nodes) > n {
			nodes = f.dropOne(im, p, nodes)
		}
		for len(nodes) < n {
			l := f.best(nodes, zonesOf(im, nodes))
			if l == nil {
				return nil, fmt.Errorf("%w: %d; there are only %d brokers that are up and can take a replica of %s/%d", meta.ErrInvalidReplicas, n, len(f.nodes), t.Name, i)
			}
			nodes = append(nodes, l.node.ID)
			l.take(1)
		}
		if !slices.Equal(nodes, nodesOf(p.Wanted())) {
			out = append(out, meta.Move{TopicPartition: record.TopicPartition{Topic: t.ID, Partition: record.Partition(i)}, Nodes: nodes, Cause: meta.CauseFactor})
		}
	}
	return out, nil
}

func zonesOf(im *meta.Image, nodes []record.NodeID) map[string]int {
	zones := map[string]int{}
	for _, id := range nodes {
		if n := im.Nodes[id]; n != nil {
			zones[n.Zone]++
		}
	}
	return zones
}

// dropOne leaves out the replica that is needed least: one on a node that cannot
// keep it, else one that shares its zone, else the one on the fullest node. The
// preferred leader stays if it can.
func (f *fleet) dropOne(im *meta.Image, p *meta.Placement, nodes []record.NodeID) []record.NodeID {
	zones := zonesOf(im, nodes)
	rank := func(i int) (useless, zone, last, replicas int) {
		n, l := im.Nodes[nodes[i]], f.byID[nodes[i]]
		_, hosted := p.Hosted(nodes[i])
		if n == nil || l == nil || !hosted {
			return 1, 0, 0, 0
		}
		if i > 0 {
			last = 1
		}
		return 0, zones[n.Zone], last, l.replicas
	}
	worst := 0
	for i := range nodes {
		u, z, s, r := rank(i)
		wu, wz, ws, wr := rank(worst)
		if cmp.Or(cmp.Compare(u, wu), cmp.Compare(s, ws), cmp.Compare(z, wz), cmp.Compare(r, wr)) > 0 {
			worst = i
		}
	}
	if l := f.byID[nodes[worst]]; l != nil {
		l.take(-1)
	}
	return slices.Delete(nodes, worst, worst+1)
}
