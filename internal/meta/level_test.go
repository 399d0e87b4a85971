package meta

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/meta/metapb"
	"github.com/tube-mq/tube/internal/record"
)

// ofLevel is a node whose program knows a level.
func ofLevel(id record.NodeID, known Level) Node {
	return Node{ID: id, Incarnation: "i" + string('0'+rune(id)), Kafka: "127.0.0.1:9092", Roles: []string{RoleMaster, RoleBroker}, Level: known}
}

func (r *rig) wantLevel(want Level) {
	r.t.Helper()
	if got := r.m.Image().Level; got != want {
		r.t.Fatalf("the cluster is at level %d, want %d", got, want)
	}
}

func TestTheLevelIsWhatAllNodesKnow(t *testing.T) {
	r := newRig(t) // three nodes of programs before levels
	r.refused(SetLevel(now, 1), ErrLevel)
	r.ok(RegisterNode(now, ofLevel(1, 1)))
	r.ok(RegisterNode(now, ofLevel(2, 1)))
	if next, behind := r.m.Image().NextLevel(); next != 1 || !slices.Equal(behind, []record.NodeID{3}) {
		t.Fatalf("the next level is %d, for which nodes %v are too old", next, behind)
	}
	r.refused(SetLevel(now, 1), ErrLevel)
	// Until the last node is upgraded each of them may go back.
	r.ok(RegisterNode(now, ofLevel(1, 0)))
	r.ok(RegisterNode(now, ofLevel(3, 1)))
	r.refused(SetLevel(now, 1), ErrLevel)
	r.ok(RegisterNode(now, ofLevel(1, 1)))
	r.wantLevel(0)
	r.ok(SetLevel(now, 1))
	r.wantLevel(1)
	if next, _ := r.m.Image().NextLevel(); next != 0 {
		t.Fatalf("there is level %d next", next)
	}
	events := r.m.LastEvent()
	r.ok(SetLevel(now, 1)) // a master that has just become active says it again
	r.ok(SetLevel(now, 0))
	r.wantLevel(1)
	if r.m.LastEvent() != events {
		t.Fatal("saying it again is an event")
	}
}

func TestAProgramThatDoesNotKnowTheLevelIsRefused(t *testing.T) {
	r := newRig(t)
	for id := record.NodeID(1); id <= 3; id++ {
		r.ok(RegisterNode(now, ofLevel(id, 1)))
	}
	r.ok(SetLevel(now, 1))
	for _, c := range [][]byte{RegisterNode(now, ofLevel(3, 0)), RegisterNode(now, ofLevel(4, 0)), ReplaceNode(now, ofLevel(5, 0))} {
		r.refused(c, ErrOldProgram)
	}
	err := r.m.Image().Follows(0)
	if err == nil || !strings.Contains(err.Error(), "feature level 1") || !strings.Contains(err.Error(), "start a newer tube") {
		t.Fatalf("it is told %v", err)
	}
	r.ok(ReplaceNode(now, ofLevel(5, 2))) // a newer one may be there before the others
	r.refused(SetLevel(now, 2), ErrLevel)
}

// A founder may be of any version until it has said.
func TestNoLevelIsRaisedBeforeAllFoundersHaveRegistered(t *testing.T) {
	r := &rig{t: t, m: New()}
	r.ok(Bootstrap(now, "c", Founder{Node: 1, Replica: 1}, Founder{Node: 2, Replica: 2}))
	r.ok(RegisterNode(now, ofLevel(1, 1)))
	r.refused(SetLevel(now, 1), ErrLevel)
	if _, behind := r.m.Image().NextLevel(); !slices.Equal(behind, []record.NodeID{2}) {
		t.Fatalf("nodes %v are behind", behind)
	}
	r.ok(RegisterNode(now, ofLevel(2, 1)))
	r.ok(SetLevel(now, 1))
}

// What is beyond this program stops it: it was started in the place of a newer one, and
// the others do not know yet.
func TestALevelBeyondThisProgramStopsIt(t *testing.T) {
	r := newRig(t)
	for id := record.NodeID(1); id <= 3; id++ {
		r.ok(RegisterNode(now, ofLevel(id, KnownLevel+1)))
	}
	if res := r.m.Apply(r.index+1, SetLevel(now, KnownLevel+1)); !errors.Is(res.Err, ErrUnknownCommand) {
		t.Fatalf("it goes on: %v", res.Err)
	}
	var s metapb.Snapshot
	if err := proto.Unmarshal(r.m.Snapshot(), &s); err != nil {
		t.Fatal(err)
	}
	s.Level = uint32(KnownLevel) + 1
	b, err := proto.Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	if err := New().Restore(b); !errors.Is(err, ErrOldProgram) {
		t.Fatalf("it reads what it may not understand: %v", err)
	}
}

// A kind of command that is not here is new: programs before it stop at it. It takes a level
// of its own (KnownLevel), and who proposes it looks at Image.Level first.
func TestEveryKindOfCommandHasALevel(t *testing.T) {
	levels := map[Level][]string{
		0: {"bootstrap", "register_node", "set_node_state", "create_topic", "delete_topic", "create_partitions", "alter_config", "allocate_producer_ids",
			"remove_node", "drain_node", "reassign", "cancel_reassign", "placement_done", "unsafe_recover", "renew_replicas", "create_queue_group",
			"update_queue_group", "delete_queue_group", "pause_queue_group", "set_node_sick", "alter_group_config", "note_queue_retention", "recover_masters"},
		1: {"set_level"},
	}
	known := map[string]bool{}
	for level, names := range levels {
		if level > KnownLevel {
			t.Errorf("level %d is beyond KnownLevel", level)
		}
		for _, name := range names {
			known[name] = true
		}
	}
	kinds := (&metapb.Command{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range kinds.Len() {
		if name := string(kinds.Get(i).Name()); !known[name] {
			t.Errorf("%s has no level", name)
		}
	}
}
