package group

import (
	"cmp"
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
	b := &balancing{a: a, held: a.holdings(), done: make([]bool, len(a.readers))}
	b.from, b.via, b.reached = make([]int, len(a.readers)), make([]int, len(a.readers)), make([]int, len(a.readers))
	b.seen = make([]int, len(a.topics))
	for i := range a.readers {
		b.heap = append(b.heap, i)
	}
	heap.Init(b)
	for len(b.heap) > 0 {
		i := b.heap[0]
		if b.done[i] {
			heap.Pop(b)
		} else if end := b.relieve(i); end >= 0 {
			heap.Fix(b, 0)
			heap.Fix(b, slices.Index(b.heap, end))
		}
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

// holding is what one reader has, by topic. Invariant: sorted by topic.
type holding []held

type held struct {
	topic      int
	partitions []int
}

// in finds what the reader has of a topic.
func (h *holding) in(topic int) *held {
	at, ok := slices.BinarySearchFunc(*h, topic, func(x held, t int) int { return cmp.Compare(x.topic, t) })
	if !ok {
		*h = slices.Insert(*h, at, held{topic: topic})
	}
	return &(*h)[at]
}

func (a *assignment) holdings() []holding {
	out := make([]holding, len(a.readers))
	for p, i := range a.owner {
		if i >= 0 {
			x := out[i].in(a.topicOf[p])
			x.partitions = append(x.partitions, p)
		}
	}
	return out
}

// balancing is the heap of readers that may have too much, most loaded first.
type balancing struct {
	a    *assignment
	heap []int
	held []holding // by reader
	// done: nothing can be taken off the reader, now or later.
	done []bool
	// The search under way: by reader, its number if it was reached, from whom and
	// by which topic; by topic, its number if it was looked at.
	search    int
	reached   []int
	from, via []int
	seen      []int
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

// relieve looks for the shortest chain from reader i, the most loaded, to one
// that has at least two less, and moves one partition along each of its links.
// −1: there is none. Then there is none from those that were reached either: all
// that they reach is among them, and has at most one less than i.
func (b *balancing) relieve(i int) int {
	a := b.a
	b.search++
	b.reached[i], b.from[i] = b.search, -1
	queue := []int{i}
	for at := 0; at < len(queue); at++ {
		for _, x := range b.held[queue[at]] {
			t := x.topic
			if len(x.partitions) == 0 || b.seen[t] == b.search {
				continue
			}
			b.seen[t] = b.search
			best := -1
			for _, v := range a.readBy[t] {
				if b.reached[v] == b.search {
					continue
				}
				b.reached[v], b.from[v], b.via[v] = b.search, queue[at], t
				queue = append(queue, v)
				if a.load[v] <= a.load[i]-2 && (best < 0 || a.load[v] < a.load[best]) {
					best = v
				}
			}
			if best >= 0 {
				b.shift(best)
				return best
			}
		}
	}
	for _, v := range queue {
		b.done[v] = true
	}
	return -1
}

// shift moves a partition along each link of the chain that ends at v.
func (b *balancing) shift(v int) {
	for b.from[v] >= 0 {
		u, t := b.from[v], b.via[v]
		gives, gets := b.held[u].in(t), b.held[v].in(t)
		at := b.cheapest(gives.partitions, u, v)
		p := gives.partitions[at]
		gives.partitions = slices.Delete(gives.partitions, at, at+1)
		gets.partitions = append(gets.partitions, p)
		b.a.give(p, v)
		v = u
	}
}

// cheapest chooses which of u's partitions goes to v: one that v had
// before, then one that u did not have, then one that is near v, or far from u.
func (b *balancing) cheapest(partitions []int, u, v int) int {
	best, bestCost := 0, 1<<30
	for at, p := range partitions {
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
