package node

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	peerv1 "github.com/tube-mq/tube/proto/tube/peer/v1"
	"github.com/tube-mq/tube/proto/tube/peer/v1/peerv1connect"
)

// Acknowledge and send as one step. The acknowledgement is committed in the partition
// of the first lease, in one entry with the intent: what is to be sent, and which
// leases of other partitions are to be acknowledged. From then on all of it will be
// done. Whoever was called does it at once and has the intent forgotten. If he does
// not come to that, the partition's leader does, after ten seconds or more. Doing it
// twice does no harm: what is sent is stored once, by an id of the intent's, and
// acknowledging twice is one.

// Complete implements rpc.Queues.
func (q queueCalls) Complete(ctx context.Context, group string, leases []queue.Lease, send []queue.TopicMessages) (queue.Completed, error) {
	g, _, err := q.courier.Group(group)
	if err != nil {
		return queue.Completed{}, err
	}
	id := uuid.NewString()
	home := record.TopicPartition{Topic: g.Topic, Partition: leases[0].Partition}
	var own, others []queue.Lease
	var at []int // own, by their place in leases
	for i, l := range leases {
		if l.Partition == home.Partition {
			own, at = append(own, l), append(at, i)
		} else {
			others = append(others, l)
		}
	}
	intent, err := q.plan(g, id, others, send)
	if err != nil {
		return queue.Completed{}, err
	}
	errs := make([]error, len(leases))
	if refused, err := q.hold(ctx, group, leases, others, errs); refused || err != nil {
		return queue.Completed{Leases: errs}, err
	}
	value, err := proto.Marshal(intent)
	if err != nil {
		return queue.Completed{}, err
	}
	r, err := q.complete(ctx, home, &peerv1.QueueCompleteRequest{Group: uint64(g.ID), Leases: leasesToPB(own), Id: id, Intent: value})
	if err != nil {
		return queue.Completed{}, err
	}
	refused := false
	for k, err := range resultsFromPB(len(own), r.GetResults()) {
		errs[at[k]] = err
		refused = refused || err != nil
	}
	if refused {
		return queue.Completed{Leases: errs}, nil
	}
	sent, err := q.carryOut(ctx, intent)
	if err != nil {
		return queue.Completed{}, fmt.Errorf("%w: it is written down and will be done: %w", queue.ErrOutcomeUnknown, err)
	}
	if _, err := q.complete(ctx, home, &peerv1.QueueCompleteRequest{Group: uint64(g.ID), Id: id}); err != nil {
		q.n.logger.Debug("an intent that was carried out is carried out once more", "err", err)
	}
	return queue.Completed{Leases: errs, Sent: byTopic(send, sent)}, nil
}

// hold makes sure that leases of other partitions are held, and for long enough that
// nobody else gets them meanwhile.
func (q queueCalls) hold(ctx context.Context, group string, leases, others []queue.Lease, errs []error) (refused bool, err error) {
	if len(others) == 0 {
		return false, nil
	}
	hold := make([]queue.Settlement, len(others))
	for i, l := range others {
		hold[i] = queue.Settlement{Lease: l, Verdict: queue.Extend}
	}
	held, err := q.courier.Settle(ctx, group, hold)
	if err != nil {
		return false, err
	}
	k := 0
	for i, l := range leases {
		if l.Partition != leases[0].Partition {
			errs[i] = held[k]
			refused = refused || held[k] != nil
			k++
		}
	}
	return refused, nil
}

// complete asks the home partition's leader.
func (q queueCalls) complete(ctx context.Context, home record.TopicPartition, req *peerv1.QueueCompleteRequest) (*peerv1.QueueCompleteResponse, error) {
	req.Of = queuePartitionToPB(home)
	return askLeader(ctx, queueViews(q), home, req,
		func(c peerv1connect.QueuePeerServiceClient) func(context.Context, *connect.Request[peerv1.QueueCompleteRequest]) (*connect.Response[peerv1.QueueCompleteResponse], error) {
			return c.QueueComplete
		})
}

// QueueComplete implements peerv1connect.QueuePeerServiceHandler.
func (s queueService) QueueComplete(ctx context.Context, req *connect.Request[peerv1.QueueCompleteRequest]) (*connect.Response[peerv1.QueueCompleteResponse], error) {
	r := &peerv1.QueueCompleteResponse{}
	p, err := s.local.partition(queuePartitionFromPB(req.Msg.GetOf()))
	switch {
	case err != nil:
	case len(req.Msg.GetIntent()) == 0:
		err = p.QueueIntended(ctx, req.Msg.GetId())
	default:
		leases := make([]queue.Lease, len(req.Msg.GetLeases()))
		for i, l := range req.Msg.GetLeases() {
			leases[i] = leaseFromPB(l)
		}
		var errs []error
		errs, err = p.QueueComplete(ctx, queue.GroupID(req.Msg.GetGroup()), leases, req.Msg.GetId(), req.Msg.GetIntent())
		r.Results = resultsToPB(queueErrors(errs))
	}
	if err != nil {
		r.Failure = failureToPB(queueError(err))
	}
	return connect.NewResponse(r), nil
}

func leasesToPB(ls []queue.Lease) []*peerv1.QueueLease {
	out := make([]*peerv1.QueueLease, len(ls))
	for i, l := range ls {
		out[i] = leaseToPB(l)
	}
	return out
}

// plan decides where each message goes, so that it goes there however often it is sent.
func (q queueCalls) plan(g *meta.QueueGroup, id string, others []queue.Lease, send []queue.TopicMessages) (*peerv1.QueueIntent, error) {
	intent := &peerv1.QueueIntent{Group: g.Name, GroupId: uint64(g.ID), Leases: leasesToPB(others)}
	for k := range send {
		t := q.n.meta.Image().Topic(send[k].Topic)
		if t == nil {
			return nil, fmt.Errorf("%w: %q", meta.ErrUnknownTopic, send[k].Topic)
		}
		for i := range send[k].Messages {
			m := send[k].Messages[i]
			m.OnceID = fmt.Sprintf("complete-%s-%d-%d", id, k, i)
			if m.Delay > 0 { // the delay is from now, whenever it is carried out
				m.DeliverAtMillis, m.Delay = time.Now().Add(m.Delay).UnixMilli(), 0
			}
			// What is written down is sent: what never can be is refused now.
			switch size, err := broker.QueueMessageBytes(&m); {
			case err != nil:
				return nil, fmt.Errorf("message %d for topic %s: %w", i, t.Name, err)
			case size > t.Config.MaxMessageBytes:
				return nil, fmt.Errorf("%w: message %d for topic %s takes %d bytes, its max.message.bytes is %d", queue.ErrMessageTooLarge, i, t.Name, size, t.Config.MaxMessageBytes)
			}
			to := record.TopicPartition{Topic: t.ID, Partition: q.courier.Place(t, &m)}
			intent.Sends = append(intent.Sends, &peerv1.QueueSendRequest{To: queuePartitionToPB(to), Messages: outgoingToPB([]queue.Outgoing{m})})
		}
	}
	return intent, nil
}

// carryOut does what an intent says, as often as it is called. The answer has one for
// each message, in order.
func (q queueCalls) carryOut(ctx context.Context, in *peerv1.QueueIntent) ([]queue.Sent, error) {
	var sent []queue.Sent
	for _, s := range in.GetSends() {
		to := queuePartitionFromPB(s.GetTo())
		if q.n.meta.Image().Topics[to.Topic] == nil {
			sent = append(sent, queue.Sent{Partition: to.Partition, Offset: -1, Err: meta.ErrUnknownTopic})
			continue // deleted since, with all that was in it
		}
		got, err := q.courier.SendTo(ctx, to, outgoingFromPB(s.GetMessages()))
		if err == nil {
			err = got[0].Err
		}
		if err != nil {
			return nil, err
		}
		sent = append(sent, got[0])
	}
	g := q.n.meta.Image().QueueGroup(in.GetGroup())
	if g == nil || g.ID != queue.GroupID(in.GetGroupId()) {
		return sent, nil // deleted since
	}
	by := map[record.Partition][]record.Offset{}
	for _, l := range in.GetLeases() {
		by[record.Partition(l.GetPartition())] = append(by[record.Partition(l.GetPartition())], record.Offset(l.GetOffset()))
	}
	for p, offsets := range by {
		if err := q.finish(ctx, g, p, offsets); err != nil {
			return nil, err
		}
	}
	return sent, nil
}

// finish makes messages done, whoever has them in hand.
func (q queueCalls) finish(ctx context.Context, g *meta.QueueGroup, p record.Partition, offsets []record.Offset) error {
	if g == nil {
		return nil
	}
	req := &peerv1.QueueFinishRequest{Group: uint64(g.ID), Of: queuePartitionToPB(record.TopicPartition{Topic: g.Topic, Partition: p})}
	for _, o := range offsets {
		req.Offsets = append(req.Offsets, int64(o))
	}
	_, err := askLeader(ctx, queueViews(q), record.TopicPartition{Topic: g.Topic, Partition: p}, req,
		func(c peerv1connect.QueuePeerServiceClient) func(context.Context, *connect.Request[peerv1.QueueFinishRequest]) (*connect.Response[peerv1.QueueFinishResponse], error) {
			return c.QueueFinish
		})
	return err
}

// QueueFinish implements peerv1connect.QueuePeerServiceHandler.
func (s queueService) QueueFinish(ctx context.Context, req *connect.Request[peerv1.QueueFinishRequest]) (*connect.Response[peerv1.QueueFinishResponse], error) {
	p, err := s.local.partition(queuePartitionFromPB(req.Msg.GetOf()))
	if err == nil {
		offsets := make([]record.Offset, len(req.Msg.GetOffsets()))
		for i, o := range req.Msg.GetOffsets() {
			offsets[i] = record.Offset(o)
		}
		if err = p.QueueFinish(ctx, queue.GroupID(req.Msg.GetGroup()), offsets); err != nil {
			err = queueError(err)
		}
	}
	return connect.NewResponse(&peerv1.QueueFinishResponse{Failure: failureToPB(err)}), nil
}

// byTopic puts answers back as the messages were given.
func byTopic(send []queue.TopicMessages, sent []queue.Sent) [][]queue.Sent {
	out := make([][]queue.Sent, len(send))
	for k := range send {
		n := len(send[k].Messages)
		out[k], sent = sent[:n:n], sent[n:]
	}
	return out
}

// completeLeft carries out what an intent of a partition that is led here says, and
// has it forgotten.
func (n *Node) completeLeft(ctx context.Context, of record.TopicPartition, id string, data []byte) {
	q := n.queues.Load()
	if q == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	var intent peerv1.QueueIntent
	err := proto.Unmarshal(data, &intent)
	if err == nil {
		_, err = queueCalls{q}.carryOut(ctx, &intent)
	}
	if p, ok := n.broker.Partition(of); ok && err == nil {
		err = p.QueueIntended(ctx, id)
	}
	if err != nil {
		n.logger.Warn("what was completed is not all sent yet; it is tried again", "partition", of.String(), "group", intent.GetGroup(), "err", err)
	}
}

const completeTimeout = 30 * time.Second
