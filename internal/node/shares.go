package node

import (
	"context"
	"fmt"
	"sync"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/kafka"
	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	peerv1 "github.com/tube-mq/tube/proto/tube/peer/v1"
	"github.com/tube-mq/tube/proto/tube/peer/v1/peerv1connect"
)

// shareQueues implements kafka.ShareQueues.
type shareQueues struct{ n *Node }

// begunQueues are queue groups that are known to have begun in all partitions.
type begunQueues struct {
	mu sync.Mutex
	of map[queue.GroupID]bool
}

// maxBegun bounds begunQueues: beyond it they are asked for anew.
const maxBegun = 2 * meta.MaxQueueGroups

func (b *begunQueues) has(id queue.GroupID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[id]
}

func (b *begunQueues) add(id queue.GroupID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil || len(b.of) >= maxBegun {
		b.of = map[queue.GroupID]bool{}
	}
	b.of[id] = true
}

// Queue implements kafka.ShareQueues.
func (s shareQueues) Queue(ctx context.Context, share string, topic record.TopicID) (*meta.QueueGroup, error) {
	if g := s.n.meta.Image().ShareQueue(share, topic); g != nil {
		return g, nil
	}
	return s.n.master.ShareQueue(ctx, share, topic)
}

// Begun implements kafka.ShareQueues.
func (s shareQueues) Begun(ctx context.Context, g *meta.QueueGroup) error {
	if s.n.begunQueues.has(g.ID) {
		return nil
	}
	q := s.n.queues.Load()
	if q == nil {
		return fmt.Errorf("%w: %w", queue.ErrUnavailable, errStarting)
	}
	if err := q.begun(ctx, g); err != nil {
		return fmt.Errorf("%w: queue group %s has not begun in all partitions yet: %w", queue.ErrUnavailable, g.Name, err)
	}
	s.n.begunQueues.add(g.ID)
	return nil
}

// Waiter implements kafka.ShareQueues.
func (s shareQueues) Waiter(of []broker.QueueOf) *broker.QueueWaiter {
	return s.n.broker.QueueWaiter(of)
}

// SessionGone implements kafka.ShareQueues.
func (s shareQueues) SessionGone(session string) { s.n.broker.QueueSessionGone(session) }

// shareAdmin implements kafka.ShareAdmin.
type shareAdmin struct{ n *Node }

func (s shareAdmin) views() (queueViews, error) {
	q := s.n.queues.Load()
	if q == nil {
		return queueViews{}, fmt.Errorf("%w: %w", queue.ErrUnavailable, errStarting)
	}
	return queueViews{q}, nil
}

// Progress implements kafka.ShareAdmin.
func (s shareAdmin) Progress(ctx context.Context, g *meta.QueueGroup) ([]kafka.ShareProgress, error) {
	v, err := s.views()
	if err != nil {
		return nil, err
	}
	t := s.n.meta.Image().Topics[g.Topic]
	if t == nil {
		return nil, fmt.Errorf("%w: its topic was deleted", queue.ErrUnknownGroup)
	}
	all, _ := v.progress(ctx, g, t)
	out := make([]kafka.ShareProgress, len(t.Partitions))
	for i, p := range all {
		if p.GetKnown() && i < len(out) {
			out[i] = kafka.ShareProgress{Known: true, Floor: record.Offset(p.GetFloor()), Backlog: p.GetBacklog()}
		}
	}
	return out, nil
}

// Seek implements kafka.ShareAdmin.
func (s shareAdmin) Seek(ctx context.Context, g *meta.QueueGroup, to queue.Place) error {
	v, err := s.views()
	if err != nil {
		return err
	}
	tp := record.TopicPartition{Topic: g.Topic, Partition: to.Partition}
	// Only where it has begun can it go on elsewhere.
	_, err = askLeader(ctx, v, tp, &peerv1.QueueBeginRequest{Group: uint64(g.ID), Of: queuePartitionToPB(tp)},
		func(c peerv1connect.QueuePeerServiceClient) func(context.Context, *connect.Request[peerv1.QueueBeginRequest]) (*connect.Response[peerv1.QueueBeginResponse], error) {
			return c.QueueBegin
		})
	if err != nil {
		return err
	}
	_, err = v.change(ctx, tp, &peerv1.QueueChangeRequest{Group: uint64(g.ID), Change: &peerv1.QueueChangeRequest_Seek{Seek: &peerv1.QueueSeek{Offset: int64(to.Offset)}}})
	return err
}

// Delete implements kafka.ShareAdmin.
func (s shareAdmin) Delete(ctx context.Context, g *meta.QueueGroup) error {
	return s.n.master.DeleteQueueGroup(ctx, g.Name)
}

// AlterConfig implements kafka.ShareAdmin.
func (s shareAdmin) AlterConfig(ctx context.Context, share string, c master.ConfigChange) error {
	return s.n.master.AlterGroupConfig(ctx, share, c)
}
