package meta

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// fill gives every field below v a value that is not zero and not another's.
func fill(v reflect.Value, n *int64) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(fromMillis(*n)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), n)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("s", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(*n)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n))
	case reflect.Array: // an id, given by whoever asks
	default:
		panic(v.Type().String())
	}
}

// A field that is added to what is replicated goes through snapshots, and
// another value of it gives another digest.
func TestSnapshotsHoldEveryField(t *testing.T) {
	m := New()
	n := int64(0)
	var node Node
	var founder Founder
	var place Placement
	for _, x := range []any{&node, &founder, &place} {
		fill(reflect.ValueOf(x).Elem(), &n)
	}
	place.Leader, place.Epoch = -1, 0 // not of the machine
	cfg, err := ResolveTopicConfig(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	topic := &Topic{ID: record.TopicID{1}, Name: "t", Overrides: map[string]string{}, Config: cfg, Partitions: []Placement{place}, Created: now}
	im := m.image
	im.Nodes[node.ID], im.Founders = &node, []Founder{founder}
	im.setTopic(topic)
	m.metrics["t"] = "t"
	var group QueueGroup
	fill(reflect.ValueOf(&group).Elem(), &n)
	group.Topic, im.LastQueueGroup = topic.ID, group.ID+1
	im.setQueueGroup(&group)
	im.Recovered = "r"
	m.replaced[7] = []string{"x", "y"}
	m.replaced[3] = []string{"z"}
	other := New()
	if err := other.Restore(m.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(m, other) {
		t.Fatalf("restored\n%+v\n%+v\nwas\n%+v\n%+v", other.image.Topics[topic.ID], other.image.Nodes[node.ID], topic, &node)
	}
	for name, change := range map[string]func(){
		"target":    func() { im.Topics[topic.ID].Partitions[0].Target[0].ID++ },
		"lost":      func() { im.Topics[topic.ID].Partitions[0].Replicas[1].Lost = false },
		"leaving":   func() { im.Topics[topic.ID].Partitions[0].Leaving = nil },
		"throttle":  func() { im.Topics[topic.ID].Partitions[0].Throttle++ },
		"recovery":  func() { im.Topics[topic.ID].Partitions[0].Recovery++ },
		"cause":     func() { im.Topics[topic.ID].Partitions[0].Cause = "" },
		"founder":   func() { im.Founders[0].Taken = false },
		"replica":   func() { im.Nodes[node.ID].MetaReplica++ },
		"since":     func() { im.Nodes[node.ID].Since = now },
		"drain":     func() { im.Nodes[node.ID].Drain = false },
		"replaced":  func() { m.replaced[3] = nil },
		"queue":     func() { group.Settings.Retain = false },
		"version":   func() { group.Version++ },
		"last":      func() { im.LastQueueGroup++ },
		"recovered": func() { im.Recovered = "" },
	} {
		before := m.Digest()
		change()
		if m.Digest() == before {
			t.Errorf("%s is not in the digest", name)
		}
	}
}

// Metadata that was written before clusters had several nodes.
func TestAnOldSnapshotGoesOn(t *testing.T) {
	old := New()
	old.nextReplica = 5
	old.image.ClusterID = "c"
	old.image.Nodes[1] = &Node{ID: 1, Incarnation: "a", Kafka: "x:1", State: NodeUp, Roles: []string{RoleMaster, RoleBroker}}
	r := &rig{t: t, m: New()}
	if err := r.m.Restore(old.Snapshot()); err != nil {
		t.Fatal(err)
	}
	n := r.m.Image().Nodes[1]
	if n.MetaReplica != 1 || !n.Since.IsZero() {
		t.Fatalf("node %+v", n)
	}
	made := r.ok(CreateTopic(now, record.TopicID{1}, "t", one(1), nil)).Topic
	if id := made.Partitions[0].Replicas[0].ID; id != 5 {
		t.Errorf("the next replica is %d, not what the snapshot says", id)
	}
	if id := r.ok(RegisterNode(now, Node{ID: 2, Incarnation: "b", Kafka: "x:2", Roles: []string{RoleBroker}})).Node.MetaReplica; id != FirstReplica {
		t.Errorf("the new node's is %d", id)
	}
}

func TestReplacedFoldersAreRememberedWithinBounds(t *testing.T) {
	r := newRig(t)
	for i := range maxReplaced + 5 {
		r.ok(SetNodeState(now, 2, NodeDown))
		r.ok(ReplaceNode(now, Node{ID: 2, Incarnation: fmt.Sprint("n", i), Kafka: "x:1", Roles: []string{RoleBroker}}))
	}
	r.ok(SetNodeState(now, 2, NodeDown))
	if n := len(r.m.replaced[2]); n != maxReplaced {
		t.Fatalf("%d are remembered", n)
	}
	r.refused(ReplaceNode(now, Node{ID: 2, Incarnation: "n50", Kafka: "x:1"}), ErrOldIncarnation)
	if !r.m.Replaced(2, "n50") || r.m.Replaced(2, "new") || r.m.Replaced(1, "n50") {
		t.Error("which folders were replaced is told wrongly")
	}
}

// Whatever is proposed, an image that was handed out stays as it is.
func TestImagesDoNotChange(t *testing.T) {
	r := newRig(t)
	id := record.TopicID{1}
	r.ok(CreateTopic(now, id, "t", [][]record.NodeID{{1, 2}, {2, 3}}, nil))
	tp := record.TopicPartition{Topic: id}
	r.ok(CreateTopic(now, record.TopicID{2}, "dead", one(1), nil))
	group := r.ok(CreateQueueGroup(now, "q", id, queueSettings())).QueueGroup
	for _, command := range [][]byte{
		Reassign(now, []Move{{tp, []record.NodeID{1, 3}, CauseRequest}, {record.TopicPartition{Topic: id, Partition: 1}, []record.NodeID{3, 1}, CauseRequest}}, 5),
		PauseQueueGroup(now, group.ID, true),
		CreateQueueGroup(now, "q2", id, queueSettings()),
		DeleteQueueGroup(now, group.ID),
		SetNodeState(now, 3, NodeDown),
		ReplaceNode(now, Node{ID: 3, Incarnation: "z", Kafka: "x:1"}),
		CancelReassign(now, []record.TopicPartition{tp}),
		DrainNode(now, 1, true),
		RemoveNode(now, 2, true),
		UnsafeRecover(now, tp, 1, nil),
	} {
		held := r.m.Image()
		text := func() string {
			out := fmt.Sprintf("%+v %+v %+v", *held.Topics[id], *held.Nodes[1], held.Founders)
			for _, g := range held.QueueGroupsOf(id) {
				out += fmt.Sprintf(" %+v %v", *g, held.QueueGroup(g.Name) == g)
			}
			return out
		}
		was := text()
		nodes := len(held.Nodes)
		r.ok(command)
		if is := text(); is != was || len(held.Nodes) != nodes {
			t.Fatalf("an image changed from\n%s\nto\n%s", was, is)
		}
	}
}

// A copy of a data folder that is put back is told from the folder by the starts that the
// cluster has seen.
func TestOlderCopiesOfAFolderAreRefused(t *testing.T) {
	r := newRig(t)
	register := func(starts uint64, run string) []byte {
		return RegisterNode(now, Node{ID: 2, Incarnation: r.m.Image().Nodes[2].Incarnation, Kafka: "x:1", Roles: []string{RoleBroker}, Starts: starts, Run: run})
	}
	r.ok(register(1, "a"))
	r.ok(register(1, "a")) // said twice
	r.ok(register(2, "b"))
	r.ok(register(5, "e"))
	r.refused(register(4, "d"), ErrOlderCopy)
	r.refused(register(5, "f"), ErrOlderCopy) // a copy of start 4, started another time
	again := New()
	if err := again.Restore(r.m.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if n := again.Image().Nodes[2]; n.OlderCopy(n.Incarnation, 5, "f") == nil || n.OlderCopy(n.Incarnation, 5, "e") != nil || n.OlderCopy("another", 1, "a") != nil {
		t.Errorf("a snapshot forgets the starts: %+v", n)
	}
	r.ok(SetNodeState(now, 2, NodeDown))
	r.ok(ReplaceNode(now, Node{ID: 2, Incarnation: "empty", Kafka: "x:1", Roles: []string{RoleBroker}, Starts: 1, Run: "g"}))
}
