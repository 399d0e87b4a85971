package meta

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

var now = time.UnixMilli(1_700_000_000_000)

// rig applies commands to two machines, one of which is saved and restored
// before every command: they must never differ.
type rig struct {
	t     *testing.T
	m     *Machine
	index record.Index
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, m: New()}
	r.ok(Bootstrap(now, "c1", Founder{Node: 1, Replica: 1}))
	for id := record.NodeID(1); id <= 3; id++ {
		r.ok(RegisterNode(now, Node{ID: id, Incarnation: fmt.Sprint("i", id), Kafka: "127.0.0.1:9092", Roles: []string{RoleMaster, RoleBroker}}))
	}
	return r
}

func (r *rig) apply(command []byte) Result {
	r.t.Helper()
	other := New()
	if err := other.Restore(r.m.Snapshot()); err != nil {
		r.t.Fatal(err)
	}
	r.index++
	before := r.m.Image()
	held := r.m.Snapshot()
	got, again := r.m.Apply(r.index, command), other.Apply(r.index, command)
	if fmt.Sprint(got.Err) != fmt.Sprint(again.Err) || r.m.Digest() != other.Digest() {
		r.t.Fatalf("a restored machine differs: %v, %v", got.Err, again.Err)
	}
	if got.Err != nil {
		m := New()
		if err := m.Restore(held); err != nil {
			r.t.Fatal(err)
		}
		m.image.Index = r.index
		if !bytes.Equal(m.Snapshot(), r.m.Snapshot()) {
			r.t.Fatalf("a refused command (%v) changed something", got.Err)
		}
	}
	if before.Index == r.m.Image().Index {
		r.t.Fatal("the image did not advance")
	}
	return got
}

func (r *rig) ok(command []byte) Result {
	r.t.Helper()
	res := r.apply(command)
	if res.Err != nil {
		r.t.Fatal(res.Err)
	}
	return res
}

func (r *rig) refused(command []byte, want error) {
	r.t.Helper()
	if res := r.apply(command); !errors.Is(res.Err, want) {
		r.t.Fatalf("answered %v, want %v", res.Err, want)
	}
}

func one(nodes ...record.NodeID) [][]record.NodeID { return [][]record.NodeID{nodes} }

func TestTopics(t *testing.T) {
	r := newRig(t)
	a, b := record.TopicID{1}, record.TopicID{2}
	held := r.m.Image()
	made := r.ok(CreateTopic(now, a, "a.b", [][]record.NodeID{{1, 2}, {2, 3}}, map[string]string{"retention.ms": "1000"})).Topic
	if made.Config.Retention != time.Second || made.Config.Durability != QuorumFsync || len(made.Partitions) != 2 {
		t.Fatalf("made %+v", made)
	}
	if len(held.Topics) != 0 {
		t.Fatal("an image that was held changed")
	}
	r.refused(CreateTopic(now, b, "a.b", one(1), nil), ErrTopicExists)
	r.refused(CreateTopic(now, a, "c", one(1), nil), ErrTopicExists)
	r.refused(CreateTopic(now, b, "a_b", one(1), nil), ErrInvalidTopicName)
	r.refused(CreateTopic(now, b, "..", one(1), nil), ErrInvalidTopicName)
	r.refused(CreateTopic(now, b, "../x", one(1), nil), ErrInvalidTopicName)
	r.refused(CreateTopic(now, b, strings.Repeat("x", 250), one(1), nil), ErrInvalidTopicName)
	r.refused(CreateTopic(now, b, "c", nil, nil), ErrInvalidPartitions)
	r.refused(CreateTopic(now, b, "c", one(9), nil), ErrInvalidPlacement)
	r.refused(CreateTopic(now, b, "c", one(1, 1), nil), ErrInvalidPlacement)
	r.refused(CreateTopic(now, b, "c", [][]record.NodeID{{1}, {1, 2}}, nil), ErrInvalidPlacement)
	r.refused(CreateTopic(now, b, "c", one(1), map[string]string{"retention.mss": "1"}), ErrInvalidConfig)
	r.refused(CreateTopic(now, record.TopicID{}, "c", one(1), nil), ErrInvalidConfig)

	r.refused(CreatePartitions(now, a, 1, one(1, 2)), ErrInvalidPartitions)
	grown := r.ok(CreatePartitions(now, a, 2, one(3, 1))).Topic
	if len(grown.Partitions) != 3 {
		t.Fatalf("%d partitions", len(grown.Partitions))
	}

	r.ok(DeleteTopic(now, a))
	r.refused(DeleteTopic(now, a), ErrUnknownTopic)
	again := r.ok(CreateTopic(now, b, "a_b", one(1), nil)).Topic
	groups := []record.Group{again.Partitions[0].Group}
	for _, p := range grown.Partitions {
		groups = append(groups, p.Group)
	}
	slices.Sort(groups)
	if len(slices.Compact(groups)) != 4 {
		t.Fatalf("a group id was given twice: %v", groups)
	}
}

func TestSettings(t *testing.T) {
	r := newRig(t)
	id := record.TopicID{1}
	r.ok(CreateTopic(now, id, "t", one(1), map[string]string{"retention.ms": "1000", "segment.ms": "5"}))
	get := func() TopicConfig { return r.m.Image().Topic("t").Config }

	r.ok(AlterConfig(now, id, false, map[string]string{"retention.bytes": "7"}, []string{"segment.ms"}))
	if c := get(); c.RetentionBytes != 7 || c.Retention != time.Second || c.SegmentAge != 7*24*time.Hour {
		t.Fatalf("after a change of one and a removal: %+v", c)
	}
	r.ok(AlterConfig(now, id, true, map[string]string{"max.message.bytes": "9"}, nil))
	if c := get(); c.RetentionBytes != -1 || c.MaxMessageBytes != 9 {
		t.Fatalf("after replacing all: %+v", c)
	}
	r.ok(AlterConfig(now, record.TopicID{}, false, map[string]string{"retention.ms": "2000"}, nil))
	if c := get(); c.Retention != 2*time.Second {
		t.Fatalf("a default of the cluster does not hold: %+v", c)
	}
	r.refused(AlterConfig(now, id, false, map[string]string{"segment.bytes": "12"}, nil), ErrInvalidConfig)
	r.refused(AlterConfig(now, id, false, map[string]string{"tube.storage": "memory"}, nil), ErrInvalidConfig)
	r.refused(AlterConfig(now, record.TopicID{}, false, map[string]string{"nonsense": "1"}, nil), ErrInvalidConfig)
	r.refused(AlterConfig(now, record.TopicID{9}, false, nil, nil), ErrUnknownTopic)
	if _, err := ResolveTopicConfig(map[string]string{"retention.m": "1"}, nil); err == nil || !strings.Contains(err.Error(), `"retention.ms"`) {
		t.Fatalf("the nearest setting is not named: %v", err)
	}
}

func TestTableOfSettingsIsSound(t *testing.T) {
	if !slices.IsSortedFunc(topicSettings, func(a, b TopicSetting) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the table is not sorted: rows cannot be found")
	}
	for _, s := range topicSettings {
		if _, err := s.parse(s.Default); err != nil || s.Doc == "" {
			t.Errorf("%s: default %q: %v; text %q", s.Name, s.Default, err, s.Doc)
		}
	}
}

func TestProducerIDsAreGivenOnce(t *testing.T) {
	r := newRig(t)
	first := r.ok(AllocateProducerIDs(now, 1, 1000)).FirstProducerID
	if next := r.ok(AllocateProducerIDs(now, 2, 10)).FirstProducerID; next != first+1000 {
		t.Fatalf("ids from %d after 1000 from %d", next, first)
	}
	r.refused(AllocateProducerIDs(now, 1, 0), ErrInvalidConfig)
	r.refused(AllocateProducerIDs(now, 1, 1<<40), ErrInvalidConfig)
}

func TestNodes(t *testing.T) {
	r := newRig(t)
	r.refused(RegisterNode(now, Node{ID: 1, Incarnation: "another", Kafka: "x:1"}), ErrNodeInUse)
	r.ok(SetNodeState(now, 1, NodeDown))
	if s := r.m.Image().Nodes[1].State; s != NodeDown {
		t.Fatalf("node 1 is %s", s)
	}
	r.refused(SetNodeState(now, 8, NodeDown), ErrUnknownNode)
	r.refused(Bootstrap(now, "c2"), ErrClusterExists)
	if res := r.m.Apply(99, []byte{0xff}); !errors.Is(res.Err, ErrUnknownCommand) {
		t.Fatalf("nonsense was answered with %v", res.Err)
	}
}

func TestEventsAreKeptAndBounded(t *testing.T) {
	r := newRig(t)
	start := r.m.LastEvent()
	for i := range MaxEvents + 500 {
		s := NodeDown
		if i%2 == 1 {
			s = NodeUp
		}
		r.index++
		r.m.Apply(r.index, SetNodeState(now, 1, s))
	}
	last := r.m.LastEvent()
	if last != start+MaxEvents+500 {
		t.Fatalf("last event %d", last)
	}
	if all := r.m.Events(1, 1<<30); len(all) != MaxEvents || all[len(all)-1].Seq != last {
		t.Fatalf("%d events kept", len(all))
	}
	if tail := r.m.Events(last-3, 10); len(tail) != 3 || tail[0].Seq != last-2 {
		t.Fatalf("after %d: %v", last-3, tail)
	}
	if tail := r.m.Events(0, 2); len(tail) != 2 || tail[1].Seq != last {
		t.Fatalf("the last two: %v", tail)
	}
	n := New()
	if err := n.Restore(r.m.Snapshot()); err != nil || n.LastEvent() != last || len(n.Events(1, 1<<30)) != MaxEvents {
		t.Fatalf("restored: %v, last %d", err, n.LastEvent())
	}
}

func FuzzMeta(f *testing.F) {
	f.Add(CreateTopic(now, record.TopicID{1}, "t", one(1), nil), []byte{})
	f.Add(AlterConfig(now, record.TopicID{}, true, map[string]string{"retention.ms": "1"}, nil), New().Snapshot())
	tp := record.TopicPartition{Topic: record.TopicID{1}}
	state := New()
	state.Apply(1, Bootstrap(now, "c", Founder{Node: 1, Replica: 1}))
	for id := record.NodeID(1); id <= 3; id++ {
		state.Apply(1, RegisterNode(now, Node{ID: id, Incarnation: "a", Kafka: "x:1", Roles: []string{RoleMaster, RoleBroker}}))
	}
	state.Apply(5, CreateTopic(now, tp.Topic, "t", one(1, 2), nil))
	state.Apply(6, Reassign(now, []Move{{tp, []record.NodeID{1, 3}, CauseRequest}}, 0))
	for _, command := range [][]byte{
		PlacementDone(now, []Members{{tp, []record.ReplicaID{FirstReplica}}}), CancelReassign(now, []record.TopicPartition{tp}),
		UnsafeRecover(now, tp, 1, []record.NodeID{1, 2}), RemoveNode(now, 2, true), DrainNode(now, 1, true),
		ReplaceNode(now, Node{ID: 1, Incarnation: "b", Kafka: "x:1"}), Reassign(now, []Move{{tp, []record.NodeID{2, 3}, CauseRequest}}, 9),
	} {
		f.Add(command, state.Snapshot())
	}
	f.Fuzz(func(t *testing.T, command, snapshot []byte) {
		m := New()
		m.Apply(1, command)
		_ = m.Restore(snapshot)
		m.Apply(2, command)
		if err := New().Restore(m.Snapshot()); err != nil {
			t.Fatalf("a state does not read back: %v", err)
		}
	})
}

// A damaged replica is replaced on its own node, once, and only while there is
// another to copy from.
func TestDamagedReplicasAreRenewed(t *testing.T) {
	r := newRig(t)
	id := record.TopicID{9}
	topic := r.ok(CreateTopic(now, id, "t", [][]record.NodeID{{1, 2, 3}}, nil)).Topic
	tp := record.TopicPartition{Topic: id}
	old := topic.Partitions[0].Replicas[1]
	renew := RenewReplicas(now, 2, []Members{{tp, []record.ReplicaID{old.ID}}})
	if items := r.ok(renew).Items; items[0] != nil {
		t.Fatal(items[0])
	}
	p := r.m.Image().Partition(tp)
	fresh, ok := p.Hosted(2)
	if !ok || fresh.ID == old.ID || !p.Replicas[1].Lost || len(p.Target) != 3 || p.Cause != CauseDamage {
		t.Fatalf("after the renewal: %+v", p)
	}
	if items := r.ok(renew).Items; !errors.Is(items[0], ErrNotMoving) {
		t.Fatalf("renewed twice: %v", items[0])
	}
	alone := r.ok(CreateTopic(now, record.TopicID{8}, "u", one(2), nil)).Topic
	only := []Members{{record.TopicPartition{Topic: alone.ID}, []record.ReplicaID{alone.Partitions[0].Replicas[0].ID}}}
	if items := r.ok(RenewReplicas(now, 2, only)).Items; !errors.Is(items[0], ErrNoSurvivor) {
		t.Fatalf("the only replica was given up: %v", items[0])
	}
}
