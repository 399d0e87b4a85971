package master

import (
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// transfers moves leaders, few at a time: away from nodes that should not lead,
// and back to preferred ones.
func (p *planner) transfers() []Action {
	var away, back []Action
	due := p.owed()
	for _, pl := range p.partitions {
		from, ok := p.Leads[pl.TopicPartition]
		if !ok || p.Tried(pl.TopicPartition) {
			continue
		}
		if n := p.Image.Nodes[from]; n == nil || n.Drain || p.sick(from) && p.wellWithout(pl, from) {
			if to, ok := p.heir(pl, from); ok {
				away = append(away, TransferLeader{pl.TopicPartition, from, to})
			}
			continue
		}
		if pl.Target != nil { // its leader has enough to do
			continue
		}
		if to := pl.Replicas[0].Node; to != from && due[to] && p.mayLead(pl, pl.Replicas[0], p.Config.LeaderAfter) {
			back = append(back, TransferLeader{pl.TopicPartition, from, to})
		}
	}
	out := append(away, back...)
	return out[:min(len(out), p.Config.MaxTransfers)]
}

// wellWithout reports whether most of a partition's replicas are on other nodes
// that are well. Else its leader, though sick, is needed for whatever is decided,
// and nothing is gained by another.
func (p *planner) wellWithout(pl *placed, node record.NodeID) bool {
	n := 0
	for _, r := range pl.Replicas {
		if r.Node != node && !r.Lost && p.Alive[r.Node].Alive && !p.sick(r.Node) {
			n++
		}
	}
	return 2*n > len(pl.Replicas)
}

// owed are the nodes that lead too few of the partitions they are preferred for.
func (p *planner) owed() map[record.NodeID]bool {
	preferred, missing := map[record.NodeID]int{}, map[record.NodeID]int{}
	for _, pl := range p.partitions {
		from, ok := p.Leads[pl.TopicPartition]
		if !ok || pl.Target != nil {
			continue
		}
		to := pl.Replicas[0].Node
		preferred[to]++
		if from != to {
			missing[to]++
		}
	}
	out := map[record.NodeID]bool{}
	for n, m := range missing {
		out[n] = float64(m) > p.Config.LeaderImbalance*float64(preferred[n])
	}
	return out
}

// mayLead reports whether a replica can take the lead, its node having been
// heard of for so long.
func (p *planner) mayLead(pl *placed, r meta.Replica, heardFor time.Duration) bool {
	n, seen := p.Image.Nodes[r.Node], p.Alive[r.Node]
	return !r.Lost && n != nil && p.mayTake(n) && !p.sick(r.Node) && p.Now.Sub(seen.Since) >= heardFor && !p.Behind(pl.TopicPartition, r.Node)
}

// heir is who leads next when a leader has to go: the first in the order of
// preference, one that stays if there is one.
func (p *planner) heir(pl *placed, from record.NodeID) (record.NodeID, bool) {
	best, found := record.NodeID(-1), false
	for _, r := range pl.Replicas {
		if r.Node == from || !p.mayLead(pl, r, 0) {
			continue
		}
		stays := false
		for _, w := range pl.Wanted() {
			stays = stays || w == r
		}
		if stays {
			return r.Node, true
		}
		if !found {
			best, found = r.Node, true
		}
	}
	return best, found
}
