package master

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// Problems says what is wrong with the cluster, the worst first, a sentence each.
func Problems(v View) []string {
	p := newPlanner(v)
	out := p.unseen()
	out = append(out, p.partitionProblems()...)
	out = append(out, p.nodeProblems()...)
	return out
}

func (p *planner) unseen() []string {
	all := len(p.Image.Nodes)
	if 2*p.heard > all {
		return nil
	}
	return []string{fmt.Sprintf("only %d of %d nodes are heard of: this master may be the one that is cut off, and moves nothing", p.heard, all)}
}

func (p *planner) partitionProblems() []string {
	var leaderless, gone, stuck, thin, nowhere, zoned []string
	var f *fleet
	for _, pl := range p.partitions {
		name := fmt.Sprintf("%s/%d", pl.name, pl.Partition)
		if _, ok := p.Leads[pl.TopicPartition]; !ok {
			leaderless = append(leaderless, name)
		}
		switch {
		case !slices.ContainsFunc(pl.Replicas, func(r meta.Replica) bool { return !r.Lost }):
			gone = append(gone, name)
		case !pl.quorum:
			stuck = append(stuck, name)
		case pl.left < len(pl.Replicas):
			thin = append(thin, name)
		}
		if f == nil {
			f = newFleet(p.Image, 0, p.mayTake)
		}
		if pl.quorum && p.cause(pl) == meta.CauseReplace {
			if _, ok := p.elsewhere(f, pl); !ok {
				nowhere = append(nowhere, name)
			}
		}
		if p.crowded(pl, f) {
			zoned = append(zoned, name)
		}
	}
	var out []string
	tell := func(names []string, text string) {
		if len(names) > 0 {
			out = append(out, fmt.Sprintf("%s %s: %s", count(len(names), "partition", "partitions"), text, firstNames(names)))
		}
	}
	tell(gone, "lost all replicas, and can only start empty (unsafe recovery)")
	tell(stuck, "lost the majority of the replicas and wait for their nodes")
	tell(leaderless, "without a leader")
	tell(thin, "with fewer live replicas than there should be")
	tell(nowhere, "with a replica that should be replaced, and no other broker to put it on")
	tell(zoned, "with two replicas in one zone though there are other zones (tube cluster rebalance)")
	return out
}

// crowded reports whether a partition has two replicas in one zone while there
// is a zone without one that can take it.
func (p *planner) crowded(pl *placed, f *fleet) bool {
	if pl.Target != nil {
		return false
	}
	zones, taken := map[string]int{}, []record.NodeID{}
	twice := false
	for _, r := range pl.Replicas {
		taken = append(taken, r.Node)
		if n := p.Image.Nodes[r.Node]; n != nil {
			zones[n.Zone]++
			twice = twice || zones[n.Zone] > 1
		}
	}
	if !twice {
		return false
	}
	l := f.best(taken, zones)
	return l != nil && zones[l.node.Zone] == 0
}

func (p *planner) nodeProblems() []string {
	var out []string
	left := replicasByNode(p.Image)
	for _, id := range sortedNodes(p.Image) {
		n, seen := p.Image.Nodes[id], p.Alive[id]
		if n.State == meta.NodeDown {
			out = append(out, fmt.Sprintf("node %d is down since %s (%s)", id, n.Since.UTC().Format(time.RFC3339), p.Now.Sub(n.Since).Round(time.Second)))
		} else if _, ok := p.Alive[id]; ok && !seen.Alive {
			out = append(out, fmt.Sprintf("node %d is not heard of for %s", id, p.Now.Sub(seen.Since).Round(time.Second)))
		}
		if p.sick(id) {
			out = append(out, fmt.Sprintf("node %d is sick and leads only what no other node can: %s", id, p.Sick[id]))
		}
		if n.Drain && left[id] > 0 {
			out = append(out, p.drainProblem(id, left[id]))
		}
	}
	return out
}

// drainProblem says how far a drain has come, and whether it can go on.
func (p *planner) drainProblem(id record.NodeID, left int) string {
	f := newFleet(p.Image, 0, p.mayTake)
	stuck := 0
	for _, pl := range p.partitions {
		i := slices.IndexFunc(pl.Wanted(), func(r meta.Replica) bool { return r.Node == id })
		if i < 0 {
			continue
		}
		var taken []record.NodeID
		for _, r := range pl.Wanted() {
			taken = append(taken, r.Node)
		}
		if f.best(taken, map[string]int{}) == nil {
			stuck++
		}
	}
	text := fmt.Sprintf("node %d is draining: %s left", id, count(left, "replica is", "replicas are"))
	if stuck > 0 {
		text += fmt.Sprintf(", and no other broker can take %d of them", stuck)
	}
	return text
}

// replicasByNode counts what each node has to keep, moves under way included.
func replicasByNode(im *meta.Image) map[record.NodeID]int {
	out := map[record.NodeID]int{}
	for _, t := range im.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			var seen []record.NodeID
			for _, list := range [][]meta.Replica{p.Replicas, p.Target, p.Leaving} {
				for _, r := range list {
					if !r.Lost && !slices.Contains(seen, r.Node) {
						seen = append(seen, r.Node)
						out[r.Node]++
					}
				}
			}
		}
	}
	return out
}

// firstNames lists names, not too many.
func firstNames(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
