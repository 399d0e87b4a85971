package group

import (
	"maps"
	"slices"

	"github.com/tube-mq/tube/internal/record"
)

// assignShare says what each member reads, if that is not of the present epoch. Each
// partition of a topic has at least one member of those who read the topic, each of
// them at least one partition; beyond that they are spread evenly, and what need not
// move stays. (The simple assignor of KIP-932 does the same, but for what stays.)
func (c *Coordinator) assignShare(g *shareGroup) {
	if !g.stale || c.topics == nil {
		return
	}
	g.stale = false
	readers := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		for _, t := range g.members[id].topics {
			readers[t] = append(readers[t], id)
		}
	}
	next := map[string][]record.TopicPartition{}
	g.reads = slices.Sorted(maps.Keys(readers))
	g.topicsHash = c.hashShared(g)
	for _, name := range g.reads {
		if t := c.topics.byName[name]; t != nil {
			g.assignTopic(t, readers[name], next)
		}
	}
	for id, m := range g.members {
		m.assigned = NewPartitions(next[id])
	}
}

// assignTopic deals out one topic to who reads it.
func (g *shareGroup) assignTopic(t *Topic, readers []string, next map[string][]record.TopicPartition) {
	had := make([][]int, len(readers))
	for i, id := range readers {
		for _, tp := range g.members[id].assigned {
			if tp.Topic == t.ID && int(tp.Partition) < t.Partitions {
				had[i] = append(had[i], int(tp.Partition))
			}
		}
	}
	give := func(reader, partition int) {
		id := readers[reader]
		next[id] = append(next[id], record.TopicPartition{Topic: t.ID, Partition: record.Partition(partition)})
	}
	if len(readers) >= t.Partitions {
		last := slices.Repeat([]int{-1}, len(readers))
		for i := range had {
			if len(had[i]) > 0 {
				last[i] = had[i][0]
			}
		}
		for i, p := range spread(last, t.Partitions, t.hash) {
			give(i, p)
		}
		return
	}
	last := slices.Repeat([]int{-1}, t.Partitions)
	for i := range had {
		for _, p := range had[i] {
			last[p] = i
		}
	}
	for p, i := range spread(last, len(readers), t.hash) {
		give(i, p)
	}
}

// spread puts items, of which there are at least as many, into bins: as many in each,
// give or take one. last is where each item was, −1 for nowhere; it stays there if it
// can. turn says which bin comes first when all are equal.
func spread(last []int, bins int, turn uint64) []int {
	if bins == 0 {
		return nil
	}
	least, more := len(last)/bins, len(last)%bins
	load, out := make([]int, bins), slices.Repeat([]int{-1}, len(last))
	take := func(item, bin int) bool {
		if load[bin] >= least {
			if load[bin] > least || more == 0 {
				return false
			}
			more--
		}
		load[bin]++
		out[item] = bin
		return true
	}
	for item, bin := range last {
		if bin >= 0 && bin < bins {
			take(item, bin)
		}
	}
	bin := int(turn % uint64(bins))
	for item := range out {
		if out[item] >= 0 {
			continue
		}
		for !take(item, bin) {
			bin = (bin + 1) % bins
		}
		bin = (bin + 1) % bins
	}
	return out
}
