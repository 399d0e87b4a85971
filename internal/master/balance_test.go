package master

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// zonesOfSize names nodes' zones: n zones of size nodes each.
func zonesOfSize(n, size int) []string {
	var out []string
	for range size {
		for z := range n {
			out = append(out, fmt.Sprint(z))
		}
	}
	return out
}

func span(counts map[record.NodeID]int, im *meta.Image) int {
	low, high := 1<<30, 0
	for id := range im.Nodes {
		low, high = min(low, counts[id]), max(high, counts[id])
	}
	return high - low
}

// In zones of equal size replicas are even to one, no matter how many topics
// have been made before, and no zone has two of a partition that could be in two.
// Preferred leaders are as even within a topic; those of older ones stay.
func TestPlacementsAreEven(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 3))
		zones, size := 1+rng.IntN(5), 1+rng.IntN(4)
		c := newLog(t, zonesOfSize(zones, size)...)
		var all [][]record.NodeID
		for topic := range 1 + rng.IntN(4) {
			factor := 1 + rng.IntN(min(5, zones*size))
			placement, err := Place(c.image(), 1+rng.IntN(40), factor, seed)
			if err != nil {
				t.Fatal(err)
			}
			again, _ := Place(c.image(), len(placement), factor, seed)
			if !slices.EqualFunc(placement, again, slices.Equal) {
				t.Fatalf("seed %d: the same seed places differently", seed)
			}
			all = append(all, placement...)
			c.apply(t, meta.CreateTopic(planTime, record.NewTopicID(), fmt.Sprint(topic), placement, nil))
			for _, nodes := range placement {
				checkSpread(t, c.image(), nodes, min(factor, zones))
			}
		}
		replicas, leaders := spread(all)
		if s, l := span(replicas, c.image()), span(leaders, c.image()); s > 1 || l > min(2, len(c.image().Topics)) {
			t.Errorf("seed %d: %d zones of %d nodes: replicas differ by %d, leaders by %d: %v %v", seed, zones, size, s, l, replicas, leaders)
		}
	}
}

var planTime = newCluster(nil, 0).now

func checkSpread(t *testing.T, im *meta.Image, nodes []record.NodeID, want int) {
	t.Helper()
	zones, ids := map[string]bool{}, map[record.NodeID]bool{}
	for _, id := range nodes {
		zones[im.Nodes[id].Zone], ids[id] = true, true
	}
	if len(ids) != len(nodes) {
		t.Errorf("two replicas on one node: %v", nodes)
	}
	if len(zones) != want {
		t.Errorf("%v are in %d zones, want %d", nodes, len(zones), want)
	}
}

// Zones of any size: as many zones as can be, and never two on a node.
func TestPlacementsInUnequalZones(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 4))
		zones := make([]string, 1+rng.IntN(9))
		kinds := map[string]int{}
		for i := range zones {
			zones[i] = fmt.Sprint(rng.IntN(4))
			kinds[zones[i]]++
		}
		im := newLog(t, zones...).image()
		factor := 1 + rng.IntN(len(zones))
		placement, err := Place(im, 20, factor, seed)
		if err != nil {
			t.Fatal(err)
		}
		for _, nodes := range placement {
			checkSpread(t, im, nodes, min(factor, len(kinds)))
			in := map[string]int{}
			for _, id := range nodes {
				in[im.Nodes[id].Zone]++
			}
			// As even as the zones are large.
			for z, n := range in {
				for other, size := range kinds {
					if in[other] < size && in[other] < n-1 {
						t.Fatalf("seed %d: %d replicas in zone %s, %d in zone %s, which has %d nodes", seed, n, z, in[other], other, size)
					}
				}
			}
		}
	}
}

// apply carries out moves at once.
func (c *committed) moved(t *testing.T, moves []meta.Move) {
	t.Helper()
	c.apply(t, meta.Reassign(planTime, moves, 0))
	var done []meta.Members
	for _, mv := range moves {
		if p := c.image().Partition(mv.TopicPartition); p.Target != nil {
			m := meta.Members{TopicPartition: mv.TopicPartition}
			for _, r := range p.Target {
				m.Replicas = append(m.Replicas, r.ID)
			}
			done = append(done, m)
		}
	}
	if done != nil {
		c.apply(t, meta.PlacementDone(planTime, done))
	}
}

func carried(im *meta.Image) (replicas, leaders map[record.NodeID]int) {
	var all [][]record.NodeID
	for _, t := range im.Topics {
		for i := range t.Partitions {
			all = append(all, nodesOf(t.Partitions[i].Wanted()))
		}
	}
	return spread(all)
}

// copies counts what moves have to copy.
func copies(im *meta.Image, moves []meta.Move) int {
	n := 0
	for _, mv := range moves {
		for _, id := range mv.Nodes {
			if _, ok := im.Partition(mv.TopicPartition).Hosted(id); !ok {
				n++
			}
		}
	}
	return n
}

func TestARebalanceFillsANewNodeWithWhatItIsDue(t *testing.T) {
	c := newLog(t, "", "", "")
	if _, err := c.master(1).CreateTopic(t.Context(), TopicSpec{Name: "t", Partitions: 40, ReplicationFactor: 3}); err != nil {
		t.Fatal(err)
	}
	if moves := Rebalance(c.image()); len(moves) != 0 {
		t.Fatalf("moves where all is even: %v", moves)
	}
	c.apply(t, meta.RegisterNode(planTime, meta.Node{ID: 4, Incarnation: "i", Roles: []string{"broker"}, Kafka: "127.0.0.1:9092"}))
	moves := Rebalance(c.image())
	if n := copies(c.image(), moves); n != 30 {
		t.Errorf("%d replicas are copied; the new node is due 30", n)
	}
	c.moved(t, moves)
	replicas, leaders := carried(c.image())
	if span(replicas, c.image()) != 0 || span(leaders, c.image()) != 0 {
		t.Fatalf("replicas %v, leaders %v", replicas, leaders)
	}
	if moves := Rebalance(c.image()); len(moves) != 0 {
		t.Fatalf("a second time moves %v", moves)
	}
}

func TestARebalanceLeavesAloneWhatMoves(t *testing.T) {
	c, m := withTopic(t, 4, []record.NodeID{1, 2}, []record.NodeID{1, 2}, []record.NodeID{1, 2})
	var specs []ReassignSpec
	for i := range 3 {
		specs = append(specs, ReassignSpec{"t", record.Partition(i), []record.NodeID{3, 2}})
	}
	m.Reassign(t.Context(), specs, 0, false)
	if moves := Rebalance(c.image()); len(moves) != 0 {
		t.Fatalf("%v", moves)
	}
}

// Whatever a cluster looks like, a rebalance evens it out with no more copies
// than the nodes have too many, keeps to zones, and has nothing left to do.
func TestARebalanceEvensOutAnything(t *testing.T) {
	for seed := range uint64(80) {
		rng := rand.New(rand.NewPCG(seed, 5))
		zones := 1 + rng.IntN(3)
		c := newLog(t, zonesOfSize(zones, 1+rng.IntN(4))...)
		nodes := slices.Sorted(maps.Keys(c.image().Nodes))
		factor := 1 + rng.IntN(min(3, len(nodes)))
		placement := make([][]record.NodeID, 1+rng.IntN(60))
		for i := range placement {
			for _, at := range rng.Perm(len(nodes))[:factor] {
				placement[i] = append(placement[i], nodes[at])
			}
		}
		c.apply(t, meta.CreateTopic(planTime, record.NewTopicID(), "t", placement, nil))
		before, _ := carried(c.image())
		moves := Rebalance(c.image())
		if zones == 1 {
			over := 0
			mean := (len(placement)*factor + len(nodes) - 1) / len(nodes)
			for _, n := range before {
				over += max(0, n-mean)
			}
			under := 0
			for _, id := range nodes {
				under += max(0, len(placement)*factor/len(nodes)-before[id])
			}
			if n := copies(c.image(), moves); n > max(over, under) {
				t.Errorf("seed %d: %d copies where %d are enough", seed, n, max(over, under))
			}
		}
		c.moved(t, moves)
		replicas, leaders := carried(c.image())
		if s, l := span(replicas, c.image()), span(leaders, c.image()); s > 1 || l > 1 {
			t.Errorf("seed %d: %d nodes in %d zones, factor %d, %d partitions: replicas differ by %d, leaders by %d: %v %v", seed, len(nodes), zones, factor, len(placement), s, l, replicas, leaders)
		}
		for _, p := range c.image().Topic("t").Partitions {
			checkSpread(t, c.image(), nodesOf(p.Replicas), min(factor, zones))
		}
		if again := Rebalance(c.image()); len(again) != 0 {
			t.Errorf("seed %d: a second rebalance moves %v", seed, again)
		}
	}
}

func BenchmarkPlan(b *testing.B) {
	c := newCluster(nil, 1)
	for id := record.NodeID(1); id <= 20; id++ {
		n := meta.Node{ID: id, Incarnation: "i", Roles: []string{"broker"}, Zone: fmt.Sprint(id % 3), Kafka: "x:1"}
		c.log.machine.Apply(record.Index(id), meta.RegisterNode(c.now, n))
		c.alive[id] = Seen{true, c.now}
	}
	placement, err := Place(c.log.image(), 10_000, 3, 1)
	if err != nil {
		b.Fatal(err)
	}
	c.log.machine.Apply(100, meta.CreateTopic(c.now, record.NewTopicID(), "a", placement, nil))
	c.elect()
	c.alive[2] = Seen{false, c.now}
	c.log.machine.Apply(101, meta.SetNodeState(c.now, 2, meta.NodeDown))
	c.now = c.now.Add(20 * 60 * 1e9)
	b.Run("plan", func(b *testing.B) {
		for b.Loop() {
			Plan(c.view())
		}
	})
	b.Run("problems", func(b *testing.B) {
		for b.Loop() {
			Problems(c.view())
		}
	})
	b.Run("noted", func(b *testing.B) { // a move of one partition, by the machine
		id := c.log.image().Topic("a").ID
		for i := range b.N {
			nodes := []record.NodeID{record.NodeID(1 + i%5), record.NodeID(6 + i%7), 20}
			c.log.machine.Apply(record.Index(200+i), meta.Reassign(c.now, []meta.Move{{TopicPartition: record.TopicPartition{Topic: id}, Nodes: nodes}}, 0))
		}
	})
	b.Run("rebalance", func(b *testing.B) {
		for b.Loop() {
			Rebalance(c.log.image())
		}
	})
}
