package meta

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// Whatever is asked for, in whatever order: what a replica id names is never
// another, no node has two live replicas of a partition, and a placement is
// whole. Each command is also applied by a machine restored from a snapshot.
func TestRandomCommandsKeepPlacementsWhole(t *testing.T) {
	for seed := range uint64(8) {
		w := &random{rig: newRig(t), rng: rand.New(rand.NewPCG(seed, 0)), seed: seed, born: map[record.ReplicaID]owner{}}
		w.ok(RegisterNode(now, Node{ID: 4, Incarnation: "i4", Kafka: "x:1", Roles: []string{RoleBroker}}))
		for i := range byte(2) {
			w.ok(CreateTopic(now, record.TopicID{i + 1}, fmt.Sprint(i), [][]record.NodeID{{1, 2, 3}, {3, 1, 4}}, nil))
		}
		for range 250 {
			w.apply(w.command())
			w.check()
		}
	}
}

type random struct {
	*rig
	rng  *rand.Rand
	seed uint64
	n    int
	// born says whose each replica id is; gone are ids that no placement names any
	// more, by which they may never be named again.
	born map[record.ReplicaID]owner
	gone map[record.ReplicaID]bool
}

type owner struct {
	group record.Group
	node  record.NodeID
}

func (w *random) node() record.NodeID { return record.NodeID(1 + w.rng.IntN(5)) }

func (w *random) nodes() []record.NodeID {
	var out []record.NodeID
	for _, n := range w.rng.Perm(5)[:1+w.rng.IntN(3)] {
		out = append(out, record.NodeID(n+1))
	}
	return out
}

func (w *random) partition() record.TopicPartition {
	return record.TopicPartition{Topic: record.TopicID{byte(1 + w.rng.IntN(2))}, Partition: record.Partition(w.rng.IntN(2))}
}

func (w *random) command() []byte {
	w.n++
	at := now.Add(time.Duration(w.n) * time.Second)
	tp, id := w.partition(), w.node()
	switch w.rng.IntN(9) {
	case 0:
		return SetNodeState(at, id, []NodeState{NodeUp, NodeDown, NodeDown, NodeDraining}[w.rng.IntN(4)])
	case 1:
		return ReplaceNode(at, Node{ID: id, Incarnation: fmt.Sprint(w.n), Kafka: "x:1", Roles: []string{RoleMaster, RoleBroker}})
	case 2:
		return RemoveNode(at, id, w.rng.IntN(3) == 0)
	case 3:
		return CancelReassign(at, []record.TopicPartition{tp, w.partition()})
	case 4, 5:
		m := Members{TopicPartition: tp}
		for _, r := range present(w.m.Image().Partition(tp).Target) {
			m.Replicas = append(m.Replicas, r.ID)
		}
		return PlacementDone(at, []Members{m})
	case 6:
		if w.rng.IntN(3) > 0 {
			break
		}
		return UnsafeRecover(at, tp, w.node()-2, w.nodes())
	}
	return Reassign(at, []Move{{tp, w.nodes(), CauseRequest}, {w.partition(), w.nodes(), CauseDrain}}, int64(w.rng.IntN(2)))
}

func (w *random) check() {
	w.t.Helper()
	named := map[record.ReplicaID]bool{}
	for _, topic := range w.m.Image().Topics {
		for i := range topic.Partitions {
			w.whole(&topic.Partitions[i], named)
		}
	}
	for id := range w.born {
		if !named[id] {
			w.gone[id] = true
		}
	}
}

func (w *random) whole(p *Placement, named map[record.ReplicaID]bool) {
	w.t.Helper()
	if w.gone == nil {
		w.gone = map[record.ReplicaID]bool{}
	}
	if len(p.Replicas) == 0 || p.Target == nil && (p.Leaving != nil || p.Cause != "" || p.Throttle != 0) || p.Target != nil && len(p.Target) == 0 {
		w.t.Fatalf("seed %d, %d: %+v", w.seed, w.n, p)
	}
	live := map[record.NodeID]record.ReplicaID{}
	for _, list := range [][]Replica{p.Replicas, p.Target, p.Leaving} {
		var nodes []record.NodeID
		for _, r := range list {
			if slices.Contains(nodes, r.Node) {
				w.t.Fatalf("seed %d, %d: two on node %d: %+v", w.seed, w.n, r.Node, p)
			}
			nodes = append(nodes, r.Node)
			if id, ok := live[r.Node]; ok && !r.Lost && id != r.ID {
				w.t.Fatalf("seed %d, %d: node %d has two live replicas: %+v", w.seed, w.n, r.Node, p)
			}
			if !r.Lost {
				live[r.Node] = r.ID
			}
			if o, ok := w.born[r.ID]; ok && o != (owner{p.Group, r.Node}) || w.gone[r.ID] {
				w.t.Fatalf("seed %d, %d: replica %d was used before (%+v): %+v", w.seed, w.n, r.ID, o, p)
			}
			w.born[r.ID], named[r.ID] = owner{p.Group, r.Node}, true
		}
	}
}
