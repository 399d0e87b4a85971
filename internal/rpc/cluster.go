package rpc

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// Self is the node that answers.
type Self struct {
	Node    record.NodeID
	Version string
	Started time.Time
}

// Cluster is what the door needs to know of the cluster.
type Cluster interface {
	// Image is the newest metadata that this node has; never nil.
	Image() *meta.Image
	// Problems tells what this node needs help with, a sentence each.
	Problems() []string
	// ClusterProblems tells what is wrong with the whole cluster, as this node sees
	// it, the worst first.
	ClusterProblems() []string
	// NodeProblems asks the other nodes what they need help with; within limits of
	// time, and of each that does not answer it says so.
	NodeProblems(ctx context.Context) []NodeProblems
}

// NodeProblems are what one node needs help with.
type NodeProblems struct {
	Node        record.NodeID
	Problems    []string
	Unreachable bool // it did not answer
}

// Events are what happened in the cluster.
type Events interface {
	// ListEvents returns up to limit events after seq, oldest first; the last
	// ones if seq is 0.
	ListEvents(afterSeq uint64, limit int) []Event
	// LastEvent is the sequence number of the newest event, 0 if there is none,
	// and a channel that is closed when a newer one is there.
	LastEvent() (seq uint64, newer <-chan struct{})
}

// Event is one thing that happened.
type Event struct {
	Seq     uint64
	Time    time.Time
	Kind    string
	Subject string
	Text    string
}

const (
	defaultEvents = 100
	maxEvents     = 1000
)

// clusterService implements tube.v1.ClusterService.
type clusterService struct {
	self     Self
	cluster  Cluster
	events   Events
	operate  func() (Operator, error)
	stopping context.Context
	watchers chan struct{} // one for each stream
}

func newClusterService(cfg Config, stopping context.Context) *clusterService {
	return &clusterService{cfg.Self, cfg.Cluster, cfg.Events, cfg.Operator, stopping, make(chan struct{}, maxWatchers)}
}

func (s *clusterService) Status(context.Context, *connect.Request[tubev1.StatusRequest]) (*connect.Response[tubev1.StatusResponse], error) {
	return connect.NewResponse(s.status()), nil
}

func (s *clusterService) status() *tubev1.StatusResponse {
	image := s.cluster.Image()
	out := &tubev1.StatusResponse{
		ClusterId: image.ClusterID, NodeId: int32(s.self.Node), Version: s.self.Version,
		ControllerId: int32(image.Controller), Nodes: int32(len(image.Nodes)), Topics: int32(len(image.Topics)),
		NodeStarted: timestamppb.New(s.self.Started), Problems: s.cluster.Problems(), ClusterProblems: s.cluster.ClusterProblems(),
	}
	next, behind := image.NextLevel()
	out.FeatureLevel, out.NextFeatureLevel = uint32(image.Level), uint32(next)
	for _, id := range behind {
		out.NodesBehind = append(out.NodesBehind, int32(id))
	}
	for _, n := range image.Nodes {
		if n.State == meta.NodeUp {
			out.NodesUp++
		}
	}
	for _, t := range image.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			out.Partitions++
			if p.Leader < 0 {
				out.PartitionsWithoutLeader++
			}
			if underReplicated(image, p) {
				out.PartitionsUnderReplicated++
			}
		}
	}
	return out
}

func underReplicated(image *meta.Image, p *meta.Placement) bool {
	return slices.ContainsFunc(p.Replicas, func(r meta.Replica) bool {
		n := image.Nodes[r.Node]
		return n == nil || n.State == meta.NodeDown
	})
}

func (s *clusterService) ListNodes(context.Context, *connect.Request[tubev1.ListNodesRequest]) (*connect.Response[tubev1.ListNodesResponse], error) {
	return connect.NewResponse(&tubev1.ListNodesResponse{Nodes: nodes(s.cluster.Image())}), nil
}

// nodes lists the nodes by id.
func nodes(image *meta.Image) []*tubev1.Node {
	byID := make(map[record.NodeID]*tubev1.Node, len(image.Nodes))
	out := make([]*tubev1.Node, 0, len(image.Nodes))
	for id, n := range image.Nodes {
		byID[id] = &tubev1.Node{
			Id: int32(n.ID), Roles: n.Roles, Zone: n.Zone,
			KafkaAddress: n.Kafka, HttpAddress: n.HTTP, PeerAddress: n.Peer,
			Version: n.Version, State: string(n.State), Controller: n.ID == image.Controller, Drain: n.Drain, Sick: n.Sick, FeatureLevel: uint32(n.Level),
		}
		if !n.Since.IsZero() {
			byID[id].Since = timestamppb.New(n.Since)
		}
		out = append(out, byID[id])
	}
	for _, t := range image.Topics {
		for i := range t.Partitions {
			countReplicas(byID, &t.Partitions[i])
		}
	}
	for _, n := range out {
		n.Drained = n.Drain && n.ReplicasLeft == 0
	}
	slices.SortFunc(out, func(a, b *tubev1.Node) int { return cmp.Compare(a.Id, b.Id) })
	return out
}

func countReplicas(byID map[record.NodeID]*tubev1.Node, p *meta.Placement) {
	for _, r := range p.Replicas {
		if n := byID[r.Node]; n != nil {
			n.Replicas++
		}
	}
	for id, n := range byID {
		if _, ok := p.Hosted(id); ok {
			n.ReplicasLeft++
		}
	}
	if n := byID[p.Leader]; n != nil {
		n.Leaders++
	}
}

func (s *clusterService) ListEvents(_ context.Context, req *connect.Request[tubev1.ListEventsRequest]) (*connect.Response[tubev1.ListEventsResponse], error) {
	limit := int(req.Msg.Limit)
	switch {
	case limit < 0:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("limit: want ≥ 0"))
	case limit == 0:
		limit = defaultEvents
	}
	events := s.events.ListEvents(req.Msg.AfterSeq, min(limit, maxEvents))
	return connect.NewResponse(&tubev1.ListEventsResponse{Events: toProto(events)}), nil
}

func (s *clusterService) WatchEvents(ctx context.Context, req *connect.Request[tubev1.WatchEventsRequest], stream *connect.ServerStream[tubev1.WatchEventsResponse]) error {
	select {
	case s.watchers <- struct{}{}:
		defer func() { <-s.watchers }()
	default:
		return connect.NewError(connect.CodeResourceExhausted, errors.New("too many watch events at this node; ask another one or try later"))
	}
	deadlines(ctx, time.Now().Add(writeTimeout))
	if err := stream.Send(nil); err != nil { // who watches knows that he does, before anything happens
		return err
	}
	seq := req.Msg.AfterSeq
	last, newer := s.events.LastEvent()
	if seq == 0 {
		seq = last
	}
	for {
		if last > seq {
			events := s.events.ListEvents(seq, maxEvents)
			if len(events) == 0 {
				return connect.NewError(connect.CodeInternal, errors.New("events are gone"))
			}
			deadlines(ctx, time.Now().Add(writeTimeout))
			if err := stream.Send(&tubev1.WatchEventsResponse{Events: toProto(events)}); err != nil {
				return err
			}
			seq = events[len(events)-1].Seq
			last, newer = s.events.LastEvent()
			continue
		}
		deadlines(ctx, time.Time{})
		select {
		case <-newer:
			last, newer = s.events.LastEvent()
		case <-ctx.Done():
			return ctx.Err()
		case <-s.stopping.Done():
			return connect.NewError(connect.CodeUnavailable, errors.New("the node stops; go on at another one"))
		}
	}
}

func toProto(events []Event) []*tubev1.Event {
	out := make([]*tubev1.Event, len(events))
	for i, e := range events {
		out[i] = &tubev1.Event{Seq: e.Seq, Time: timestamppb.New(e.Time), Kind: e.Kind, Subject: e.Subject, Text: e.Text}
	}
	return out
}
