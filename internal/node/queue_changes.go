package node

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/rpc"
	peerv1 "github.com/tube-mq/tube/proto/tube/peer/v1"
	"github.com/tube-mq/tube/proto/tube/peer/v1/peerv1connect"
)

// change has a partition's leader change something.
func (q queueViews) change(ctx context.Context, tp record.TopicPartition, req *peerv1.QueueChangeRequest) (*peerv1.QueueChangeResponse, error) {
	req.Of = queuePartitionToPB(tp)
	return askLeader(ctx, q, tp, req, func(c peerv1connect.QueuePeerServiceClient) func(context.Context, *connect.Request[peerv1.QueueChangeRequest]) (*connect.Response[peerv1.QueueChangeResponse], error) {
		return c.QueueChange
	})
}

// Seek implements rpc.QueueChanges.
func (q queueViews) Seek(ctx context.Context, group string, to rpc.QueueSeek) ([]queue.Place, error) {
	g, t, err := q.courier.Group(group)
	if err != nil {
		return nil, err
	}
	var out []queue.Place
	for i := range t.Partitions {
		seek := &peerv1.QueueSeek{AtMillis: to.AtMillis}
		if to.Place != nil {
			if int(to.Place.Partition) != i {
				continue
			}
			seek = &peerv1.QueueSeek{Offset: int64(to.Place.Offset)}
		}
		tp := record.TopicPartition{Topic: t.ID, Partition: record.Partition(i)}
		r, err := q.change(ctx, tp, &peerv1.QueueChangeRequest{Group: uint64(g.ID), Change: &peerv1.QueueChangeRequest_Seek{Seek: seek}})
		if err != nil {
			return out, fmt.Errorf("partition %d (those before it go on elsewhere already): %w", i, err)
		}
		out = append(out, queue.Place{Partition: tp.Partition, Offset: record.Offset(r.GetOffset())})
	}
	if to.Place != nil && len(out) == 0 {
		return nil, fmt.Errorf("%w: topic %s has no partition %d", queue.ErrInvalidSetting, t.Name, to.Place.Partition)
	}
	return out, nil
}

// Purge implements rpc.QueueChanges.
func (q queueViews) Purge(ctx context.Context, group string) (purged int64, err error) {
	g, t, err := q.courier.Group(group)
	if err != nil {
		return 0, err
	}
	for i := range t.Partitions {
		tp := record.TopicPartition{Topic: t.ID, Partition: record.Partition(i)}
		r, err := q.change(ctx, tp, &peerv1.QueueChangeRequest{Group: uint64(g.ID), Change: &peerv1.QueueChangeRequest_Purge{Purge: &peerv1.QueuePurge{}}})
		if err != nil {
			return purged, fmt.Errorf("partition %d (those before it are purged): %w", i, err)
		}
		purged += r.GetCount()
	}
	return purged, nil
}

// CancelDelayed implements rpc.QueueChanges.
func (q queueViews) CancelDelayed(ctx context.Context, topic string, m []queue.Ref) ([]queue.Place, []error, error) {
	return q.RescheduleDelayed(ctx, topic, m, 0)
}

// RescheduleDelayed implements rpc.QueueChanges; at 0 is a cancellation.
func (q queueViews) RescheduleDelayed(ctx context.Context, topic string, refs []queue.Ref, atMillis int64) ([]queue.Place, []error, error) {
	t, err := q.topic(topic)
	if err != nil {
		return nil, nil, err
	}
	places, errs := q.changeEach(ctx, t, refs, func(offsets []int64) *peerv1.QueueChangeRequest {
		return &peerv1.QueueChangeRequest{Change: &peerv1.QueueChangeRequest_Reschedule{Reschedule: &peerv1.QueueReschedule{Offsets: offsets, AtMillis: atMillis}}}
	})
	return places, errs, nil
}

// Retry implements rpc.QueueChanges.
func (q queueViews) Retry(ctx context.Context, group string, refs []queue.Ref, skip bool) ([]queue.Place, []error, error) {
	g, t, err := q.courier.Group(group)
	if err != nil {
		return nil, nil, err
	}
	places, errs := q.changeEach(ctx, t, refs, func(offsets []int64) *peerv1.QueueChangeRequest {
		return &peerv1.QueueChangeRequest{Group: uint64(g.ID), Change: &peerv1.QueueChangeRequest_Retry{Retry: &peerv1.QueueRetry{Offsets: offsets, Skip: skip}}}
	})
	return places, errs, nil
}

// changeEach finds messages and has the leaders of their partitions change something
// about them. It answers each with its place and an error.
func (q queueViews) changeEach(ctx context.Context, t *meta.Topic, refs []queue.Ref, change func(offsets []int64) *peerv1.QueueChangeRequest) ([]queue.Place, []error) {
	places, errs := make([]queue.Place, len(refs)), make([]error, len(refs))
	by := map[record.Partition][]int{}
	for i, m := range refs {
		if places[i] = m.Place; m.ID != "" {
			tr, err := q.TraceMessage(ctx, t.Name, m)
			if err != nil {
				errs[i] = err
				continue
			}
			places[i] = queue.Place{Partition: record.Partition(tr.GetPartition()), Offset: record.Offset(tr.GetOffset())}
		}
		if p := places[i].Partition; p < 0 || int(p) >= len(t.Partitions) {
			errs[i] = fmt.Errorf("%w: topic %s has partitions 0 to %d", queue.ErrUnknownMessage, t.Name, len(t.Partitions)-1)
			continue
		}
		by[places[i].Partition] = append(by[places[i].Partition], i)
	}
	for p, which := range by {
		var offsets []int64
		for _, i := range which {
			offsets = append(offsets, int64(places[i].Offset))
		}
		r, err := q.change(ctx, record.TopicPartition{Topic: t.ID, Partition: p}, change(offsets))
		for k, i := range which {
			switch {
			case err != nil:
				errs[i] = err
			case k < len(r.GetResults()):
				errs[i] = failureFromPB(r.GetResults()[k])
			default:
				errs[i] = queue.ErrOutcomeUnknown
			}
		}
	}
	return places, errs
}
