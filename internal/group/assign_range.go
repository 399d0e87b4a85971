package group

import (
	"cmp"
	"slices"
)

// byRange gives each reader of a topic a range of its partitions. Topics with the
// same readers and as many partitions are cut alike, so that partitions of one
// number meet at one reader. Readers stand in the order in which their partitions
// stood before; new ones come last.
func (a *assignment) byRange() {
	type shape struct {
		readers    string
		partitions int
	}
	orders := map[shape][]int{}
	for t, topic := range a.topics {
		s := shape{readersKey(a.readBy[t]), topic.Partitions}
		if orders[s] == nil {
			orders[s] = a.rangeOrder(t)
		}
		order := orders[s]
		at := a.first[t]
		for k, i := range order {
			n := topic.Partitions / len(order)
			if k < topic.Partitions%len(order) {
				n++
			}
			for range n {
				a.give(at, i)
				at++
			}
		}
	}
}

// readersKey is a map's key for a set of readers.
func readersKey(readers []int) string {
	b := make([]byte, 0, 4*len(readers))
	for _, i := range readers {
		b = append(b, byte(i>>24), byte(i>>16), byte(i>>8), byte(i))
	}
	return string(b)
}

// rangeOrder is the order of topic t's readers. Those that have more of it stand
// where they may keep the odd partition.
func (a *assignment) rangeOrder(t int) []int {
	lowest := map[int]int{}
	for p := a.first[t]; p < a.first[t]+a.topics[t].Partitions; p++ {
		if i := a.had[p]; i >= 0 {
			if _, ok := lowest[i]; !ok {
				lowest[i] = p
			}
		}
	}
	order := slices.Clone(a.readBy[t])
	place := func(i int) int {
		if p, ok := lowest[i]; ok {
			return p
		}
		return len(a.owner)
	}
	slices.SortStableFunc(order, func(x, y int) int {
		rx, ry := a.readers[x], a.readers[y]
		return cmp.Or(cmp.Compare(place(x), place(y)), cmp.Compare(rx.instance, ry.instance), cmp.Compare(rx.id, ry.id))
	})
	return order
}
