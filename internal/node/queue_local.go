package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// localQueues is this node's part of the queues: the partitions that it leads. It
// implements courier.Node.
type localQueues struct {
	broker *broker.Broker

	mu sync.Mutex
	// waiting are calls to Receive that can be stopped, by token.
	waiting map[uint64]context.CancelFunc
	// early are tokens whose stop came before their call, which was on its way; by when.
	early map[uint64]time.Time
}

// maxEarlyStops bounds early; each is forgotten after a while.
const (
	maxEarlyStops   = 10_000
	earlyStopsCount = 15 * time.Second
)

func newLocalQueues(b *broker.Broker) *localQueues {
	return &localQueues{broker: b, waiting: map[uint64]context.CancelFunc{}, early: map[uint64]time.Time{}}
}

// queueError turns the broker's words into the queue's.
func queueError(err error) error {
	for from, to := range map[error]error{
		broker.ErrNotLeader: queue.ErrUnavailable, broker.ErrStopping: queue.ErrUnavailable, broker.ErrStorage: queue.ErrUnavailable,
		broker.ErrUnknownOutcome: queue.ErrOutcomeUnknown, broker.ErrBusy: queue.ErrOverloaded, broker.ErrDiskFull: queue.ErrOverloaded,
		record.ErrTooLarge: queue.ErrMessageTooLarge,
	} {
		if errors.Is(err, from) && !errors.Is(err, to) {
			return fmt.Errorf("%w: %w", to, err)
		}
	}
	return err
}

func queueErrors(errs []error) []error {
	for i, err := range errs {
		if err != nil {
			errs[i] = queueError(err)
		}
	}
	return errs
}

// allUnavailable reports whether nothing at all was done, as the node leads no longer.
func allUnavailable(errs []error) bool {
	for _, err := range errs {
		if !errors.Is(err, queue.ErrUnavailable) {
			return false
		}
	}
	return len(errs) > 0
}

func (l *localQueues) partition(tp record.TopicPartition) (*broker.Partition, error) {
	p, ok := l.broker.Partition(tp)
	if !ok {
		return nil, fmt.Errorf("%w: this node has no replica of partition %d", queue.ErrUnavailable, tp.Partition)
	}
	return p, nil
}

// Send implements courier.Node.
func (l *localQueues) Send(ctx context.Context, to record.TopicPartition, ms []queue.Outgoing) ([]queue.Sent, error) {
	p, err := l.partition(to)
	if err != nil {
		return nil, err
	}
	sent := p.QueueSend(ctx, ms)
	errs := make([]error, len(sent))
	for i := range sent {
		if sent[i].Err != nil {
			sent[i].Err = queueError(sent[i].Err)
		}
		errs[i] = sent[i].Err
	}
	if allUnavailable(errs) {
		return nil, errs[0]
	}
	return sent, nil
}

// Receive implements courier.Node.
func (l *localQueues) Receive(ctx context.Context, g *meta.QueueGroup, r queue.Receiving, token uint64) ([]queue.Delivery, queue.Holding, error) {
	if r.Max == 0 {
		return nil, l.broker.QueueHolding(g.ID, g.Topic, r.Member.Session), nil
	}
	got, err := l.receive(ctx, g, r, token)
	return got, l.broker.QueueHolding(g.ID, g.Topic, r.Member.Session), err
}

func (l *localQueues) receive(ctx context.Context, g *meta.QueueGroup, r queue.Receiving, token uint64) ([]queue.Delivery, error) {
	if token != 0 && r.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		if !l.begin(token, cancel) {
			r.Wait = 0
		}
		defer l.end(token)
	}
	got, err := l.broker.QueueReceive(ctx, g.ID, g.Topic, r)
	if err != nil && len(got) == 0 && errors.Is(err, context.Canceled) {
		return nil, nil // it was told to stop
	}
	if err != nil {
		err = notBegun(queueError(err))
	}
	return got, err
}

// notBegun says of a group that the image has and the broker has not that it will:
// the broker is told after the image has changed, and after a restart. Of one that was
// deleted the courier hears when it looks for it again.
func notBegun(err error) error {
	if errors.Is(err, queue.ErrUnknownGroup) {
		return fmt.Errorf("%w: this node has not begun with the group yet", queue.ErrUnavailable)
	}
	return err
}

// begin notes a call that waits; false: it has been told to stop already.
func (l *localQueues) begin(token uint64, cancel context.CancelFunc) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.early[token]; ok {
		delete(l.early, token)
		return false
	}
	l.waiting[token] = cancel
	return true
}

func (l *localQueues) end(token uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, token)
}

// StopReceiving implements courier.Node.
func (l *localQueues) StopReceiving(_ context.Context, token uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cancel := l.waiting[token]; cancel != nil {
		cancel()
		return
	}
	now := time.Now()
	if len(l.early) >= maxEarlyStops {
		for t, at := range l.early {
			if now.Sub(at) > earlyStopsCount {
				delete(l.early, t)
			}
		}
	}
	if len(l.early) < maxEarlyStops { // beyond it a call waits its time in vain
		l.early[token] = now
	}
}

// Settle implements courier.Node.
func (l *localQueues) Settle(ctx context.Context, g *meta.QueueGroup, of record.TopicPartition, ss []queue.Settlement) ([]error, error) {
	p, err := l.partition(of)
	if err != nil {
		return nil, err
	}
	errs := queueErrors(p.QueueSettle(ctx, g.ID, ss))
	for i := range errs {
		errs[i] = notBegun(errs[i])
	}
	if allUnavailable(errs) {
		return nil, errs[0]
	}
	return errs, nil
}

// SessionGone implements courier.Node.
func (l *localQueues) SessionGone(_ context.Context, session string) {
	l.broker.QueueSessionGone(session)
}
