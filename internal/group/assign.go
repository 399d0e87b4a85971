package group

import (
	"cmp"
	"slices"

	"github.com/tube-mq/tube/internal/record"
)

// Server-side assignors, by the names that clients ask for.
const (
	Uniform = "uniform" // balanced over everything, moves little; the default
	Range   = "range"   // neighbours of a topic together, equal numbers of topics to one member
)

// Assignors lists them, the default first.
var Assignors = []string{Uniform, Range}

// reader is one member as an assignor sees it.
type reader struct {
	id, instance, zone string
	topics             []*Topic   // that it reads, by name
	has                Partitions // its target so far
}

// assignTargets gives each partition of a topic that somebody reads to one of its
// readers. The answer is in the order of the readers; it depends on nothing else.
func assignTargets(assignor string, readers []reader) []Partitions {
	a := newAssignment(readers)
	switch {
	case assignor == Range:
		a.byRange()
	case a.alike():
		a.uniform()
	default:
		a.mixed()
	}
	return a.targets()
}

// assignment is one under way. Partitions are numbered through: those of a topic
// stand together, topics in the order of their names.
type assignment struct {
	readers []reader
	topics  []*Topic
	first   []int   // by topic: the number of its partition 0
	readBy  [][]int // by topic: its readers
	owner   []int   // by partition; −1: nobody yet
	had     []int   // owner before
	load    []int   // by reader
	topicOf []int   // by partition
}

func newAssignment(readers []reader) *assignment {
	a := &assignment{readers: readers, load: make([]int, len(readers))}
	index := map[*Topic]int{}
	for i, r := range readers {
		for _, t := range r.topics {
			n, ok := index[t]
			if !ok {
				n = len(a.topics)
				index[t] = n
				a.topics, a.readBy = append(a.topics, t), append(a.readBy, nil)
			}
			a.readBy[n] = append(a.readBy[n], i)
		}
	}
	a.sortTopics()
	byID := make(map[record.TopicID]int, len(a.topics))
	for n, t := range a.topics {
		byID[t.ID] = n
		a.first = append(a.first, len(a.owner))
		for range t.Partitions {
			a.owner, a.topicOf = append(a.owner, -1), append(a.topicOf, n)
		}
	}
	for i, r := range readers {
		for _, tp := range r.has {
			n, ok := byID[tp.Topic]
			if !ok || int(tp.Partition) >= a.topics[n].Partitions {
				continue
			}
			if _, reads := slices.BinarySearch(a.readBy[n], i); reads {
				a.give(a.first[n]+int(tp.Partition), i)
			}
		}
	}
	a.had = slices.Clone(a.owner)
	return a
}

func (a *assignment) sortTopics() {
	order := make([]int, len(a.topics))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return cmp.Compare(a.topics[x].Name, a.topics[y].Name) })
	topics, readBy := make([]*Topic, len(order)), make([][]int, len(order))
	for to, from := range order {
		topics[to], readBy[to] = a.topics[from], a.readBy[from]
	}
	a.topics, a.readBy = topics, readBy
}

// give moves partition p to reader i; −1 takes it away.
func (a *assignment) give(p, i int) {
	if was := a.owner[p]; was >= 0 {
		a.load[was]--
	}
	if a.owner[p] = i; i >= 0 {
		a.load[i]++
	}
}

// alike reports that all read the same topics.
func (a *assignment) alike() bool {
	for _, by := range a.readBy {
		if len(by) != len(a.readers) {
			return false
		}
	}
	return true
}

// near reports that a replica of the partition is in the reader's zone.
func (a *assignment) near(p, i int) bool {
	zone := a.readers[i].zone
	return zone != "" && slices.Contains(a.zones(p), zone)
}

func (a *assignment) zones(p int) []string {
	t := a.topicOf[p]
	if n := p - a.first[t]; n < len(a.topics[t].Zones) {
		return a.topics[t].Zones[n]
	}
	return nil
}

func (a *assignment) targets() []Partitions {
	out := make([]Partitions, len(a.readers))
	for i := range out {
		out[i] = make(Partitions, 0, a.load[i])
	}
	for p, i := range a.owner {
		if i >= 0 {
			t := a.topicOf[p]
			out[i] = append(out[i], record.TopicPartition{Topic: a.topics[t].ID, Partition: record.Partition(p - a.first[t])})
		}
	}
	for i := range out {
		slices.SortFunc(out[i], comparePartitions)
	}
	return out
}
