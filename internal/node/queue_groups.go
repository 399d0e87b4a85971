package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	peerv1 "github.com/tube-mq/tube/proto/tube/peer/v1"
	"github.com/tube-mq/tube/proto/tube/peer/v1/peerv1connect"
)

// queueGroups implements rpc.QueueGroups: the master decides, and a new group is
// answered once it has begun in the partitions, so that what is sent after that is
// its own.
type queueGroups struct {
	*master.Master
	q *queues
}

// CreateQueueGroup implements rpc.QueueGroups.
func (g queueGroups) CreateQueueGroup(ctx context.Context, name, topic string, s queue.Settings) (*meta.QueueGroup, error) {
	made, err := g.Master.CreateQueueGroup(ctx, name, topic, s)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	if err := g.q.begun(ctx, made); err != nil {
		return nil, fmt.Errorf("%w: the group was made, but it has not begun in all partitions yet: %v", queue.ErrUnavailable, err)
	}
	return made, nil
}

// beginTimeout is how long partitions are waited for.
const beginTimeout = 10 * time.Second

// begun returns once the leaders of all partitions have begun with the group.
func (q *queues) begun(ctx context.Context, g *meta.QueueGroup) error {
	t := q.n.meta.Image().Topics[g.Topic]
	if t == nil {
		return fmt.Errorf("%w: its topic was deleted", queue.ErrUnknownGroup)
	}
	errs := make([]error, len(t.Partitions))
	var wg sync.WaitGroup
	for i := range t.Partitions {
		wg.Go(func() {
			errs[i] = q.begunIn(ctx, g, record.TopicPartition{Topic: t.ID, Partition: record.Partition(i)})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (q *queues) begunIn(ctx context.Context, g *meta.QueueGroup, tp record.TopicPartition) error {
	_, err := askLeader(ctx, queueViews{q}, tp, &peerv1.QueueBeginRequest{Group: uint64(g.ID), Of: queuePartitionToPB(tp)},
		func(c peerv1connect.QueuePeerServiceClient) func(context.Context, *connect.Request[peerv1.QueueBeginRequest]) (*connect.Response[peerv1.QueueBeginResponse], error) {
			return c.QueueBegin
		})
	return err
}

// QueueBegin implements peerv1connect.QueuePeerServiceHandler.
func (s queueService) QueueBegin(ctx context.Context, req *connect.Request[peerv1.QueueBeginRequest]) (*connect.Response[peerv1.QueueBeginResponse], error) {
	err := func() error {
		of := queuePartitionFromPB(req.Msg.GetOf())
		p, err := s.local.partition(of)
		if err != nil {
			return err
		}
		if s.group(req.Msg.GetGroup(), of.Topic[:]) == nil {
			return queue.ErrUnavailable // this node has not heard of it yet
		}
		if err := p.QueueReady(ctx, queue.GroupID(req.Msg.GetGroup())); err != nil {
			return fmt.Errorf("%w: %w", queue.ErrUnavailable, notBegun(err))
		}
		return nil
	}()
	return connect.NewResponse(&peerv1.QueueBeginResponse{Failure: failureToPB(err)}), nil
}
