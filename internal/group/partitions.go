package group

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/tube-mq/tube/internal/group/grouppb"
	"github.com/tube-mq/tube/internal/record"
)

// Partitions is a set of partitions. Invariant: sorted by topic id and number,
// without doubles. It is never changed once it is in a member.
type Partitions []record.TopicPartition

func comparePartitions(a, b record.TopicPartition) int {
	return cmp.Or(bytes.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Partition, b.Partition))
}

// NewPartitions makes a set of tps, which it takes over.
func NewPartitions(tps []record.TopicPartition) Partitions {
	slices.SortFunc(tps, comparePartitions)
	return slices.Compact(tps)
}

// walk calls f for each partition that is in p or in q.
func (p Partitions) walk(q Partitions, f func(tp record.TopicPartition, inP, inQ bool)) {
	for len(p) > 0 || len(q) > 0 {
		order := 0
		switch {
		case len(p) == 0:
			order = 1
		case len(q) == 0:
			order = -1
		default:
			order = comparePartitions(p[0], q[0])
		}
		switch {
		case order < 0:
			f(p[0], true, false)
			p = p[1:]
		case order > 0:
			f(q[0], false, true)
			q = q[1:]
		default:
			f(p[0], true, true)
			p, q = p[1:], q[1:]
		}
	}
}

// minus is what is in p and not in q.
func (p Partitions) minus(q Partitions) (out Partitions) {
	p.walk(q, func(tp record.TopicPartition, inP, inQ bool) {
		if inP && !inQ {
			out = append(out, tp)
		}
	})
	return out
}

// and is what is in both.
func (p Partitions) and(q Partitions) (out Partitions) {
	p.walk(q, func(tp record.TopicPartition, inP, inQ bool) {
		if inP && inQ {
			out = append(out, tp)
		}
	})
	return out
}

// plus is what is in one of them.
func (p Partitions) plus(q Partitions) Partitions {
	if len(q) == 0 {
		return p
	}
	out := make(Partitions, 0, len(p)+len(q))
	p.walk(q, func(tp record.TopicPartition, _, _ bool) { out = append(out, tp) })
	return out
}

// within reports that all of p is in q.
func (p Partitions) within(q Partitions) bool { return len(p.minus(q)) == 0 }

func (p Partitions) equal(q Partitions) bool { return slices.Equal(p, q) }

// bytes is about what the set takes in memory.
func (p Partitions) bytes() int { return len(p) * 20 }

// byTopic calls f for each topic with its partition numbers.
func (p Partitions) byTopic(f func(topic record.TopicID, partitions []record.Partition)) {
	for len(p) > 0 {
		topic := p[0].Topic
		var numbers []record.Partition
		for len(p) > 0 && p[0].Topic == topic {
			numbers = append(numbers, p[0].Partition)
			p = p[1:]
		}
		f(topic, numbers)
	}
}

func (p Partitions) proto() (out []*grouppb.TopicPartitions) {
	p.byTopic(func(topic record.TopicID, partitions []record.Partition) {
		pb := &grouppb.TopicPartitions{Topic: topic[:], Partitions: make([]int32, len(partitions))}
		for i, n := range partitions {
			pb.Partitions[i] = int32(n)
		}
		out = append(out, pb)
	})
	return out
}

// partitionsFrom reads the stored form. What is no topic id was refused before.
func partitionsFrom(pb []*grouppb.TopicPartitions) Partitions {
	n := 0
	for _, t := range pb {
		n += len(t.GetPartitions())
	}
	if n == 0 {
		return nil
	}
	out := make([]record.TopicPartition, 0, n)
	for _, t := range pb {
		for _, p := range t.GetPartitions() {
			out = append(out, record.TopicPartition{Topic: record.TopicID(t.GetTopic()), Partition: record.Partition(p)})
		}
	}
	return NewPartitions(out)
}

// topicIDsIn reports that all topic ids are ids.
func topicIDsIn(pb []*grouppb.TopicPartitions) bool {
	return !slices.ContainsFunc(pb, func(t *grouppb.TopicPartitions) bool { return len(t.GetTopic()) != len(record.TopicID{}) })
}
