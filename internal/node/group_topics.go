package node

import (
	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// groupTopics makes of metadata what coordinators of groups need to know of it.
// What did not change is not made anew.
type groupTopics struct {
	of    map[*meta.Topic]*group.Topic
	zones map[record.NodeID]string
}

// view is what the image says of topics.
func (g *groupTopics) view(im *meta.Image) *group.Topics {
	zones := map[record.NodeID]string{}
	for id, n := range im.Nodes {
		if n.Zone != "" {
			zones[id] = n.Zone
		}
	}
	if !sameZones(g.zones, zones) {
		g.of, g.zones = nil, zones
	}
	next := make(map[*meta.Topic]*group.Topic, len(im.Topics))
	list := make([]*group.Topic, 0, len(im.Topics))
	for _, t := range im.Topics {
		gt := g.of[t]
		if gt == nil {
			gt = &group.Topic{ID: t.ID, Name: t.Name, Partitions: len(t.Partitions), Zones: zonesOf(t, zones)}
		}
		next[t] = gt
		list = append(list, gt)
	}
	g.of = next
	return group.NewTopics(im.Index, list)
}

func zonesOf(t *meta.Topic, zones map[record.NodeID]string) [][]string {
	if len(zones) == 0 {
		return nil
	}
	out := make([][]string, len(t.Partitions))
	for i, p := range t.Partitions {
		for _, r := range p.Replicas {
			if z := zones[r.Node]; z != "" {
				out[i] = append(out[i], z)
			}
		}
	}
	return out
}

func sameZones(a, b map[record.NodeID]string) bool {
	if len(a) != len(b) {
		return false
	}
	for id, z := range b {
		if a[id] != z {
			return false
		}
	}
	return true
}
