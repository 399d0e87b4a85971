package group

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/tube-mq/tube/internal/record"
)

// readersOf are n readers of all the topics.
func readersOf(n int, topics ...*Topic) []reader {
	var out []reader
	for i := range n {
		out = append(out, reader{id: fmt.Sprintf("m%05d", i), topics: topics})
	}
	return out
}

// topicsOf are n topics of so many partitions.
func topicsOf(n, partitions int) (out []*Topic) {
	for i := range n {
		name := fmt.Sprintf("t%03d", i)
		out = append(out, &Topic{ID: topicID(name), Name: name, Partitions: partitions})
	}
	return out
}

// reassign deals out anew and takes over what comes of it. It returns how many
// partitions went from one reader to another.
func reassign(t testing.TB, assignor string, readers []reader) (moved int) {
	t.Helper()
	before := map[record.TopicPartition]string{}
	for _, r := range readers {
		for _, tp := range r.has {
			before[tp] = r.id
		}
	}
	seen := map[record.TopicPartition]bool{}
	for i, target := range assignTargets(assignor, readers) {
		for _, tp := range target {
			if seen[tp] {
				t.Fatalf("%v was given twice", tp)
			}
			seen[tp] = true
			if !slices.ContainsFunc(readers[i].topics, func(x *Topic) bool { return x.ID == tp.Topic && int(tp.Partition) < x.Partitions }) {
				t.Fatalf("%s got %v, which it does not read", readers[i].id, tp)
			}
			if was := before[tp]; was != "" && was != readers[i].id {
				moved++
			}
		}
		readers[i].has = target
	}
	all := map[record.TopicPartition]bool{}
	for _, r := range readers {
		for _, x := range r.topics {
			for p := range x.Partitions {
				all[record.TopicPartition{Topic: x.ID, Partition: record.Partition(p)}] = true
			}
		}
	}
	if len(seen) != len(all) {
		t.Fatalf("%d of %d partitions were given", len(seen), len(all))
	}
	return moved
}

func loads(readers []reader) (least, most int) {
	least, most = 1<<30, 0
	for _, r := range readers {
		least, most = min(least, len(r.has)), max(most, len(r.has))
	}
	return least, most
}

// leastMoves is how many partitions must leave readers that stay, whatever the
// assignor does.
func leastMoves(readers []reader, partitions int) (moves int) {
	least, more := partitions/len(readers), partitions%len(readers)
	for _, r := range readers {
		over := len(r.has) - least
		if over > 0 && more > 0 {
			over--
			more--
		}
		moves += max(0, over)
	}
	return moves
}

func TestUniformIsBalancedAndMovesNoMoreThanItMust(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for range 300 {
		topics := topicsOf(1+rng.Intn(4), 1+rng.Intn(30))
		readers := readersOf(1+rng.Intn(12), topics...)
		partitions := len(topics) * topics[0].Partitions
		next := 100
		for range 8 {
			want := leastMoves(readers, partitions)
			if moved := reassign(t, Uniform, readers); moved != want {
				t.Fatalf("%d partitions moved, %d had to", moved, want)
			}
			if least, most := loads(readers); most-least > 1 {
				t.Fatalf("readers have from %d to %d partitions", least, most)
			}
			switch {
			case rng.Intn(2) == 0 && len(readers) > 1:
				at := rng.Intn(len(readers))
				readers = slices.Delete(readers, at, at+1)
			case rng.Intn(4) == 0: // a topic grows
				grown := *topics[0]
				grown.Partitions += 1 + rng.Intn(5)
				partitions += grown.Partitions - topics[0].Partitions
				topics = append([]*Topic{&grown}, topics[1:]...)
				for i := range readers {
					readers[i].topics = topics
				}
			default:
				for range 1 + rng.Intn(3) {
					readers = append(readers, reader{id: fmt.Sprintf("m%05d", next), topics: topics})
					next++
				}
			}
		}
	}
}

// improvable finds a chain that uniform should have used: it is written without
// an eye to speed.
func improvable(readers []reader) bool {
	for i, from := range readers {
		reached, queue := map[int]bool{i: true}, []int{i}
		for ; len(queue) > 0; queue = queue[1:] {
			for _, tp := range readers[queue[0]].has {
				for v, r := range readers {
					if !reached[v] && slices.ContainsFunc(r.topics, func(x *Topic) bool { return x.ID == tp.Topic }) {
						if len(r.has) <= len(from.has)-2 {
							return true
						}
						reached[v] = true
						queue = append(queue, v)
					}
				}
			}
		}
	}
	return false
}

func TestUniformIsAsBalancedAsSubscriptionsAllow(t *testing.T) {
	rng := rand.New(rand.NewSource(2))
	subscribe := func(topics []*Topic) (out []*Topic) {
		for len(out) == 0 {
			for _, x := range topics {
				if rng.Intn(3) == 0 {
					out = append(out, x)
				}
			}
		}
		return out
	}
	for range 200 {
		topics := topicsOf(2+rng.Intn(5), 1+rng.Intn(9))
		var readers []reader
		for i := range 2 + rng.Intn(8) {
			readers = append(readers, reader{id: fmt.Sprintf("m%05d", i), topics: subscribe(topics)})
		}
		reassign(t, Uniform, readers)
		for range 5 {
			if improvable(readers) {
				t.Fatalf("a partition could go to one who has two less: %+v", readers)
			}
			if moved := reassign(t, Uniform, readers); moved != 0 {
				t.Fatalf("%d partitions moved though nothing changed", moved)
			}
			readers[rng.Intn(len(readers))].topics = subscribe(topics)
			reassign(t, Uniform, readers)
		}
	}
}

func TestUniformStaysInTheZoneWhereTheBalanceAllows(t *testing.T) {
	topic := &Topic{ID: topicID("t"), Name: "t", Partitions: 12}
	for p := range topic.Partitions {
		topic.Zones = append(topic.Zones, []string{string(rune('a' + p%3))})
	}
	readers := readersOf(3, topic)
	for i := range readers {
		readers[i].zone = string(rune('a' + i))
	}
	check := func(want int) {
		t.Helper()
		near := 0
		for _, r := range readers {
			for _, tp := range r.has {
				if topic.Zones[tp.Partition][0] == r.zone {
					near++
				}
			}
		}
		if least, most := loads(readers); near != want || most-least > 1 {
			t.Errorf("%d partitions are near their readers, want %d; from %d to %d each", near, want, least, most)
		}
	}
	reassign(t, Uniform, readers)
	check(12)
	readers = append(readers, reader{id: "m9", zone: "a", topics: []*Topic{topic}})
	if moved := reassign(t, Uniform, readers); moved != 3 {
		t.Errorf("%d moved, want 3", moved)
	}
	check(10) // one each: of those that m9 gets only the one from zone a is near
	readers = readers[1:]
	reassign(t, Uniform, readers)
	check(8) // of what m0 had, all in zone a, m9 has room for one
}

func TestRangeGivesNeighboursAndMeetsByNumber(t *testing.T) {
	topics := topicsOf(2, 7)
	readers := readersOf(3, topics...)
	reassign(t, Range, readers)
	check := func() {
		t.Helper()
		for _, r := range readers {
			for i, tp := range r.has {
				if i > 0 && r.has[i-1].Topic == tp.Topic && r.has[i-1].Partition != tp.Partition-1 {
					t.Errorf("%s has a hole: %v", r.id, r.has)
				}
				other := tp
				other.Topic = topics[0].ID
				if tp.Topic == topics[0].ID {
					other.Topic = topics[1].ID
				}
				if !slices.Contains(r.has, other) {
					t.Errorf("%s has %v without its neighbour of the same number", r.id, tp)
				}
			}
		}
	}
	check()
	if moved := reassign(t, Range, readers); moved != 0 {
		t.Errorf("%d moved though nothing changed", moved)
	}
	// A new reader that sorts first takes the last place.
	readers = append([]reader{{id: "a", topics: topics}}, readers...)
	reassign(t, Range, readers)
	check()
	if got := readers[0].has; len(got) != 2 || got[0].Partition != 6 {
		t.Errorf("the new reader has %v", got)
	}
}

// The figure that matters: 500 members, 5,000 partitions, one more joins.
func TestOneMoreOf500MovesItsShareOnly(t *testing.T) {
	readers := readersOf(500, topicsOf(50, 100)...)
	reassign(t, Uniform, readers)
	readers = append(readers, reader{id: "new", topics: readers[0].topics})
	if moved := reassign(t, Uniform, readers); moved != 9 {
		t.Errorf("%d partitions moved, want 9: 5,000 / 501", moved)
	}
	readers = slices.Delete(readers, 7, 8)
	if moved := reassign(t, Uniform, readers); moved != 0 {
		t.Errorf("%d partitions moved between those who stay, want none", moved)
	}
}

func BenchmarkAssign(b *testing.B) {
	for _, assignor := range []string{Uniform, Range, "mixed"} {
		b.Run(assignor, func(b *testing.B) {
			topics := topicsOf(50, 100)
			readers := readersOf(500, topics...)
			if assignor == "mixed" {
				for i := range readers {
					readers[i].topics = append(slices.Clone(topics[:i%50]), topics[i%50+1:]...)
				}
			}
			for i, target := range assignTargets(assignor, readers) {
				readers[i].has = target
			}
			joined := append(readers, reader{id: "new", topics: topics})
			b.ResetTimer()
			for b.Loop() {
				assignTargets(assignor, joined)
			}
		})
	}
}
