package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

// trio is a cluster of three brokers with a real master on metadata in memory.
// Leaders are whom the test says, at first nodes 1, 2 and 3 in turn.
type trio struct {
	tubev1connect.ClusterServiceClient // asks it
	master                             *master.Master
	queues                             *fakeQueues
	url                                string
	server                             *Server

	mu      sync.Mutex
	machine *meta.Machine
	index   record.Index
	leads   map[record.TopicPartition]record.NodeID
	match   record.Index // of all but the leader, of 100
	deaf    bool         // leaders do not hand over
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	c := &trio{machine: meta.New(), leads: map[record.TopicPartition]record.NodeID{}, match: 100}
	c.propose(t, meta.Bootstrap(time.UnixMilli(1), "c1"))
	for id := range record.NodeID(4) {
		if id > 0 {
			c.propose(t, meta.RegisterNode(time.UnixMilli(1), meta.Node{ID: id, Incarnation: fmt.Sprint(id), Roles: []string{"master", "broker"}, Kafka: "127.0.0.1:9092", Peer: fmt.Sprintf("127.0.0.1:%d", 9069+id)}))
		}
	}
	quiet := slog.New(slog.DiscardHandler)
	c.master = master.New(master.Config{Node: 1, Proposer: c, Image: c.Image, Logger: quiet, DefaultPartitions: 3, Seed: func() uint64 { return 1 }})
	c.queues = newFakeQueues()
	s := New(Config{
		Queues: func() (QueueBackend, error) {
			return QueueBackend{c.queues, c.master, c.queues, c.queues}, c.queues.starting
		},
		Self: Self{Node: 1}, Cluster: c, Events: &fake{}, Ready: func() error { return nil }, Metrics: http.NotFoundHandler(), Logger: quiet,
		Operator: func() (Operator, error) { return Operator{c.master, c.master, c}, nil },
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() { _ = s.Stop(context.Background()); <-done })
	c.url, c.server = "http://"+l.Addr().String(), s
	c.ClusterServiceClient = tubev1connect.NewClusterServiceClient(http.DefaultClient, "http://"+l.Addr().String())
	return c
}

func (c *trio) propose(t *testing.T, command []byte) {
	t.Helper()
	r, err := c.Propose(t.Context(), command)
	if err = errors.Join(err, r.(meta.Result).Err); err != nil {
		t.Fatal(err)
	}
}

func (c *trio) Propose(_ context.Context, command []byte) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index++
	return c.machine.Apply(c.index, command), nil
}

func (c *trio) Image() *meta.Image {
	c.mu.Lock()
	defer c.mu.Unlock()
	im := *c.machine.Image()
	im.Controller = 1
	im.Topics, im.ByName = map[record.TopicID]*meta.Topic{}, map[string]*meta.Topic{}
	for id, old := range c.machine.Image().Topics {
		t := *old
		t.Partitions = slices.Clone(t.Partitions)
		for i := range t.Partitions {
			leader, ok := c.leads[record.TopicPartition{Topic: id, Partition: record.Partition(i)}]
			if !ok {
				leader = t.Partitions[i].Replicas[0].Node
			}
			t.Partitions[i].Leader = leader
		}
		im.Topics[id], im.ByName[t.Name] = &t, &t
	}
	return &im
}

func (c *trio) Problems() []string        { return []string{"disk is nearly full"} }
func (c *trio) ClusterProblems() []string { return []string{"node 2 is down"} }
func (c *trio) NodeProblems(context.Context) []NodeProblems {
	return []NodeProblems{{Node: 2, Unreachable: true}, {Node: 3}}
}

func (c *trio) Members(_ context.Context, partitions []record.TopicPartition) map[record.TopicPartition]Members {
	out := map[record.TopicPartition]Members{}
	im := c.Image()
	for _, tp := range partitions {
		p := im.Partition(tp)
		if p.Leader < 0 {
			continue
		}
		m := Members{Leader: p.Leader, Last: 100}
		for _, r := range append(slices.Clone(p.Replicas), p.Target...) {
			x := Member{Replica: r.ID, Voter: slices.Contains(p.Replicas, r), Match: c.match, Current: c.match == 100}
			if r.Node == p.Leader {
				x.Match, x.Current = 100, true
			}
			m.Members = append(m.Members, x)
		}
		out[tp] = m
	}
	return out
}

func (c *trio) TransferLeaders(_ context.Context, transfers []master.TransferLeader) []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs := make([]error, len(transfers))
	for i, t := range transfers {
		if c.deaf {
			errs[i] = ErrNotTransferred
			continue
		}
		c.leads[t.TopicPartition] = t.To
	}
	return errs
}

func (c *trio) topic(t *testing.T, name string, nodes ...[]record.NodeID) *meta.Topic {
	t.Helper()
	made, err := c.master.CreateTopic(t.Context(), master.TopicSpec{Name: name, Partitions: -1, ReplicationFactor: -1, Assignment: nodes})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func ask[Q, R any](t *testing.T, call func(context.Context, *connect.Request[Q]) (*connect.Response[R], error), q *Q) *R {
	t.Helper()
	r, err := call(t.Context(), connect.NewRequest(q))
	if err != nil {
		t.Fatal(err)
	}
	return r.Msg
}

func refused[Q, R any](t *testing.T, call func(context.Context, *connect.Request[Q]) (*connect.Response[R], error), q *Q, code connect.Code, says string) {
	t.Helper()
	_, err := call(t.Context(), connect.NewRequest(q))
	if connect.CodeOf(err) != code || !strings.Contains(err.Error(), says) {
		t.Fatalf("%v %v, want %v with %q", connect.CodeOf(err), err, code, says)
	}
}

func TestReplicasAreDescribed(t *testing.T) {
	c := newTrio(t)
	c.topic(t, "a", []record.NodeID{1, 2, 3})
	p := ask(t, c.DescribeReplicas, &tubev1.DescribeReplicasRequest{Topic: "a"}).Partitions[0]
	if p.Health != "healthy" || p.Leader != 1 || len(p.Replicas) != 3 || !p.Replicas[0].Leader || p.Replicas[1].Lag != 0 {
		t.Fatalf("%v", p)
	}
	if r := ask(t, c.DescribeReplicas, &tubev1.DescribeReplicasRequest{OnlyProblems: true}); len(r.Partitions) != 0 {
		t.Fatalf("%v", r)
	}
	c.match = 90
	p = ask(t, c.DescribeReplicas, &tubev1.DescribeReplicasRequest{OnlyProblems: true}).Partitions[0]
	if p.Health != "1 of 3 replicas current" || p.Severity != tubev1.Severity_SEVERITY_DEGRADED || p.Replicas[2].Lag != 10 || p.Replicas[2].LastEntry != 90 {
		t.Fatalf("%v", p)
	}
	refused(t, c.DescribeReplicas, &tubev1.DescribeReplicasRequest{Topic: "b"}, connect.CodeNotFound, "unknown topic: b")
	refused(t, c.DescribeReplicas, &tubev1.DescribeReplicasRequest{Topic: "a", Partitions: []int32{1}}, connect.CodeNotFound, "1 of topic a, which has 1")
}

func TestPartitionsAreMovedAndTheMoveIsTakenBack(t *testing.T) {
	c := newTrio(t)
	c.topic(t, "a", []record.NodeID{1, 2}, []record.NodeID{2, 1})
	move := &tubev1.ReassignRequest{Topic: "a", Partitions: []*tubev1.PartitionNodes{{Partition: 1, Nodes: []int32{2, 3}}}, DryRun: true, ThrottleBytesPerSecond: 5}
	if r := ask(t, c.Reassign, move); len(r.Moves) != 1 || !slices.Equal(r.Moves[0].To, []int32{2, 3}) {
		t.Fatalf("%v", r)
	}
	if r := ask(t, c.ListReassignments, &tubev1.ListReassignmentsRequest{}); len(r.Reassignments) != 0 {
		t.Fatalf("a dry run moves %v", r)
	}
	move.DryRun = false
	ask(t, c.Reassign, move)
	c.match = 40
	r := ask(t, c.ListReassignments, &tubev1.ListReassignmentsRequest{Topic: "a"}).Reassignments[0]
	if r.Partition != 1 || !slices.Equal(r.Adding, []int32{3}) || !slices.Equal(r.Removing, []int32{1}) || r.EntriesThere != 40 || r.EntriesNeeded != 100 || r.ThrottleBytesPerSecond != 5 {
		t.Fatalf("%v", r)
	}
	if r := ask(t, c.CancelReassign, &tubev1.CancelReassignRequest{Topic: "a"}); !slices.Equal(r.Partitions, []int32{1}) {
		t.Fatalf("%v", r)
	}
	refused(t, c.CancelReassign, &tubev1.CancelReassignRequest{Topic: "a", Partitions: []int32{0}}, connect.CodeFailedPrecondition, "a/0")
}

// One partition that cannot move keeps the others where they are.
func TestReassignmentIsAllOrNothing(t *testing.T) {
	c := newTrio(t)
	c.topic(t, "a", []record.NodeID{1}, []record.NodeID{2})
	refused(t, c.Reassign, &tubev1.ReassignRequest{Topic: "a", Partitions: []*tubev1.PartitionNodes{
		{Partition: 0, Nodes: []int32{3}}, {Partition: 1, Nodes: []int32{9}},
	}}, connect.CodeInvalidArgument, "partition a/1")
	if r := ask(t, c.ListReassignments, &tubev1.ListReassignmentsRequest{}); len(r.Reassignments) != 0 {
		t.Fatalf("%v", r)
	}
	refused(t, c.Reassign, &tubev1.ReassignRequest{Topic: "a"}, connect.CodeInvalidArgument, "either")
	refused(t, c.Reassign, &tubev1.ReassignRequest{Topic: "a", Nodes: []int32{1, 1}}, connect.CodeInvalidArgument, "twice")
}

func TestTopicIsSpreadOverNodes(t *testing.T) {
	c := newTrio(t)
	c.topic(t, "a", []record.NodeID{1, 2}, []record.NodeID{1, 2}, []record.NodeID{2, 1}, []record.NodeID{1, 3})
	r := ask(t, c.Reassign, &tubev1.ReassignRequest{Topic: "a", Nodes: []int32{3, 2}, DryRun: true})
	leads := map[int32]int{}
	for _, m := range r.Moves {
		if !slices.Contains(m.To, 2) || !slices.Contains(m.To, 3) || len(m.To) != 2 {
			t.Fatalf("%v", m)
		}
		leads[m.To[0]]++
	}
	if leads[2] != 2 || leads[3] != 2 {
		t.Fatalf("preferred leaders %v", leads)
	}
	refused(t, c.Reassign, &tubev1.ReassignRequest{Topic: "a", Nodes: []int32{3}}, connect.CodeInvalidArgument, "2 replicas")
}

func TestLeaderIsTransferredAndPreferred(t *testing.T) {
	c := newTrio(t)
	c.topic(t, "a", []record.NodeID{1, 2})
	r := ask(t, c.TransferLeader, &tubev1.TransferLeaderRequest{Topic: "a", Node: 2})
	if r.Leader != 2 || r.Previous != 1 {
		t.Fatalf("%v", r)
	}
	if first := c.Image().Topic("a").Partitions[0].Replicas[0].Node; first != 2 {
		t.Fatalf("node %d is preferred, and would get the lead back", first)
	}
	if r := ask(t, c.TransferLeader, &tubev1.TransferLeaderRequest{Topic: "a", Node: 2}); r.Leader != 2 || r.Previous != 2 {
		t.Fatalf("%v", r)
	}
	refused(t, c.TransferLeader, &tubev1.TransferLeaderRequest{Topic: "a", Node: 3}, connect.CodeInvalidArgument, "on nodes 2, 1")
	c.deaf = true
	refused(t, c.TransferLeader, &tubev1.TransferLeaderRequest{Topic: "a", Node: -1}, connect.CodeUnavailable, "did not change")
}

func TestNodesAreDrainedAndRemoved(t *testing.T) {
	c := newTrio(t)
	c.topic(t, "a", []record.NodeID{1, 2})
	ask(t, c.Drain, &tubev1.DrainRequest{Node: 2})
	ask(t, c.Drain, &tubev1.DrainRequest{Node: 3})
	nodes := ask(t, c.ListNodes, &tubev1.ListNodesRequest{}).Nodes
	if !nodes[1].Drain || nodes[1].Drained || nodes[1].ReplicasLeft != 1 || !nodes[2].Drained || nodes[0].Drain {
		t.Fatalf("%v", nodes)
	}
	ask(t, c.Undrain, &tubev1.UndrainRequest{Node: 2})
	refused(t, c.Drain, &tubev1.DrainRequest{Node: 7}, connect.CodeNotFound, "7")
	refused(t, c.RemoveNode, &tubev1.RemoveNodeRequest{Node: 2}, connect.CodeFailedPrecondition, "node 2 is up")
	c.propose(t, meta.SetNodeState(time.UnixMilli(2), 3, meta.NodeDown))
	ask(t, c.RemoveNode, &tubev1.RemoveNodeRequest{Node: 3})
	if n := len(c.Image().Nodes); n != 2 {
		t.Fatalf("%d nodes", n)
	}
}

func TestReplicationFactorAndBalanceChange(t *testing.T) {
	c := newTrio(t)
	c.topic(t, "a", []record.NodeID{1}, []record.NodeID{1}, []record.NodeID{1})
	if r := ask(t, c.Rebalance, &tubev1.RebalanceRequest{DryRun: true}); len(r.Moves) != 2 {
		t.Fatalf("%v", r)
	}
	if r := ask(t, c.AlterReplicationFactor, &tubev1.AlterReplicationFactorRequest{Topic: "a", ReplicationFactor: 3}); len(r.Moves) != 3 || len(r.Moves[0].To) != 3 {
		t.Fatalf("%v", r)
	}
	refused(t, c.AlterReplicationFactor, &tubev1.AlterReplicationFactorRequest{Topic: "a", ReplicationFactor: 4}, connect.CodeInvalidArgument, "4")
}

func TestNothingIsGivenUpByMistake(t *testing.T) {
	c := newTrio(t)
	c.topic(t, "a", []record.NodeID{1, 2, 3})
	q := &tubev1.UnsafeRecoverRequest{Topic: "a", Survivor: 1, DryRun: true}
	refused(t, c.UnsafeRecover, q, connect.CodeFailedPrecondition, "majority")
	for _, id := range []record.NodeID{2, 3} {
		c.propose(t, meta.SetNodeState(time.UnixMilli(2), id, meta.NodeDown))
	}
	if r := ask(t, c.UnsafeRecover, q); r.MayLose == "" || !slices.Contains(r.Nodes, 1) {
		t.Fatalf("%v", r)
	}
	q.DryRun = false
	refused(t, c.UnsafeRecover, q, connect.CodeInvalidArgument, `"a/0"`)
	if c.Image().Topic("a").Partitions[0].Recovery != 0 {
		t.Fatal("recovered without a confirmation")
	}
	q.Confirm = "a/0"
	ask(t, c.UnsafeRecover, q)
	if c.Image().Topic("a").Partitions[0].Recovery != 1 {
		t.Fatal("not recovered")
	}
	refused(t, c.UnsafeRecover, &tubev1.UnsafeRecoverRequest{Topic: "a", DryRun: true}, connect.CodeInvalidArgument, "survivor")
}

func TestHealthIsThatOfAllNodes(t *testing.T) {
	c := newTrio(t)
	r := ask(t, c.Health, &tubev1.HealthRequest{})
	if r.Healthy || len(r.Problems) != 1 || len(r.Nodes) != 2 || r.Nodes[0].Node != 1 || !r.Nodes[1].Unreachable {
		t.Fatalf("%v", r)
	}
}

func TestNothingCanBeChangedBeforeTheNodeTakesPart(t *testing.T) {
	s := newClusterService(Config{Cluster: &fake{}, Operator: func() (Operator, error) { return Operator{}, errors.New("starting") }}, t.Context())
	if _, err := s.Drain(t.Context(), connect.NewRequest(&tubev1.DrainRequest{Node: 1})); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Fatal(err)
	}
}
