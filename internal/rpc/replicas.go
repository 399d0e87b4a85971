package rpc

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func (s *clusterService) DescribeReplicas(ctx context.Context, req *connect.Request[tubev1.DescribeReplicasRequest]) (*connect.Response[tubev1.DescribeReplicasResponse], error) {
	op, err := s.operator()
	if err != nil {
		return nil, err
	}
	im := s.cluster.Image()
	names, err := chosen(im, req.Msg.Topic, req.Msg.Partitions)
	if err != nil {
		return nil, err
	}
	members := op.Replicas.Members(ctx, refs(im, names))
	out := &tubev1.DescribeReplicasResponse{}
	for i, tp := range refs(im, names) {
		m, ok := members[tp]
		p := describeReplicas(im, names[i], im.Partition(tp), m, ok)
		if !req.Msg.OnlyProblems || p.Moving || p.Severity != tubev1.Severity_SEVERITY_HEALTHY {
			out.Partitions = append(out.Partitions, p)
		}
	}
	return connect.NewResponse(out), nil
}

// chosen are the partitions that a request names, by topic and number: of one
// topic or with "" of all, those that are listed or, if none are, all.
func chosen(im *meta.Image, topic string, partitions []int32) ([]master.PartitionName, error) {
	var topics []*meta.Topic
	switch t := im.Topic(topic); {
	case topic == "" && len(partitions) > 0:
		return nil, invalid("partitions without a topic")
	case topic == "":
		for _, t := range im.Topics {
			topics = append(topics, t)
		}
		slices.SortFunc(topics, func(a, b *meta.Topic) int { return cmp.Compare(a.Name, b.Name) })
	case t == nil:
		return nil, fmt.Errorf("%w: %s", meta.ErrUnknownTopic, topic)
	default:
		topics = append(topics, t)
	}
	var out []master.PartitionName
	for _, t := range topics {
		for i := range t.Partitions {
			if len(partitions) == 0 || slices.Contains(partitions, int32(i)) {
				out = append(out, master.PartitionName{Topic: t.Name, Partition: record.Partition(i)})
			}
		}
		for _, i := range partitions {
			if i < 0 || int(i) >= len(t.Partitions) {
				return nil, fmt.Errorf("%w: %d of topic %s, which has %d", meta.ErrUnknownPartition, i, topic, len(t.Partitions))
			}
		}
	}
	return out, nil
}

func refs(im *meta.Image, names []master.PartitionName) []record.TopicPartition {
	out := make([]record.TopicPartition, 0, len(names))
	for _, n := range names {
		if t := im.Topic(n.Topic); t != nil {
			out = append(out, record.TopicPartition{Topic: t.ID, Partition: n.Partition})
		}
	}
	return out
}

func describeReplicas(im *meta.Image, name master.PartitionName, p *meta.Placement, m Members, known bool) *tubev1.PartitionReplicas {
	out := &tubev1.PartitionReplicas{
		Topic: name.Topic, Partition: int32(name.Partition), Leader: int32(p.Leader), Epoch: int32(p.Epoch), Moving: p.Target != nil,
	}
	if known {
		out.Leader, out.LastEntry = int32(m.Leader), uint64(m.Last)
	}
	var seen []record.ReplicaID
	for _, list := range [][]meta.Replica{p.Replicas, p.Target, p.Leaving} {
		for _, r := range list {
			if slices.Contains(seen, r.ID) {
				continue
			}
			seen = append(seen, r.ID)
			out.Replicas = append(out.Replicas, describeReplica(im, p, r, m, known))
		}
	}
	out.Severity, out.Health = judge(out)
	return out
}

func describeReplica(im *meta.Image, p *meta.Placement, r meta.Replica, m Members, known bool) *tubev1.Replica {
	same := func(o meta.Replica) bool { return o.ID == r.ID }
	stays := slices.ContainsFunc(p.Wanted(), same)
	n := im.Nodes[r.Node]
	out := &tubev1.Replica{
		Id: uint64(r.ID), Node: int32(r.Node), Lost: r.Lost, NodeUp: n != nil && n.State != meta.NodeDown,
		Adding: stays && !slices.ContainsFunc(p.Replicas, same), Removing: !stays,
		Leader: p.Leader == r.Node && !r.Lost, Known: known,
	}
	if !known {
		return out
	}
	out.Leader = m.Leader == r.Node && !r.Lost
	out.Lag = uint64(m.Last)
	for _, x := range m.Members {
		if x.Replica != r.ID {
			continue
		}
		out.Voter, out.LastEntry, out.Current = x.Voter, uint64(x.Match), x.Current
		out.Lag = uint64(max(m.Last, x.Match) - x.Match)
	}
	return out
}

// judge says how a partition is, in a few words.
func judge(p *tubev1.PartitionReplicas) (tubev1.Severity, string) {
	voters, current, lost := 0, 0, 0
	for _, r := range p.Replicas {
		switch {
		case r.Lost:
			lost++
		case r.Known && r.Current && r.Voter:
			current++
		}
		if !r.Adding {
			voters++
		}
	}
	switch {
	case p.Leader < 0:
		return tubev1.Severity_SEVERITY_UNAVAILABLE, "no leader"
	case p.LastEntry == 0 && !p.Replicas[0].Known:
		return tubev1.Severity_SEVERITY_DEGRADED, "the leader does not answer"
	case lost > 0:
		return tubev1.Severity_SEVERITY_DEGRADED, fmt.Sprintf("%d of %d replicas lost", lost, voters)
	case p.Moving:
		return tubev1.Severity_SEVERITY_DEGRADED, "moving"
	case current < voters:
		return tubev1.Severity_SEVERITY_DEGRADED, fmt.Sprintf("%d of %d replicas current", current, voters)
	}
	return tubev1.Severity_SEVERITY_HEALTHY, "healthy"
}

func (s *clusterService) TransferLeader(ctx context.Context, req *connect.Request[tubev1.TransferLeaderRequest]) (*connect.Response[tubev1.TransferLeaderResponse], error) {
	op, err := s.operator()
	if err != nil {
		return nil, err
	}
	names, err := chosen(s.cluster.Image(), req.Msg.Topic, []int32{req.Msg.Partition})
	if err != nil {
		return nil, err
	}
	im := s.cluster.Image()
	tp := refs(im, names)[0]
	p, to := im.Partition(tp), record.NodeID(req.Msg.Node)
	if to <= 0 {
		to = -1
	} else if err := prefer(ctx, op.Placement, names[0], p, to); err != nil {
		return nil, err
	}
	switch {
	case p.Leader < 0:
		err = fmt.Errorf("%w: partition %s/%d has no leader that could hand it over", ErrNotTransferred, names[0].Topic, names[0].Partition)
	case p.Leader != to:
		err = op.Replicas.TransferLeaders(ctx, []master.TransferLeader{{TopicPartition: tp, From: p.Leader, To: to}})[0]
	}
	if err != nil {
		return nil, err
	}
	leader := to
	if now := s.cluster.Image().Partition(tp); now != nil {
		leader = now.Leader
	}
	return connect.NewResponse(&tubev1.TransferLeaderResponse{Leader: int32(leader), Previous: int32(p.Leader)}), nil
}

// prefer makes a node a partition's preferred leader: else the masters would give
// the lead back to the one that is. While replicas move it stays as it is.
func prefer(ctx context.Context, placement PlacementAdmin, name master.PartitionName, p *meta.Placement, node record.NodeID) error {
	var order []record.NodeID
	for _, r := range p.Replicas {
		if r.Node != node {
			order = append(order, r.Node)
		} else if !r.Lost {
			order = append([]record.NodeID{node}, order...)
		}
	}
	if !slices.Contains(order, node) {
		return fmt.Errorf("%w: node %d has no replica of partition %s/%d; they are on nodes %s", meta.ErrInvalidPlacement, node, name.Topic, name.Partition, list(order))
	}
	if p.Target != nil || p.Replicas[0].Node == node {
		return nil
	}
	_, errs := placement.Reassign(ctx, []master.ReassignSpec{{Topic: name.Topic, Partition: name.Partition, Nodes: order}}, 0, false)
	return errs[0]
}
