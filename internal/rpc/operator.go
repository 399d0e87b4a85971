package rpc

import (
	"context"
	"errors"
	"log/slog"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// Operator is what changes the cluster, in three parts.
type Operator struct {
	Nodes     NodeAdmin
	Placement PlacementAdmin
	Replicas  ReplicaAdmin
}

// NodeAdmin is what can be done to a node. Errors: meta.ErrUnknownNode,
// meta.ErrNodeNeeded, master.ErrUnavailable.
type NodeAdmin interface {
	Drain(ctx context.Context, node record.NodeID) error
	Undrain(ctx context.Context, node record.NodeID) error
	RemoveNode(ctx context.Context, node record.NodeID, force bool) error
}

// PlacementAdmin is what can be done to where partitions lie. Errors are meta's
// sentinels and master's.
type PlacementAdmin interface {
	Rebalance(ctx context.Context, throttle int64, dryRun bool) ([]master.PartitionMove, error)
	Reassign(ctx context.Context, specs []master.ReassignSpec, throttle int64, dryRun bool) ([]master.PartitionMove, []error)
	CancelReassign(ctx context.Context, partitions []master.PartitionName) []error
	ListReassignments(topic string) []master.Reassignment
	AlterReplicationFactor(ctx context.Context, topic string, n int, throttle int64, dryRun bool) ([]master.PartitionMove, error)
	UnsafeRecover(ctx context.Context, s master.RecoverSpec) (master.Recovery, error)
}

// ReplicaAdmin is what the partitions' leaders know and do.
type ReplicaAdmin interface {
	// Members asks the leaders of partitions for their replicas. What is missing in
	// the answer has no leader, or one that did not answer in time.
	Members(ctx context.Context, partitions []record.TopicPartition) map[record.TopicPartition]Members
	// TransferLeaders asks leaders to let other nodes lead (−1: any other), waits
	// for it, and says of each what became of it. Errors: meta.ErrInvalidPlacement
	// (the node has no replica), ErrNotTransferred.
	TransferLeaders(ctx context.Context, transfers []master.TransferLeader) []error
}

// Members are a partition's replicas as its leader sees them.
type Members struct {
	Leader  record.NodeID
	Last    record.Index // of the leader's log
	Members []Member
}

// Member is one of them.
type Member struct {
	Replica record.ReplicaID
	Voter   bool
	Match   record.Index // the last entry that it is known to have durably
	Current bool         // it takes entries as they come, and was heard of lately
}

// ErrNotTransferred: a leader has not let another lead in time.
var ErrNotTransferred = errors.New("the leader did not change")

// rpcErrors maps what administration answers to Connect's codes. The sentences
// are about what the caller asked for, and are told as they are.
var rpcErrors = []struct {
	err  error
	code connect.Code
}{
	// First: a call that ran out of time also finds no master.
	{context.DeadlineExceeded, connect.CodeDeadlineExceeded},
	{context.Canceled, connect.CodeCanceled},
	{master.ErrUnavailable, connect.CodeUnavailable},
	{ErrNotTransferred, connect.CodeUnavailable},
	{meta.ErrUnknownTopic, connect.CodeNotFound},
	{meta.ErrUnknownPartition, connect.CodeNotFound},
	{meta.ErrUnknownNode, connect.CodeNotFound},
	{meta.ErrNotMoving, connect.CodeFailedPrecondition},
	{meta.ErrNodeNeeded, connect.CodeFailedPrecondition},
	{meta.ErrNoSurvivor, connect.CodeFailedPrecondition},
	{master.ErrHealthy, connect.CodeFailedPrecondition},
	{meta.ErrInvalidPlacement, connect.CodeInvalidArgument},
	{meta.ErrInvalidReplicas, connect.CodeInvalidArgument},
}

// refusals gives errors their codes. One that is not in the table is a mistake
// of ours and is logged.
func refusals(log *slog.Logger) connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			resp, err := next(ctx, req)
			var known *connect.Error
			if err == nil || errors.As(err, &known) {
				return resp, err
			}
			for _, e := range rpcErrors {
				if errors.Is(err, e.err) {
					return nil, connect.NewError(e.code, err)
				}
			}
			log.Error("a request failed", "request", req.Spec().Procedure, "err", err)
			return nil, connect.NewError(connect.CodeInternal, errors.New("this failed for a reason that is in the node's log"))
		}
	})
}

// operator is what changes the cluster, once this node takes part in it.
func (s *clusterService) operator() (Operator, error) {
	op, err := s.operate()
	if err != nil {
		return op, connect.NewError(connect.CodeUnavailable, err)
	}
	return op, nil
}

func nodeIDs(ids []int32) []record.NodeID {
	var out []record.NodeID
	for _, id := range ids {
		out = append(out, record.NodeID(id))
	}
	return out
}

func plainIDs(ids []record.NodeID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

func invalid(text string) error {
	return connect.NewError(connect.CodeInvalidArgument, errors.New(text))
}
