package node

import (
	"context"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	peerv1 "github.com/tube-mq/tube/proto/tube/peer/v1"
	"github.com/tube-mq/tube/proto/tube/peer/v1/peerv1connect"
)

// queueService answers other nodes' couriers with what this node leads.
type queueService struct {
	self     record.NodeID
	image    func() *meta.Image
	local    *localQueues
	sessions *sessions
}

// group finds a group by the id that another node knows it by. This node may not have
// heard of it yet, or not yet that it was deleted.
func (s queueService) group(id uint64, topic []byte) *meta.QueueGroup {
	var t record.TopicID
	copy(t[:], topic)
	for _, g := range s.image().QueueGroupsOf(t) {
		if g.ID == queue.GroupID(id) {
			return g
		}
	}
	return nil
}

// QueueSend implements peerv1connect.QueuePeerServiceHandler.
func (s queueService) QueueSend(ctx context.Context, req *connect.Request[peerv1.QueueSendRequest]) (*connect.Response[peerv1.QueueSendResponse], error) {
	sent, err := s.local.Send(ctx, queuePartitionFromPB(req.Msg.GetTo()), outgoingFromPB(req.Msg.GetMessages()))
	return connect.NewResponse(&peerv1.QueueSendResponse{Failure: failureToPB(err), Sent: sentToPB(sent)}), nil
}

// QueueReceive implements peerv1connect.QueuePeerServiceHandler.
func (s queueService) QueueReceive(ctx context.Context, req *connect.Request[peerv1.QueueReceiveRequest]) (*connect.Response[peerv1.QueueReceiveResponse], error) {
	m := req.Msg
	g := s.group(m.GetGroup(), m.GetTopic())
	if g == nil {
		return connect.NewResponse(&peerv1.QueueReceiveResponse{Failure: failureToPB(queue.ErrUnavailable)}), nil
	}
	got, held, err := s.local.Receive(ctx, g, queue.Receiving{
		Group: g.Name, Member: memberFromPB(m.GetMember()), Max: int(m.GetMax()), MaxBytes: int(m.GetMaxBytes()),
		Wait: time.Duration(m.GetWaitMillis()) * time.Millisecond, Held: int(m.GetHeld()),
	}, m.GetToken())
	return connect.NewResponse(&peerv1.QueueReceiveResponse{Failure: failureToPB(err), Deliveries: deliveriesToPB(got),
		Holding: &peerv1.QueueHolding{Leases: int32(held.Leases), Alone: held.Alone, Emptied: held.Emptied}}), nil
}

// QueueStop implements peerv1connect.QueuePeerServiceHandler.
func (s queueService) QueueStop(ctx context.Context, req *connect.Request[peerv1.QueueStopRequest]) (*connect.Response[peerv1.QueueStopResponse], error) {
	s.local.StopReceiving(ctx, req.Msg.GetToken())
	return connect.NewResponse(&peerv1.QueueStopResponse{}), nil
}

// QueueSettle implements peerv1connect.QueuePeerServiceHandler.
func (s queueService) QueueSettle(ctx context.Context, req *connect.Request[peerv1.QueueSettleRequest]) (*connect.Response[peerv1.QueueSettleResponse], error) {
	of := queuePartitionFromPB(req.Msg.GetOf())
	g := s.group(req.Msg.GetGroup(), of.Topic[:])
	if g == nil {
		return connect.NewResponse(&peerv1.QueueSettleResponse{Failure: failureToPB(queue.ErrUnavailable)}), nil
	}
	errs, err := s.local.Settle(ctx, g, of, settlementsFromPB(req.Msg.GetSettlements()))
	return connect.NewResponse(&peerv1.QueueSettleResponse{Failure: failureToPB(err), Results: resultsToPB(errs)}), nil
}

// QueueInquire implements peerv1connect.QueuePeerServiceHandler.
func (s queueService) QueueInquire(ctx context.Context, req *connect.Request[peerv1.QueueInquireRequest]) (*connect.Response[peerv1.QueueInquireResponse], error) {
	leases := make([]queue.Lease, len(req.Msg.GetLeases()))
	for i, l := range req.Msg.GetLeases() {
		leases[i] = leaseFromPB(l)
	}
	r := &peerv1.QueueInquireResponse{}
	for _, a := range s.sessions.inquire(ctx, req.Msg.GetSession(), leases) {
		r.Answers = append(r.Answers, uint32(a))
	}
	return connect.NewResponse(r), nil
}

// QueueGone implements peerv1connect.QueuePeerServiceHandler.
func (s queueService) QueueGone(ctx context.Context, req *connect.Request[peerv1.QueueGoneRequest]) (*connect.Response[peerv1.QueueGoneResponse], error) {
	s.local.SessionGone(ctx, req.Msg.GetSession())
	return connect.NewResponse(&peerv1.QueueGoneResponse{}), nil
}

// sessions are the consumers' streams that end at this node's door.
type sessions struct {
	mu sync.Mutex
	by map[string]func(context.Context, []queue.Lease) []queue.Answer
}

func newSessions() *sessions {
	return &sessions{by: map[string]func(context.Context, []queue.Lease) []queue.Answer{}}
}

func (s *sessions) open(session string, ask func(context.Context, []queue.Lease) []queue.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by[session] = ask
}

func (s *sessions) close(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.by, session)
}

// inquire asks a consumer; of one that is not here everything is unknown.
func (s *sessions) inquire(ctx context.Context, session string, leases []queue.Lease) []queue.Answer {
	s.mu.Lock()
	ask := s.by[session]
	s.mu.Unlock()
	if ask == nil {
		return make([]queue.Answer, len(leases))
	}
	return ask(ctx, leases)
}

// queuesForPeers serves other nodes; until this node has its queues it leads nothing.
func (n *Node) queuesForPeers() (string, http.Handler) {
	var path string
	path, _ = peerv1connect.NewQueuePeerServiceHandler(queueService{})
	return path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := n.queues.Load()
		if q == nil {
			http.Error(w, errStarting.Error(), http.StatusServiceUnavailable)
			return
		}
		q.handler.ServeHTTP(w, r)
	})
}
