package group

import (
	"container/heap"
	"slices"
)

// mixed is for readers that read different topics. It is as balanced as can be:
// no chain of moves, each to another reader of the same topic, would take a
// partition from one reader and end at one that has two less. What is balanced
// already stays where it is.
func (a *assignment) mixed() {
	for p, owner := range a.owner {
		if owner < 0 {
			a.give(p, a.leastLoaded(p))
		}
	}
	b := &balancing{a: a, held: a.heldByTopic()}
	for i := range a.readers {
		b.heap = append(b.heap, i)
	}
	heap.Init(b)
	for len(b.heap) > 0 {
		i := b.heap[0]
		if end := b.relieve(i); end >= 0 {
			heap.Init(b)
			continue
		}
		// Nothing can be taken off it, now or later: whoever it could give to is
		// as loaded, and only gets more.
		heap.Pop(b)
	}
}

// leastLoaded finds a reader of the partition's topic, a near one if there are
// several.
func (a *assignment) leastLoaded(p int) int {
	best := -1
	for _, i := range a.readBy[a.topicOf[p]] {
		if best < 0 || a.load[i] < a.load[best] || a.load[i] == a.load[best] && a.near(p, i) && !a.near(p, best) {
			best = i
		}
	}
	return best
}

// heldByTopic lists, by reader and topic, the partitions that it has; for those
// that it has longest, last.
func (a *assignment) heldByTopic() []map[int][]int {
	held := make([]map[int][]int, len(a.readers))
	for i := range held {
		held[i] = map[int][]int{}
	}
	for p, i := range a.owner {
		if i >= 0 {
			held[i][a.topicOf[p]] = append(held[i][a.topicOf[p]], p)
		}
	}
	return held
}

// balancing is the heap of readers that may have too much, most loaded first.
type balancing struct {
	a    *assignment
	heap []int
	held []map[int][]int
}

func (b *balancing) Len() int           { return len(b.heap) }
func (b *balancing) Less(i, j int) bool { return b.a.load[b.heap[i]] > b.a.load[b.heap[j]] }
func (b *balancing) Swap(i, j int)      { b.heap[i], b.heap[j] = b.heap[j], b.heap[i] }

// Push and Pop are for container/heap.
func (b *balancing) Push(x any) { b.heap = append(b.heap, x.(int)) }
func (b *balancing) Pop() any {
	x := b.heap[len(b.heap)-1]
	b.heap = b.heap[:len(b.heap)-1]
	return x
}

// relieve looks for the shortest chain from reader i to one that has at least
// two less, and moves one partition along each of its links. −1: there is none.
func (b *balancing) relieve(i int) int {
	a := b.a
	from, via := map[int]int{i: -1}, map[int]int{} // how each reader was reached: from whom, by which topic
	seen := map[int]bool{}
	for queue := []int{i}; len(queue) > 0; queue = queue[1:] {
		u := queue[0]
		for _, t := range b.topicsOf(u) {
			if seen[t] {
				continue
			}
			seen[t] = true
			best := -1
			for _, v := range a.readBy[t] {
				if _, reached := from[v]; reached {
					continue
				}
				from[v], via[v] = u, t
				queue = append(queue, v)
				if a.load[v] <= a.load[i]-2 && (best < 0 || a.load[v] < a.load[best]) {
					best = v
				}
			}
			if best >= 0 {
				b.shift(best, from, via)
				return best
			}
		}
	}
	return -1
}

// topicsOf lists the topics that the reader has partitions of, in order.
func (b *balancing) topicsOf(i int) []int {
	var out []int
	for t, ps := range b.held[i] {
		if len(ps) > 0 {
			out = append(out, t)
		}
	}
	slices.Sort(out)
	return out
}

// shift moves a partition along each link of the chain that ends at v.
func (b *balancing) shift(v int, from, via map[int]int) {
	for from[v] >= 0 {
		u, t := from[v], via[v]
		at := b.cheapest(u, v, t)
		p := b.held[u][t][at]
		b.held[u][t] = slices.Delete(b.held[u][t], at, at+1)
		b.held[v][t] = append(b.held[v][t], p)
		b.a.give(p, v)
		v = u
	}
}

// cheapest chooses which partition of topic t goes from u to v: one that v had
// before, then one that u did not have, then one that is near v, or far from u.
func (b *balancing) cheapest(u, v, t int) int {
	best, bestCost := 0, 1<<30
	for at, p := range b.held[u][t] {
		cost := 8
		switch b.a.had[p] {
		case v:
			cost = 0
		case u:
			cost = 16
		}
		if b.a.near(p, v) {
			cost -= 2
		}
		if b.a.near(p, u) {
			cost++
		}
		if cost < bestCost {
			best, bestCost = at, cost
		}
	}
	return best
}
