package master

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// cluster is a simulated one: nodes that are heard of or not, partitions that
// copy in their own time, and an active master that plans once a second.
type cluster struct {
	t     *testing.T
	rng   *rand.Rand
	log   *committed
	now   time.Time
	alive map[record.NodeID]Seen
	leads map[record.TopicPartition]record.NodeID
	inc   map[record.NodeID]int
	// levels are the feature levels that the nodes' programs know.
	levels map[record.NodeID]meta.Level
	// copied says how many more seconds a partition needs for its Target.
	copying map[record.TopicPartition]int
	// What was done.
	reassigned, copies, transfers, states, raised int
	trace                                         []string
	config                                        PlannerConfig
}

func newCluster(t *testing.T, seed uint64, zones ...string) *cluster {
	c := &cluster{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), log: &committed{machine: meta.New()}, now: time.UnixMilli(1_800_000_000_000),
		alive: map[record.NodeID]Seen{}, leads: map[record.TopicPartition]record.NodeID{}, inc: map[record.NodeID]int{}, levels: map[record.NodeID]meta.Level{},
		copying: map[record.TopicPartition]int{},
	}
	for i, z := range zones {
		c.add(record.NodeID(i+1), z)
	}
	return c
}

func (c *cluster) add(id record.NodeID, zone string) {
	c.register(id, zone, meta.RegisterNode)
	c.alive[id] = Seen{true, c.now}
}

func (c *cluster) register(id record.NodeID, zone string, command func(time.Time, meta.Node) []byte) {
	n := meta.Node{ID: id, Incarnation: fmt.Sprint(c.inc[id]), Roles: []string{"master", "broker"}, Zone: zone, Kafka: "127.0.0.1:9092", Level: c.levels[id]}
	c.log.apply(c.t, command(c.now, n))
}

func (c *cluster) topic(name string, partitions, factor int) {
	m := New(Config{Node: 1, Proposer: c.log, Image: c.log.image, Now: func() time.Time { return c.now }, Seed: c.rng.Uint64})
	if _, err := m.CreateTopic(c.t.Context(), TopicSpec{Name: name, Partitions: partitions, ReplicationFactor: factor}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) kill(id record.NodeID) {
	if c.alive[id].Alive {
		c.alive[id] = Seen{false, c.now}
		c.tracef("kill %d", id)
	}
}

// back lets a node return; with an empty disk once it is known to be down.
func (c *cluster) back(id record.NodeID, empty bool) {
	n := c.log.image().Nodes[id]
	if c.alive[id].Alive || n == nil || empty && n.State != meta.NodeDown {
		return
	}
	c.tracef("back %d, empty %v", id, empty)
	if empty {
		c.inc[id]++
		c.register(id, n.Zone, meta.ReplaceNode)
	} else {
		c.register(id, n.Zone, meta.RegisterNode)
	}
	c.alive[id] = Seen{true, c.now}
}

func (c *cluster) tracef(format string, args ...any) {
	c.trace = append(c.trace, c.now.Format("04:05 ")+fmt.Sprintf(format, args...))
}

func (c *cluster) view() View {
	return View{Now: c.now, Image: c.log.image(), Alive: c.alive, Leads: c.leads, Config: c.config,
		Begun: func(tp record.TopicPartition) bool { _, ok := c.copying[tp]; return ok }}
}

// second lets a second pass.
func (c *cluster) second() (quiet bool) {
	c.now = c.now.Add(time.Second)
	c.elect()
	plan := Plan(c.view())
	for _, a := range plan {
		switch a := a.(type) {
		case SetState:
			c.states++
			c.log.apply(c.t, meta.SetNodeState(c.now, a.Node, a.State))
		case RaiseLevel:
			c.raised++
			c.log.apply(c.t, meta.SetLevel(c.now, a.Level))
		case Reassign:
			c.carry(a)
		case TransferLeader:
			if c.leads[a.TopicPartition] != a.From || !c.alive[a.To].Alive {
				c.fail("transfer %+v", a)
			}
			c.transfers++
			c.leads[a.TopicPartition] = a.To
		}
	}
	c.copy()
	c.check()
	return len(plan) == 0 && len(c.copying) == 0
}

func (c *cluster) carry(a Reassign) {
	before, moved := c.log.image().Partition(a.TopicPartition), len(c.moving())
	c.reassigned++
	c.tracef("move %d of %v to %v (%s)", a.Partition, before.Wanted(), a.Nodes, a.Cause)
	r, err := c.log.Propose(c.t.Context(), meta.Reassign(c.now, []meta.Move{a.Move}, 0))
	if err == nil {
		err = r.(meta.Result).Items[0]
	}
	if err != nil {
		c.fail("%+v: %v", a, err)
	}
	after := c.log.image().Partition(a.TopicPartition)
	if slices.Equal(before.Wanted(), after.Wanted()) {
		c.fail("a move that changes nothing: %+v", a)
	}
	delete(c.copying, a.TopicPartition)
	if n := len(c.moving()); n > 20 && n > moved {
		c.fail("%d partitions move at once", n)
	}
}

// moving are the partitions under way that can get on.
func (c *cluster) moving() []record.TopicPartition {
	var out []record.TopicPartition
	c.each(func(tp record.TopicPartition, p *meta.Placement) {
		if (p.Cause == meta.CauseReplace || p.Cause == meta.CauseDrain) && c.quorum(p) && c.all(p.Target) {
			out = append(out, tp)
		}
	})
	return out
}

func (c *cluster) all(rs []meta.Replica) bool {
	return !slices.ContainsFunc(rs, func(r meta.Replica) bool { return !r.Lost && !c.alive[r.Node].Alive })
}

func (c *cluster) quorum(p *meta.Placement) bool {
	n := 0
	for _, r := range p.Replicas {
		if !r.Lost && c.alive[r.Node].Alive {
			n++
		}
	}
	return 2*n > len(p.Replicas)
}

func (c *cluster) each(visit func(record.TopicPartition, *meta.Placement)) {
	im := c.log.image()
	for _, name := range []string{"a", "b"} {
		if t := im.Topic(name); t != nil {
			for i := range t.Partitions {
				visit(record.TopicPartition{Topic: t.ID, Partition: record.Partition(i)}, &t.Partitions[i])
			}
		}
	}
}

// elect gives partitions a leader where there is a majority.
func (c *cluster) elect() {
	c.each(func(tp record.TopicPartition, p *meta.Placement) {
		led, ok := c.leads[tp]
		if _, hosted := p.Hosted(led); ok && hosted && c.alive[led].Alive && c.quorum(p) {
			return
		}
		delete(c.leads, tp)
		if !c.quorum(p) {
			return
		}
		var may []record.NodeID
		for _, r := range p.Replicas {
			if !r.Lost && c.alive[r.Node].Alive {
				may = append(may, r.Node)
			}
		}
		c.leads[tp] = may[c.rng.IntN(len(may))]
	})
}

// copy brings targets further, and reports those that are reached.
func (c *cluster) copy() {
	c.each(func(tp record.TopicPartition, p *meta.Placement) {
		switch left, begun := c.copying[tp]; {
		case p.Target == nil:
			delete(c.copying, tp)
		case !c.quorum(p) || !c.all(p.Target):
		case !begun:
			if c.rng.IntN(3) == 0 {
				c.copying[tp] = c.rng.IntN(20)
			}
		case left > 0:
			c.copying[tp]--
		default:
			var ids []record.ReplicaID
			for _, r := range p.Target {
				if !r.Lost {
					ids = append(ids, r.ID)
				}
				if !r.Lost && !slices.Contains(p.Replicas, r) {
					c.copies++
				}
			}
			c.log.apply(c.t, meta.PlacementDone(c.now, []meta.Members{{TopicPartition: tp, Replicas: ids}}))
			if got := c.log.image().Partition(tp); got.Target != nil {
				c.fail("partition %d is not done: %+v", tp.Partition, got)
			}
			delete(c.copying, tp)
		}
	})
}

// check looks for what must never be.
func (c *cluster) check() {
	c.each(func(tp record.TopicPartition, p *meta.Placement) {
		for _, list := range [][]meta.Replica{p.Replicas, p.Target} {
			var nodes []record.NodeID
			for _, r := range list {
				if slices.Contains(nodes, r.Node) {
					c.fail("partition %d has two replicas on node %d: %+v", tp.Partition, r.Node, p)
				}
				nodes = append(nodes, r.Node)
			}
		}
		if p.Target != nil && len(p.Target) != len(p.Replicas) {
			c.fail("partition %d loses a replica: %+v", tp.Partition, p)
		}
	})
}

func (c *cluster) fail(format string, args ...any) {
	c.t.Helper()
	for _, line := range c.trace[max(0, len(c.trace)-60):] {
		c.t.Log(line)
	}
	c.t.Fatalf(format, args...)
}

// settle waits until nothing has happened for longer than anything is waited for.
func (c *cluster) settle() {
	c.t.Helper()
	still := 0
	for range 20_000 {
		if !c.second() {
			still = 0
		}
		if still++; still > 700 {
			return
		}
	}
	c.fail("not quiet: %v; problems: %q", Plan(c.view()), Problems(c.view()))
}
