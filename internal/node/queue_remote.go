package node

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	peerv1 "github.com/tube-mq/tube/proto/tube/peer/v1"
	"github.com/tube-mq/tube/proto/tube/peer/v1/peerv1connect"
)

// remoteQueues is another node's part of the queues. It implements courier.Node.
type remoteQueues struct {
	node   record.NodeID
	client peerv1connect.QueuePeerServiceClient
}

// failed says what a call that was not answered means: nothing was done if nobody
// took the connection, else that is not known.
func (r remoteQueues) failed(err error) error {
	kind := queue.ErrOutcomeUnknown
	if isRefused(err) || connect.CodeOf(err) == connect.CodeUnimplemented {
		kind = queue.ErrUnavailable
	}
	return fmt.Errorf("%w: asking node %d: %w", kind, r.node, err)
}

// Send implements courier.Node.
func (r remoteQueues) Send(ctx context.Context, to record.TopicPartition, ms []queue.Outgoing) ([]queue.Sent, error) {
	resp, err := r.client.QueueSend(ctx, connect.NewRequest(&peerv1.QueueSendRequest{To: queuePartitionToPB(to), Messages: outgoingToPB(ms)}))
	if err != nil {
		return nil, r.failed(err)
	}
	return sentFromPB(to.Partition, resp.Msg.GetSent()), failureFromPB(resp.Msg.GetFailure())
}

// Receive implements courier.Node. A lease that was given and not heard of runs out.
func (r remoteQueues) Receive(ctx context.Context, g *meta.QueueGroup, in queue.Receiving, token uint64) ([]queue.Delivery, queue.Holding, error) {
	resp, err := r.client.QueueReceive(ctx, connect.NewRequest(&peerv1.QueueReceiveRequest{
		Group: uint64(g.ID), Topic: g.Topic[:], Member: memberToPB(in.Member), Max: int32(in.Max), MaxBytes: int64(in.MaxBytes),
		WaitMillis: in.Wait.Milliseconds(), Token: token, Held: int32(in.Held),
	}))
	if err != nil {
		return nil, queue.Holding{}, fmt.Errorf("%w: asking node %d: %w", queue.ErrUnavailable, r.node, err)
	}
	h := resp.Msg.GetHolding()
	held := queue.Holding{Leases: int(h.GetLeases()), Alone: h.GetAlone(), Emptied: h.GetEmptied()}
	return deliveriesFromPB("", resp.Msg.GetDeliveries()), held, failureFromPB(resp.Msg.GetFailure())
}

// StopReceiving implements courier.Node.
func (r remoteQueues) StopReceiving(ctx context.Context, token uint64) {
	_, _ = r.client.QueueStop(ctx, connect.NewRequest(&peerv1.QueueStopRequest{Token: token})) // else it waits its time
}

// Settle implements courier.Node.
func (r remoteQueues) Settle(ctx context.Context, g *meta.QueueGroup, of record.TopicPartition, ss []queue.Settlement) ([]error, error) {
	resp, err := r.client.QueueSettle(ctx, connect.NewRequest(&peerv1.QueueSettleRequest{Group: uint64(g.ID), Of: queuePartitionToPB(of), Settlements: settlementsToPB(ss)}))
	if err != nil {
		return nil, r.failed(err)
	}
	if err := failureFromPB(resp.Msg.GetFailure()); err != nil {
		return nil, err
	}
	return resultsFromPB(len(ss), resp.Msg.GetResults()), nil
}

// SessionGone implements courier.Node.
func (r remoteQueues) SessionGone(ctx context.Context, session string) {
	_, _ = r.client.QueueGone(ctx, connect.NewRequest(&peerv1.QueueGoneRequest{Session: session})) // else its leases run out
}

// inquire asks a consumer whose stream ends at that node.
func (r remoteQueues) inquire(ctx context.Context, session string, leases []queue.Lease) []queue.Answer {
	answers := make([]queue.Answer, len(leases))
	req := &peerv1.QueueInquireRequest{Session: session}
	for _, l := range leases {
		req.Leases = append(req.Leases, leaseToPB(l))
	}
	resp, err := r.client.QueueInquire(ctx, connect.NewRequest(req))
	if err != nil {
		return answers // unknown
	}
	for i, a := range resp.Msg.GetAnswers() {
		if i < len(answers) {
			answers[i] = queue.Answer(a)
		}
	}
	return answers
}
