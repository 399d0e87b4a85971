// Package courier takes queue calls, which any node takes, to the nodes that lead the
// partitions concerned, and brings back one answer.
//
// It keeps no state that matters: who leads is looked up for each call, and who was
// asked in vain, as it led no longer, is asked again or another is. What was
// certainly not done is tried again until the call's time is up; what may have been
// done is told so.
package courier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// Node answers for the partitions that one node leads. Errors: queue.ErrUnavailable
// means that nothing was done, as the node does not lead (any more) or cannot be
// reached.
type Node interface {
	// Send stores messages in one partition. One answer for each; none if there is an error.
	Send(ctx context.Context, to record.TopicPartition, messages []queue.Outgoing) ([]queue.Sent, error)
	// Receive takes messages from all partitions of the group's topic that the node
	// leads, and tells what the member's session holds from there then. The call that is
	// told to stop, by StopReceiving with its token, returns what it has.
	Receive(ctx context.Context, group *meta.QueueGroup, r queue.Receiving, token uint64) ([]queue.Delivery, queue.Holding, error)
	StopReceiving(ctx context.Context, token uint64)
	// Settle says what becomes of leases of one partition: an error or nil for each.
	Settle(ctx context.Context, group *meta.QueueGroup, of record.TopicPartition, s []queue.Settlement) ([]error, error)
	// SessionGone says that nobody holds the session's leases any more.
	SessionGone(ctx context.Context, session string)
}

// Config of a courier. All of it must be set.
type Config struct {
	Self  record.NodeID
	Image func() *meta.Image
	// Leader says which node leads a partition; −1: it is not known.
	Leader func(record.TopicPartition) record.NodeID
	// Node reaches a node, this one included. Error: it cannot be reached.
	Node func(record.NodeID) (Node, error)
	// Nodes lists the nodes that may lead something, this one included.
	Nodes func() []record.NodeID
}

// Courier is safe for use by many goroutines.
type Courier struct {
	cfg   Config
	turn  atomic.Uint64 // spreads what may go anywhere
	token atomic.Uint64
	hands *hands
}

// New makes a courier.
func New(cfg Config) *Courier {
	c := &Courier{cfg: cfg, hands: newHands()}
	// Tokens of different nodes, and of the same one before it restarted, differ.
	c.token.Store(uint64(cfg.Self)<<48 ^ uint64(time.Now().UnixNano())<<8>>8)
	return c
}

const (
	// tryFor is how long a call looks for a leader: a failover takes one to three
	// seconds.
	tryFor   = 10 * time.Second
	tryAgain = 50 * time.Millisecond
	// round is how long a node is waited for before leaders are looked up again.
	round = 5 * time.Second
)

// Group finds a queue group and its topic.
func (c *Courier) Group(name string) (*meta.QueueGroup, *meta.Topic, error) {
	im := c.cfg.Image()
	g := im.QueueGroup(name)
	if g == nil {
		return nil, nil, fmt.Errorf("%w: %q", queue.ErrUnknownGroup, name)
	}
	t := im.Topics[g.Topic]
	if t == nil {
		return nil, nil, fmt.Errorf("%w: the topic of group %q was deleted", queue.ErrUnknownGroup, name)
	}
	return g, t, nil
}

// Led is the partitions of a topic by who leads them, and those that nobody does.
func (c *Courier) Led(t *meta.Topic) (by map[record.NodeID][]record.Partition, nobody []record.Partition) {
	by = map[record.NodeID][]record.Partition{}
	for i := range t.Partitions {
		p := record.Partition(i)
		if node := c.cfg.Leader(record.TopicPartition{Topic: t.ID, Partition: p}); node >= 0 {
			by[node] = append(by[node], p)
		} else {
			nobody = append(nobody, p)
		}
	}
	return by, nobody
}

// Lead calls do with the partition's leader, and again with whoever leads then, while
// do answers queue.ErrUnavailable.
func (c *Courier) Lead(ctx context.Context, p record.TopicPartition, do func(context.Context, record.NodeID) error) error {
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	for {
		err := fmt.Errorf("%w: partition %d has no leader", queue.ErrUnavailable, p.Partition)
		if node := c.cfg.Leader(p); node >= 0 {
			err = do(ctx, node)
		}
		if !errors.Is(err, queue.ErrUnavailable) || !pause(ctx, tryAgain) {
			return err
		}
	}
}

func (c *Courier) ask(ctx context.Context, p record.TopicPartition, do func(context.Context, Node) error) error {
	return c.Lead(ctx, p, func(ctx context.Context, id record.NodeID) error {
		n, err := c.cfg.Node(id)
		if err != nil {
			return fmt.Errorf("%w: node %d, which leads partition %d, cannot be reached: %w", queue.ErrUnavailable, id, p.Partition, err)
		}
		return do(ctx, n)
	})
}

// pause reports whether there is time left after waiting.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// each runs f for every partition that has something to be done, at the same time.
func each[V any](parts map[record.Partition]V, f func(record.Partition, V)) {
	if len(parts) == 1 {
		for p, v := range parts {
			f(p, v)
		}
		return
	}
	var wg sync.WaitGroup
	for p, v := range parts {
		wg.Go(func() { f(p, v) })
	}
	wg.Wait()
}

// Settle says what becomes of leases: an error or nil for each.
func (c *Courier) Settle(ctx context.Context, group string, s []queue.Settlement) ([]error, error) {
	g, t, err := c.Group(group)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(s))
	parts := map[record.Partition][]int{}
	for i := range s {
		p := s[i].Lease.Partition
		if p < 0 || int(p) >= len(t.Partitions) {
			errs[i] = fmt.Errorf("%w: topic %s has no partition %d", queue.ErrLeaseUnknown, t.Name, p)
			continue
		}
		parts[p] = append(parts[p], i)
	}
	each(parts, func(p record.Partition, which []int) {
		part := s
		if len(which) < len(s) {
			part = make([]queue.Settlement, len(which))
			for i, at := range which {
				part[i] = s[at]
			}
		}
		tp := record.TopicPartition{Topic: t.ID, Partition: p}
		var got []error
		err := c.ask(ctx, tp, func(ctx context.Context, n Node) (err error) {
			got, err = n.Settle(ctx, g, tp, part)
			return err
		})
		for i, at := range which {
			switch {
			case err != nil:
				errs[at] = err
			case i < len(got):
				errs[at] = got[i]
			default:
				errs[at] = queue.ErrOutcomeUnknown
			}
		}
	})
	return errs, nil
}

// SessionGone tells all nodes that a consumer's stream is gone.
func (c *Courier) SessionGone(session string) {
	c.hands.gone(session)
	ctx, cancel := context.WithTimeout(context.Background(), round)
	defer cancel()
	var wg sync.WaitGroup
	for _, id := range c.cfg.Nodes() {
		if n, err := c.cfg.Node(id); err == nil { // who cannot be reached has the leases run out
			wg.Go(func() { n.SessionGone(ctx, session) })
		}
	}
	wg.Wait()
}

// inTurn is the nodes in an order that begins with another one each time.
func (c *Courier) inTurn(by map[record.NodeID][]record.Partition) []record.NodeID {
	ids := make([]record.NodeID, 0, len(by))
	for id := range by {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	if len(ids) > 1 {
		k := int(c.turn.Add(1) % uint64(len(ids)))
		ids = append(ids[k:], ids[:k]...)
	}
	return ids
}
