package master

import (
	"slices"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// ShardTransfer asks the leader of a groups shard to let another master lead it.
type ShardTransfer struct {
	Group    record.Group
	From, To record.NodeID
}

// SpreadCoordinators says which shards of the stream groups are to be led by
// another master, so that none coordinates more than its share. leads names the
// leader of each shard; one that is missing has no leader that anybody knows of. It
// is as pure as Plan, and moves nothing while less than half of the nodes are heard
// of. A move makes the members of a shard look for their coordinator anew, so a
// difference of one shard is left alone.
func SpreadCoordinators(v View, leads map[record.Group]record.NodeID) []ShardTransfer {
	p := newPlanner(v)
	if 2*p.heard <= len(v.Image.Nodes) {
		return nil
	}
	led := map[record.NodeID][]record.Group{}
	var masters []record.NodeID // that may coordinate, by id
	for _, n := range v.Image.Masters() {
		if p.mayCoordinate(n) {
			masters = append(masters, n.ID)
			led[n.ID] = nil
		}
	}
	slices.Sort(masters)
	var homeless []ShardTransfer // led by one that should not
	shards := make([]record.Group, 0, len(leads))
	for g := range leads {
		shards = append(shards, g)
	}
	slices.Sort(shards)
	for _, g := range shards {
		from := leads[g]
		if slices.Contains(masters, from) {
			led[from] = append(led[from], g)
		} else if n := v.Image.Nodes[from]; n == nil || n.Drain || p.sick(from) {
			homeless = append(homeless, ShardTransfer{Group: g, From: from})
		}
	}
	if len(masters) == 0 {
		return nil
	}
	byCount := func(a, b record.NodeID) int { return len(led[a]) - len(led[b]) }
	var out []ShardTransfer
	for _, t := range homeless {
		t.To = slices.MinFunc(masters, byCount)
		led[t.To] = append(led[t.To], t.Group)
		out = append(out, t)
	}
	for {
		from, to := slices.MaxFunc(masters, byCount), slices.MinFunc(masters, byCount)
		n := len(led[from])
		if n-len(led[to]) < 2 {
			return out
		}
		g := led[from][n-1]
		led[from], led[to] = led[from][:n-1], append(led[to], g)
		out = append(out, ShardTransfer{g, from, to})
	}
}

// mayCoordinate reports whether a master can be given shards: it has been there for
// a while, as one that restarts again and again should not be given any.
func (p *planner) mayCoordinate(n *meta.Node) bool {
	seen := p.Alive[n.ID]
	return seen.Alive && !n.Drain && n.State != meta.NodeDown && !p.sick(n.ID) && p.Now.Sub(seen.Since) >= p.Config.LeaderAfter
}
