package node

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
	peerv1 "github.com/tube-mq/tube/proto/tube/peer/v1"
)

// peerService answers other nodes.
type peerService struct{ n *Node }

// Greet implements peerv1connect.PeerServiceHandler.
func (s peerService) Greet(_ context.Context, req *connect.Request[peerv1.GreetRequest]) (*connect.Response[peerv1.GreetResponse], error) {
	if from := record.NodeID(req.Msg.GetNode()); s.n.meta.replaced(from, req.Msg.GetIncarnation()) {
		return nil, connect.NewError(connect.CodePermissionDenied, fmt.Errorf("this data folder was node %d's before another took its place, or before the node was removed; start the node with an empty data folder", from))
	}
	if err := s.n.meta.Image().Follows(meta.Level(req.Msg.GetLevel())); err != nil {
		return nil, connect.NewError(connect.CodePermissionDenied, err)
	}
	if known := s.n.meta.Image().Nodes[record.NodeID(req.Msg.GetNode())]; known != nil {
		if err := known.OlderCopy(req.Msg.GetIncarnation(), req.Msg.GetStarts(), req.Msg.GetRun()); err != nil {
			return nil, connect.NewError(connect.CodePermissionDenied, err)
		}
	}
	id := s.n.id()
	r := &peerv1.GreetResponse{Node: int32(id.Node), ClusterId: id.ClusterID}
	if !s.n.owned.Load() {
		r.ClusterId = "" // of an empty data folder nothing is decided yet
	}
	if id.founding() {
		for _, f := range id.Founders {
			r.Founders = append(r.Founders, int32(f))
		}
	}
	im := s.n.meta.Image()
	r.Established = im.ClusterID != ""
	for _, node := range im.Nodes {
		r.Nodes = append(r.Nodes, &peerv1.Address{Node: int32(node.ID), Peer: node.Peer, MetaReplica: uint64(node.MetaReplica)})
	}
	for _, f := range im.Founders {
		if !f.Taken {
			r.Nodes = append(r.Nodes, &peerv1.Address{Node: int32(f.Node), MetaReplica: uint64(f.Replica)})
		}
	}
	return connect.NewResponse(r), nil
}

// Join implements peerv1connect.PeerServiceHandler.
func (s peerService) Join(ctx context.Context, req *connect.Request[peerv1.JoinRequest]) (*connect.Response[peerv1.JoinResponse], error) {
	if s.n.host.Load() == nil || s.n.meta.Image().ClusterID == "" {
		return nil, connect.NewError(connect.CodeUnavailable, errStarting)
	}
	r, err := metaProposer(s).Propose(ctx, req.Msg.GetNode())
	if err != nil {
		return nil, connect.NewError(connect.CodeUnavailable, err)
	}
	switch res := r.(meta.Result); {
	case res.Err != nil:
		return connect.NewResponse(&peerv1.JoinResponse{Error: res.Err.Error()}), nil
	case res.Node == nil:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("this is not the registration of a node"))
	default:
		return connect.NewResponse(&peerv1.JoinResponse{MetaReplica: uint64(res.Node.MetaReplica)}), nil
	}
}

// Propose implements peerv1connect.PeerServiceHandler.
func (s peerService) Propose(ctx context.Context, req *connect.Request[peerv1.ProposeRequest]) (*connect.Response[peerv1.ProposeResponse], error) {
	h := s.n.host.Load()
	if h == nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errStarting)
	}
	g := h.Group(metaGroup)
	if g == nil || !g.Status().Leading {
		return nil, connect.NewError(connect.CodeFailedPrecondition, replica.ErrNotLeader)
	}
	r, err := g.ProposeWait(ctx, req.Msg.GetCommand())
	switch {
	case err == nil:
		return connect.NewResponse(&peerv1.ProposeResponse{Index: uint64(r.(applied).index)}), nil
	case errors.Is(err, replica.ErrNotLeader):
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	case errors.Is(err, replica.ErrBusy):
		return nil, connect.NewError(connect.CodeResourceExhausted, err)
	}
	return nil, connect.NewError(connect.CodeUnknown, err)
}

// Newest implements peerv1connect.PeerServiceHandler.
func (s peerService) Newest(ctx context.Context, _ *connect.Request[peerv1.NewestRequest]) (*connect.Response[peerv1.NewestResponse], error) {
	h := s.n.host.Load()
	if h == nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errStarting)
	}
	g := h.Group(metaGroup)
	if g == nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, replica.ErrNotLeader)
	}
	if err := g.Barrier(ctx); err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return connect.NewResponse(&peerv1.NewestResponse{Index: uint64(s.n.meta.Image().Index)}), nil
}

// statePartBytes is how much of a machine's state one message of a copy holds.
const statePartBytes = 1 << 20

// Copy implements peerv1connect.PeerServiceHandler.
func (s peerService) Copy(ctx context.Context, req *connect.Request[peerv1.CopyRequest], stream *connect.ServerStream[peerv1.CopyResponse]) error {
	h := s.n.host.Load()
	if h == nil {
		return connect.NewError(connect.CodeFailedPrecondition, errStarting)
	}
	id, out := record.Group(req.Msg.GetGroup()), sending{stream}
	var err error
	if id >= meta.FirstPartitionGroup {
		err = s.n.broker.ServeCopy(ctx, id, record.Offset(req.Msg.GetFrom()), out)
	} else {
		err = copyWhole(ctx, h.Group(id), out)
	}
	if err != nil && connect.CodeOf(err) == connect.CodeUnknown {
		return connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return err
}

// copyWhole hands out a group whose machine keeps everything in its state.
func copyWhole(ctx context.Context, g *replica.Group, out sending) error {
	if g == nil {
		return replica.ErrNotLeader
	}
	snap, err := g.Capture(ctx)
	if err != nil {
		return err
	}
	return out.Head(broker.CopyHead{Snapshot: snap})
}

// sending is the sending end of a copy.
type sending struct {
	stream *connect.ServerStream[peerv1.CopyResponse]
}

// Head implements broker.CopySink.
func (s sending) Head(h broker.CopyHead) error {
	state := h.Snapshot.State
	first := &peerv1.CopyResponse{Head: &peerv1.CopyHead{
		Index: uint64(h.Snapshot.Index), Term: uint64(h.Snapshot.Term), Members: h.Snapshot.Members,
		Start: int64(h.Start), End: int64(h.End), StateBytes: uint64(len(state)), StateCrc: crc32.Checksum(state, record.Castagnoli),
	}}
	if err := s.stream.Send(first); err != nil {
		return err
	}
	for len(state) > 0 {
		n := min(len(state), statePartBytes)
		if err := s.stream.Send(&peerv1.CopyResponse{State: state[:n]}); err != nil {
			return err
		}
		state = state[n:]
	}
	return nil
}

// Batches implements broker.CopySink.
func (s sending) Batches(b []byte) error { return s.stream.Send(&peerv1.CopyResponse{Batches: b}) }

// HandOver implements peerv1connect.PeerServiceHandler.
func (s peerService) HandOver(_ context.Context, req *connect.Request[peerv1.HandOverRequest]) (*connect.Response[peerv1.HandOverResponse], error) {
	if h := s.n.host.Load(); h != nil {
		for _, o := range req.Msg.GetGroups() {
			if g := h.Group(record.Group(o.GetGroup())); g != nil {
				g.Transfer(record.ReplicaID(o.GetReplica()))
			}
		}
	}
	return connect.NewResponse(&peerv1.HandOverResponse{}), nil
}

// End implements peerv1connect.PeerServiceHandler.
func (s peerService) End(_ context.Context, req *connect.Request[peerv1.EndRequest]) (*connect.Response[peerv1.EndResponse], error) {
	r := &peerv1.EndResponse{}
	tp := record.TopicPartition{Partition: record.Partition(req.Msg.GetPartition())}
	copy(tp.Topic[:], req.Msg.GetTopic())
	if s.n.host.Load() != nil {
		end, ok := s.n.broker.KnownEnd(tp)
		r.Hosted, r.End = ok, int64(end)
	}
	return connect.NewResponse(r), nil
}

// Members implements peerv1connect.PeerServiceHandler.
func (s peerService) Members(ctx context.Context, req *connect.Request[peerv1.MembersRequest]) (*connect.Response[peerv1.MembersResponse], error) {
	r := &peerv1.MembersResponse{}
	h := s.n.host.Load()
	if h == nil {
		return connect.NewResponse(r), nil
	}
	var groups []*replica.Group
	if len(req.Msg.GetGroups()) == 0 {
		groups = h.Groups()
	}
	for _, id := range req.Msg.GetGroups() {
		if g := h.Group(record.Group(id)); g != nil {
			groups = append(groups, g)
		}
	}
	for _, g := range groups {
		if !g.Status().Leading {
			continue
		}
		m, err := g.Membership(ctx)
		if err != nil {
			continue // it leads no longer
		}
		pb := &peerv1.GroupMembers{Group: uint64(g.ID()), Last: uint64(m.Last)}
		for _, x := range m.Members {
			pb.Members = append(pb.Members, &peerv1.Member{Replica: uint64(x.Replica), Voter: x.Voter, Match: uint64(x.Match), Current: x.Current})
		}
		r.Groups = append(r.Groups, pb)
	}
	return connect.NewResponse(r), nil
}

// copier brings copies from other nodes. It is the broker's Copier, and the
// masters' groups' way to a copy.
type copier struct{ n *Node }

// Copy implements broker.Copier.
func (c copier) Copy(ctx context.Context, node record.NodeID, group record.Group, from record.Offset, sink broker.CopySink) error {
	client, err := c.n.peerClient(node)
	if err != nil {
		return err
	}
	stream, err := client.Copy(ctx, connect.NewRequest(&peerv1.CopyRequest{Group: uint64(group), From: int64(from)}))
	if err != nil {
		return fmt.Errorf("copy from node %d: %w", node, err)
	}
	defer func() { _ = stream.Close() }()
	in := receiving{sink: sink, throttle: c.n.copies, rate: c.n.copyRate(group)}
	for stream.Receive() {
		if err := in.take(ctx, stream.Msg()); err != nil {
			return fmt.Errorf("copy from node %d: %w", node, err)
		}
	}
	if err := stream.Err(); err != nil {
		return fmt.Errorf("copy from node %d: %w", node, err)
	}
	if in.head == nil || !in.begun {
		return fmt.Errorf("copy from node %d ended before its state was whole", node)
	}
	return nil
}

// receiving puts the messages of a copy together.
type receiving struct {
	sink     broker.CopySink
	throttle *throttle
	rate     int64 // bytes per second
	head     *peerv1.CopyHead
	state    []byte
	begun    bool // the sink has its head
}

// maxStateBytes is more than any machine's state has.
const maxStateBytes = 4 << 30

func (r *receiving) take(ctx context.Context, m *peerv1.CopyResponse) error {
	switch {
	case m.GetHead() != nil:
		if r.head != nil || m.GetHead().GetStateBytes() > maxStateBytes {
			return errors.New("a second head, or a state of absurd size")
		}
		r.head = m.GetHead()
	case r.head == nil:
		return errors.New("no head")
	}
	r.state = append(r.state, m.GetState()...)
	if uint64(len(r.state)) > r.head.GetStateBytes() {
		return fmt.Errorf("a state of more than the %d bytes it should have", r.head.GetStateBytes())
	}
	if !r.begun && uint64(len(r.state)) == r.head.GetStateBytes() {
		if got := crc32.Checksum(r.state, record.Castagnoli); got != r.head.GetStateCrc() {
			return fmt.Errorf("the state was damaged on the way: CRC %08x, should be %08x", got, r.head.GetStateCrc())
		}
		r.begun = true
		h := broker.CopyHead{
			Snapshot: replica.Snapshot{Index: record.Index(r.head.GetIndex()), Term: record.Term(r.head.GetTerm()), Members: r.head.GetMembers(), State: r.state},
			Start:    record.Offset(r.head.GetStart()), End: record.Offset(r.head.GetEnd()),
		}
		if err := r.sink.Head(h); err != nil {
			return err
		}
	}
	if b := m.GetBatches(); len(b) > 0 {
		if !r.begun {
			return errors.New("batches before the state is whole")
		}
		if err := r.throttle.wait(ctx, len(b), r.rate); err != nil {
			return err
		}
		return r.sink.Batches(b)
	}
	return nil
}

// whole is the sink for groups whose machine keeps everything in its state.
type whole struct{ snap replica.Snapshot }

// Head implements broker.CopySink.
func (w *whole) Head(h broker.CopyHead) error { w.snap = h.Snapshot; return nil }

// Batches implements broker.CopySink.
func (w *whole) Batches([]byte) error { return errors.New("batches of a group that has none") }

func (c copier) fetchWhole(group record.Group) func(context.Context, record.NodeID) (replica.Snapshot, error) {
	return func(ctx context.Context, from record.NodeID) (replica.Snapshot, error) {
		var w whole
		err := c.Copy(ctx, from, group, 0, &w)
		return w.snap, err
	}
}
