package master

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// withTopic is a cluster of n brokers with a topic "t" of one partition for each
// of placement.
func withTopic(t *testing.T, n int, placement ...[]record.NodeID) (*committed, *Master) {
	t.Helper()
	c := newLog(t, make([]string, n)...)
	m := c.master(1)
	if _, err := m.CreateTopic(t.Context(), TopicSpec{Name: "t", Partitions: -1, ReplicationFactor: -1, Assignment: placement}); err != nil {
		t.Fatal(err)
	}
	return c, m
}

func TestReassignmentsAreJudgedOneByOne(t *testing.T) {
	c, m := withTopic(t, 5, []record.NodeID{1, 2}, []record.NodeID{2, 3})
	c.apply(t, meta.SetNodeState(planTime, 4, meta.NodeDown))
	c.apply(t, meta.RegisterNode(planTime, meta.Node{ID: 9, Incarnation: "i", Roles: []string{"master"}, Kafka: "x:1"}))
	specs := []ReassignSpec{
		{"t", 0, []record.NodeID{1, 3}},
		{"t", 1, []record.NodeID{2, 4}}, // down
		{"t", 1, []record.NodeID{2, 9}}, // no broker
		{"t", 1, []record.NodeID{2, 2}},
		{"t", 2, []record.NodeID{1}},
		{"none", 0, []record.NodeID{1}},
		{"t", 1, []record.NodeID{3, 2}},
	}
	before := c.proposals()
	told, errs := m.Reassign(t.Context(), specs, 100, true)
	if c.proposals() != before || len(told) != 2 || !slices.Equal(told[0].From, []record.NodeID{1, 2}) || !slices.Equal(told[0].To, []record.NodeID{1, 3}) {
		t.Fatalf("a dry run proposed something or tells %+v", told)
	}
	wants := []error{nil, meta.ErrInvalidPlacement, meta.ErrInvalidPlacement, meta.ErrInvalidPlacement, meta.ErrUnknownPartition, meta.ErrUnknownTopic, nil}
	for i, want := range wants {
		if !errors.Is(errs[i], want) {
			t.Errorf("%+v: %v, want %v", specs[i], errs[i], want)
		}
	}
	if _, again := m.Reassign(t.Context(), specs, 100, false); fmt.Sprint(again) != fmt.Sprint(errs) {
		t.Fatalf("a dry run says %v, then %v", errs, again)
	}
	got := m.ListReassignments("")
	if len(got) != 1 || got[0].Throttle != 100 || got[0].Cause != meta.CauseRequest || !slices.Equal(got[0].Adding, []record.NodeID{3}) || !slices.Equal(got[0].Removing, []record.NodeID{2}) || len(got[0].Replicas) != 3 {
		t.Fatalf("under way: %+v", got)
	}
	if r := c.image().Topic("t").Partitions[1].Replicas; r[0].Node != 3 {
		t.Errorf("the order of preference is %v", r)
	}
	if len(m.ListReassignments("other")) != 0 {
		t.Error("another topic's are listed")
	}
	errs = m.CancelReassign(t.Context(), []PartitionName{{"t", 1}, {"t", 0}, {"none", 0}})
	if !errors.Is(errs[0], meta.ErrNotMoving) || errs[1] != nil || !errors.Is(errs[2], meta.ErrUnknownTopic) {
		t.Fatalf("cancelled: %v", errs)
	}
	if got := m.ListReassignments("t"); len(got) != 1 || len(got[0].Adding) != 0 || !slices.Equal(got[0].Removing, []record.NodeID{3}) {
		t.Fatalf("after cancelling: %+v", got)
	}
	c.err = context.DeadlineExceeded
	if _, errs := m.Reassign(t.Context(), specs[:2], 0, false); !errors.Is(errs[0], ErrUnavailable) || !errors.Is(errs[1], meta.ErrInvalidPlacement) {
		t.Fatalf("without a master: %v", errs)
	}
}

func TestReplicationFactorsGrowAndShrink(t *testing.T) {
	c := newLog(t, "a", "a", "b", "c")
	m := c.master(1)
	if _, err := m.CreateTopic(t.Context(), TopicSpec{Name: "t", Partitions: 12, ReplicationFactor: 1}); err != nil {
		t.Fatal(err)
	}
	for _, factor := range []int{3, 2, 4, 1} {
		if told, err := m.AlterReplicationFactor(t.Context(), "t", factor, 0, true); err != nil || len(told) != 12 {
			t.Fatalf("factor %d: %d moves, %v", factor, len(told), err)
		}
		leaders := map[int]record.NodeID{}
		for i, p := range c.image().Topic("t").Partitions {
			leaders[i] = p.Replicas[0].Node
		}
		moves, err := changeFactor(c.image(), c.image().Topic("t"), factor)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.AlterReplicationFactor(t.Context(), "t", factor, 0, false); err != nil {
			t.Fatal(err)
		}
		c.moved(t, moves)
		for i, p := range c.image().Topic("t").Partitions {
			checkSpread(t, c.image(), nodesOf(p.Replicas), min(factor, 3))
			if len(p.Replicas) != factor || p.Target != nil || p.Replicas[0].Node != leaders[i] {
				t.Fatalf("factor %d: partition %d: %+v", factor, i, p)
			}
		}
	}
	for _, factor := range []int{0, 5} {
		_, err := m.AlterReplicationFactor(t.Context(), "t", factor, 0, false)
		wantErr(t, err, meta.ErrInvalidReplicas)
	}
	_, err := m.AlterReplicationFactor(t.Context(), "none", 1, 0, false)
	wantErr(t, err, meta.ErrUnknownTopic)
	c.apply(t, meta.SetNodeState(planTime, 4, meta.NodeDown))
	_, err = m.AlterReplicationFactor(t.Context(), "t", 4, 0, false)
	wantErr(t, err, meta.ErrInvalidReplicas)
}

// What cannot be kept goes first when there are to be fewer replicas.
func TestAShrinkingFactorDropsWhatIsDown(t *testing.T) {
	c, _ := withTopic(t, 4, []record.NodeID{1, 2, 3}, []record.NodeID{2, 3, 1})
	c.apply(t, meta.SetNodeState(planTime, 2, meta.NodeDown))
	moves, err := changeFactor(c.image(), c.image().Topic("t"), 2)
	if err != nil || len(moves) != 2 || !slices.Equal(moves[0].Nodes, []record.NodeID{1, 3}) || !slices.Equal(moves[1].Nodes, []record.NodeID{3, 1}) {
		t.Fatalf("%v, %v", moves, err)
	}
}

func TestNodesThatAreNeededStay(t *testing.T) {
	c, m := withTopic(t, 4, []record.NodeID{1, 2})
	wantErr(t, m.RemoveNode(t.Context(), 9, false), meta.ErrUnknownNode)
	wantErr(t, m.Drain(t.Context(), 9), meta.ErrUnknownNode)
	wantErr(t, m.RemoveNode(t.Context(), 3, false), meta.ErrNodeNeeded) // up
	c.apply(t, meta.SetNodeState(planTime, 2, meta.NodeDown))
	wantErr(t, m.RemoveNode(t.Context(), 2, false), meta.ErrNodeNeeded)
	if err := m.Drain(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if n := m.Nodes()[2]; !n.Drained || n.State != meta.NodeDraining {
		t.Fatalf("%+v", n)
	}
	if err := m.RemoveNode(t.Context(), 3, false); err != nil {
		t.Fatal(err)
	}
	if err := m.RemoveNode(t.Context(), 2, true); err != nil {
		t.Fatal(err)
	}
	if p := c.image().Topic("t").Partitions[0]; !p.Replicas[1].Lost || len(m.Nodes()) != 2 {
		t.Fatalf("%+v", p)
	}
	if err := m.Drain(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	if err := m.Undrain(t.Context(), 4); err != nil || c.image().Nodes[4].Drain {
		t.Fatalf("%v, %+v", err, c.image().Nodes[4])
	}
}

func TestAPlanIsCarriedOut(t *testing.T) {
	c, m := withTopic(t, 4, []record.NodeID{1, 2, 3})
	tp := record.TopicPartition{Topic: c.image().Topic("t").ID}
	transfer := TransferLeader{tp, 1, 2}
	got, err := m.CarryOut(t.Context(), []Action{
		SetState{3, meta.NodeDown}, Reassign{meta.Move{TopicPartition: tp, Nodes: []record.NodeID{1, 2, 4}, Cause: meta.CauseReplace}}, transfer,
	}, 7)
	if err != nil || len(got) != 1 || got[0] != transfer {
		t.Fatalf("%v, %v", got, err)
	}
	if p := c.image().Partition(tp); p.Target == nil || p.Throttle != 7 || p.Cause != meta.CauseReplace || c.image().Nodes[3].State != meta.NodeDown {
		t.Fatalf("%+v", p)
	}
	_, err = m.CarryOut(t.Context(), []Action{SetState{8, meta.NodeDown}}, 0)
	wantErr(t, err, meta.ErrUnknownNode)
}

func TestAnUnsafeRecoverySaysWhatItMayLose(t *testing.T) {
	c, m := withTopic(t, 5, []record.NodeID{1, 2, 3})
	at := time.Unix(1_800_000_000, 0)
	m.cfg.Ends = func(context.Context, record.TopicPartition) []KnownEnd {
		return []KnownEnd{{Node: 3, End: 90, At: at, Alive: true}, {Node: 1, End: 100, At: at}}
	}
	spec := RecoverSpec{PartitionName: PartitionName{"t", 0}, Survivor: 3, DryRun: true}
	_, err := m.UnsafeRecover(t.Context(), spec)
	wantErr(t, err, ErrHealthy)
	for _, id := range []record.NodeID{1, 2} {
		c.apply(t, meta.SetNodeState(planTime, id, meta.NodeDown))
	}
	before := c.proposals()
	for survivor, want := range map[record.NodeID]string{
		3:  "offsets 90 to 99 may be given up: node 3 ends at offset 90, node 1 ended at 100 when last heard of",
		1:  "node 1 has all that is known of, up to offset 99",
		2:  "how far node 2's replica goes is not known",
		-1: "all records of the partition are given up; the last known end is offset 100 (node 1",
	} {
		spec.Survivor = survivor
		r, err := m.UnsafeRecover(t.Context(), spec)
		if err != nil || !strings.HasPrefix(r.MayLose, want) || len(r.Nodes) != 3 || r.Ends[0].Node != 1 {
			t.Errorf("survivor %d: %+v, %v", survivor, r, err)
		}
	}
	spec.Survivor = 4
	_, err = m.UnsafeRecover(t.Context(), spec)
	wantErr(t, err, meta.ErrNoSurvivor)
	spec.Survivor, spec.Nodes = 3, []record.NodeID{3, 8}
	_, err = m.UnsafeRecover(t.Context(), spec)
	wantErr(t, err, meta.ErrInvalidPlacement)
	if c.proposals() != before {
		t.Fatal("a dry run proposed something")
	}
	spec.Nodes, spec.DryRun = nil, false
	if _, err := m.UnsafeRecover(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	p := c.image().Topic("t").Partitions[0]
	if p.Recovery != 1 || len(p.Replicas) != 1 || p.Replicas[0].Node != 3 || len(p.Target) != 3 || p.Target[0] != p.Replicas[0] {
		t.Fatalf("%+v", p)
	}
	spec.PartitionName = PartitionName{"t", 5}
	_, err = m.UnsafeRecover(t.Context(), spec)
	wantErr(t, err, meta.ErrUnknownPartition)
}

func TestARebalanceCanBeLookedAtFirst(t *testing.T) {
	c, m := withTopic(t, 2, []record.NodeID{1}, []record.NodeID{1}, []record.NodeID{1}, []record.NodeID{1})
	before := c.proposals()
	told, err := m.Rebalance(t.Context(), 0, true)
	if err != nil || len(told) != 2 || c.proposals() != before {
		t.Fatalf("%v, %v", told, err)
	}
	if _, err := m.Rebalance(t.Context(), 0, false); err != nil || len(m.ListReassignments("")) != 2 {
		t.Fatalf("%v, %v", m.ListReassignments(""), err)
	}
	if told, err := m.Rebalance(t.Context(), 0, true); err != nil || len(told) != 0 {
		t.Fatalf("what moves already moves again: %v, %v", told, err)
	}
}
