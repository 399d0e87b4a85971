package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func (s *clusterService) Rebalance(ctx context.Context, req *connect.Request[tubev1.RebalanceRequest]) (*connect.Response[tubev1.RebalanceResponse], error) {
	op, err := s.operator()
	if err != nil {
		return nil, err
	}
	moves, err := op.Placement.Rebalance(ctx, req.Msg.ThrottleBytesPerSecond, req.Msg.DryRun)
	return connect.NewResponse(&tubev1.RebalanceResponse{Moves: movesToProto(moves)}), err
}

func (s *clusterService) AlterReplicationFactor(ctx context.Context, req *connect.Request[tubev1.AlterReplicationFactorRequest]) (*connect.Response[tubev1.AlterReplicationFactorResponse], error) {
	op, err := s.operator()
	if err != nil {
		return nil, err
	}
	moves, err := op.Placement.AlterReplicationFactor(ctx, req.Msg.Topic, int(req.Msg.ReplicationFactor), req.Msg.ThrottleBytesPerSecond, req.Msg.DryRun)
	return connect.NewResponse(&tubev1.AlterReplicationFactorResponse{Moves: movesToProto(moves)}), err
}

func (s *clusterService) Reassign(ctx context.Context, req *connect.Request[tubev1.ReassignRequest]) (*connect.Response[tubev1.ReassignResponse], error) {
	op, err := s.operator()
	if err != nil {
		return nil, err
	}
	m := req.Msg
	t := s.cluster.Image().Topic(m.Topic)
	if t == nil {
		return nil, fmt.Errorf("%w: %s", meta.ErrUnknownTopic, m.Topic)
	}
	var specs []master.ReassignSpec
	switch {
	case len(m.Nodes) > 0 == (len(m.Partitions) > 0):
		return nil, invalid("give either partitions or nodes")
	case len(m.Nodes) > 0:
		if specs, err = spread(t, nodeIDs(m.Nodes)); err != nil {
			return nil, err
		}
	}
	for _, p := range m.Partitions {
		specs = append(specs, master.ReassignSpec{Topic: m.Topic, Partition: record.Partition(p.Partition), Nodes: nodeIDs(p.Nodes)})
	}
	// All or nothing: the specs are tried before any is carried out.
	moves, errs := op.Placement.Reassign(ctx, specs, m.ThrottleBytesPerSecond, true)
	if err := errors.Join(errs...); err == nil && !m.DryRun {
		moves, errs = op.Placement.Reassign(ctx, specs, m.ThrottleBytesPerSecond, false)
	}
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("partition %s/%d: %w", m.Topic, specs[i].Partition, err)
		}
	}
	return connect.NewResponse(&tubev1.ReassignResponse{Moves: movesToProto(moves)}), nil
}

// spread puts a topic's partitions on nodes, with as many replicas each as there
// are. What lies on one of them stays; the rest goes to the node that has fewest.
func spread(t *meta.Topic, nodes []record.NodeID) ([]master.ReassignSpec, error) {
	have, leads := map[record.NodeID]int{}, map[record.NodeID]int{}
	order := slices.Compact(slices.Sorted(slices.Values(nodes)))
	if len(order) < len(nodes) {
		return nil, invalid("a node is named twice")
	}
	specs := make([]master.ReassignSpec, len(t.Partitions))
	for i := range t.Partitions {
		wanted := t.Partitions[i].Wanted()
		if len(wanted) > len(nodes) {
			return nil, fmt.Errorf("%w: partition %d has %d replicas and there are %d nodes for them", meta.ErrInvalidPlacement, i, len(wanted), len(nodes))
		}
		specs[i] = master.ReassignSpec{Topic: t.Name, Partition: record.Partition(i)}
		for _, r := range wanted {
			if slices.Contains(nodes, r.Node) {
				specs[i].Nodes = append(specs[i].Nodes, r.Node)
				have[r.Node]++
			}
		}
	}
	for i := range specs {
		s := &specs[i]
		for len(s.Nodes) < len(t.Partitions[i].Wanted()) {
			n := least(order, have, func(n record.NodeID) bool { return !slices.Contains(s.Nodes, n) })
			s.Nodes = append(s.Nodes, n)
			have[n]++
		}
		first := least(order, leads, func(n record.NodeID) bool { return slices.Contains(s.Nodes, n) })
		leads[first]++
		at := slices.Index(s.Nodes, first)
		s.Nodes = slices.Insert(slices.Delete(s.Nodes, at, at+1), 0, first)
	}
	return specs, nil
}

// least is the first node of those that may with the lowest number.
func least(nodes []record.NodeID, number map[record.NodeID]int, may func(record.NodeID) bool) record.NodeID {
	best := record.NodeID(-1)
	for _, n := range nodes {
		if may(n) && (best < 0 || number[n] < number[best]) {
			best = n
		}
	}
	return best
}

func (s *clusterService) CancelReassign(ctx context.Context, req *connect.Request[tubev1.CancelReassignRequest]) (*connect.Response[tubev1.CancelReassignResponse], error) {
	op, err := s.operator()
	if err != nil {
		return nil, err
	}
	if req.Msg.Topic == "" {
		return nil, invalid("no topic is named")
	}
	im := s.cluster.Image()
	names, err := chosen(im, req.Msg.Topic, req.Msg.Partitions)
	if err != nil {
		return nil, err
	}
	if len(req.Msg.Partitions) == 0 {
		t := im.Topic(req.Msg.Topic)
		names = slices.DeleteFunc(names, func(n master.PartitionName) bool { return t.Partitions[n.Partition].Target == nil })
	}
	out := &tubev1.CancelReassignResponse{}
	for i, err := range op.Placement.CancelReassign(ctx, names) {
		switch {
		// It has arrived meanwhile, and was not named.
		case errors.Is(err, meta.ErrNotMoving) && len(req.Msg.Partitions) == 0:
		case err != nil:
			return nil, err
		default:
			out.Partitions = append(out.Partitions, int32(names[i].Partition))
		}
	}
	return connect.NewResponse(out), nil
}

func (s *clusterService) ListReassignments(ctx context.Context, req *connect.Request[tubev1.ListReassignmentsRequest]) (*connect.Response[tubev1.ListReassignmentsResponse], error) {
	op, err := s.operator()
	if err != nil {
		return nil, err
	}
	im := s.cluster.Image()
	if _, err := chosen(im, req.Msg.Topic, nil); err != nil {
		return nil, err
	}
	moving := op.Placement.ListReassignments(req.Msg.Topic)
	names := make([]master.PartitionName, len(moving))
	for i, r := range moving {
		names[i] = r.PartitionName
	}
	members := op.Replicas.Members(ctx, refs(im, names))
	out := &tubev1.ListReassignmentsResponse{}
	for _, r := range moving {
		pb := &tubev1.Reassignment{
			Topic: r.Topic, Partition: int32(r.Partition), Replicas: plainIDs(r.Replicas), Adding: plainIDs(r.Adding), Removing: plainIDs(r.Removing),
			ThrottleBytesPerSecond: r.Throttle, Cause: r.Cause,
		}
		if t := im.Topic(r.Topic); t != nil && int(r.Partition) < len(t.Partitions) {
			m, ok := members[record.TopicPartition{Topic: t.ID, Partition: r.Partition}]
			progress(pb, &t.Partitions[r.Partition], m, ok)
		}
		out.Reassignments = append(out.Reassignments, pb)
	}
	return connect.NewResponse(out), nil
}

// progress says how far the new replicas of a partition are.
func progress(pb *tubev1.Reassignment, p *meta.Placement, m Members, known bool) {
	if !known {
		return
	}
	pb.LastEntry = uint64(m.Last)
	for _, r := range p.Target {
		if r.Lost || slices.Contains(p.Replicas, r) {
			continue
		}
		pb.EntriesNeeded += uint64(m.Last)
		for _, x := range m.Members {
			if x.Replica == r.ID {
				pb.EntriesThere += uint64(min(x.Match, m.Last))
			}
		}
	}
}

func (s *clusterService) UnsafeRecover(ctx context.Context, req *connect.Request[tubev1.UnsafeRecoverRequest]) (*connect.Response[tubev1.UnsafeRecoverResponse], error) {
	op, err := s.operator()
	if err != nil {
		return nil, err
	}
	m := req.Msg
	name := fmt.Sprintf("%s/%d", m.Topic, m.Partition)
	if !m.DryRun && m.Confirm != name {
		return nil, invalid(fmt.Sprintf("acknowledged records may be lost: ask for a dry run to see which, then set confirm to %q", name))
	}
	if m.Survivor == 0 || m.Survivor < -1 {
		return nil, invalid("survivor: give the id of the node to go on from, or −1 for none")
	}
	if s.cluster.Image().Controller < 0 { // what is known of the replicas may be old, too
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("no master is active: bring back a majority of them; only if most are gone for good: tube cluster unsafe-recover masters"))
	}
	r, err := op.Placement.UnsafeRecover(ctx, master.RecoverSpec{
		PartitionName: master.PartitionName{Topic: m.Topic, Partition: record.Partition(m.Partition)},
		Survivor:      record.NodeID(m.Survivor), Nodes: nodeIDs(m.Nodes), Force: m.Force, DryRun: m.DryRun,
	})
	if err != nil {
		return nil, err
	}
	out := &tubev1.UnsafeRecoverResponse{Nodes: plainIDs(r.Nodes), MayLose: r.MayLose}
	for _, e := range r.Ends {
		out.Ends = append(out.Ends, &tubev1.KnownEnd{Node: int32(e.Node), EndOffset: int64(e.End), Time: timestamppb.New(e.At), Alive: e.Alive})
	}
	return connect.NewResponse(out), nil
}

func movesToProto(moves []master.PartitionMove) []*tubev1.PartitionMove {
	out := make([]*tubev1.PartitionMove, len(moves))
	for i, m := range moves {
		out[i] = &tubev1.PartitionMove{Topic: m.Topic, Partition: int32(m.Partition), From: plainIDs(m.From), To: plainIDs(m.To)}
	}
	slices.SortFunc(out, func(a, b *tubev1.PartitionMove) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out
}

func list(ids []record.NodeID) string {
	var s []string
	for _, id := range ids {
		s = append(s, fmt.Sprint(id))
	}
	return strings.Join(s, ", ")
}
