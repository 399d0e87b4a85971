package broker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// Limits of one call.
const (
	maxReceive      = 10_000
	maxReceiveBytes = 64 << 20
)

// QueueReceive hands out messages of all partitions of a topic that are led here,
// fairly between them, waiting for the first one as long as r.Wait says. It returns
// nothing, and no error, if there was none. A topic's groups must have been told by
// SetQueueGroups.
//
// Errors: queue.ErrUnknownGroup; ErrNotLeader if no partition of the topic is led
// here, or what else keeps all of them from serving; queue.ErrTooManyMembers; the
// context's, if it ends before something was handed out.
func (b *Broker) QueueReceive(ctx context.Context, id queue.GroupID, topic record.TopicID, r queue.Receiving) ([]queue.Delivery, error) {
	g := b.queues.group(topic, id)
	if g == nil {
		return nil, fmt.Errorf("%w: %d", queue.ErrUnknownGroup, id)
	}
	r.Max = min(max(r.Max, 1), maxReceive)
	if r.MaxBytes <= 0 || r.MaxBytes > maxReceiveBytes {
		r.MaxBytes = maxReceiveBytes
	}
	w := g.waiters.add()
	if w == nil {
		return nil, fmt.Errorf("%w: %d", queue.ErrUnknownGroup, id)
	}
	g.t.waits(g, 1)
	defer g.t.waits(g, -1)
	defer g.waiters.remove(w)
	var timeout <-chan time.Time
	if r.Wait > 0 {
		timer := time.NewTimer(r.Wait)
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		g.waiters.looking(w)
		got, more, err := g.receive(ctx, &r)
		switch {
		case len(got) > 0 || err != nil:
			g.waiters.wakeOne(w) // there may be more for others
			return got, err
		case more:
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			continue // the filter left out what was looked at
		case g.waiters.isClosed():
			return nil, fmt.Errorf("%w: %d", queue.ErrUnknownGroup, id)
		case r.Wait <= 0:
			return nil, nil
		}
		g.waiters.wakeOne(w) // what this one may not have, another may
		select {
		case <-w.woken:
		case <-timeout:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-b.queues.ctx.Done():
			return nil, ErrStopping
		}
	}
}

// QueueHolding is what a session holds of a group from this node.
func (b *Broker) QueueHolding(id queue.GroupID, topic record.TopicID, session string) queue.Holding {
	g := b.queues.group(topic, id)
	if g == nil {
		return queue.Holding{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hands.Holding(session)
}

// receive goes once round the partitions.
func (g *queueGroup) receive(ctx context.Context, r *queue.Receiving) (_ []queue.Delivery, more bool, err error) {
	var commits []trusting
	round := g.round(r, func(p *Partition) func(error) {
		done := make(committing, 1)
		commits = append(commits, trusting{p, done})
		return func(err error) { done <- err }
	})
	switch {
	case len(commits) > 0: // and with that confirmed
		round.acknowledged(ctx, commits)
	case len(round.out) > 0:
		if err := round.confirmed(ctx); err != nil {
			return nil, false, err
		}
	}
	if len(round.out) > 0 {
		return round.out, false, nil
	}
	if !round.led && round.err == nil {
		round.err = ErrNotLeader
	}
	return nil, round.more, round.err
}

// trusting is what a group that acknowledges by itself took from a partition: it is
// acknowledged before anybody sees it.
type trusting struct {
	p    *Partition
	done committing
}

// acknowledged waits until what was taken is acknowledged, and leaves in out what is.
func (c *receiving) acknowledged(ctx context.Context, commits []trusting) {
	failed := map[*Partition]error{}
	for _, x := range commits {
		if err := x.done.wait(ctx); err != nil {
			failed[x.p] = err
		}
	}
	c.giveBack(failed)
}

// round takes what there is. What a group that acknowledges by itself takes from a
// partition is acknowledged, or is not to be handed out, once that is told what trust
// makes.
func (g *queueGroup) round(r *queue.Receiving, trust func(*Partition) func(error)) *receiving {
	g.mu.Lock()
	defer g.mu.Unlock()
	round := &receiving{g: g, r: r, now: g.q.nowMillis(), topic: g.topicName(), trust: trust}
	parts := g.t.here()
	g.turn++
	for i := range parts {
		round.from(parts[(g.turn+i)%len(parts)])
		if len(round.out) >= r.Max || round.full {
			break
		}
	}
	return round
}

// receiving is one round.
type receiving struct {
	g     *queueGroup
	r     *queue.Receiving
	now   int64
	out   []queue.Delivery
	bytes int
	full  bool
	led   bool // some partition is led here
	more  bool
	err   error
	trust func(*Partition) func(error)
	gave  []*Partition // those that messages were taken from
	topic string
}

type committing chan error

func (c committing) wait(ctx context.Context) error {
	select {
	case err := <-c:
		return err
	case <-ctx.Done():
		return ErrUnknownOutcome
	}
}

// from takes what there is in one partition.
func (c *receiving) from(p *Partition) {
	g := c.g
	member := ""
	if g.spec.Settings.Broadcast {
		member = c.r.Member.ID
	}
	d, err := g.desk(p, member)
	if err == queue.ErrUnknownGroup { //nolint:errorlint // as desk returns it
		c.led = true
		if member != "" {
			c.err = g.open(p, member)
		}
		return
	}
	if err != nil {
		return // not led here
	}
	c.led = true
	g.seen(d, c.now)
	taken, more, err := d.Take(c.now, queue.Taking{
		Member: c.r.Member, Max: c.r.Max - len(c.out), MaxBytes: c.r.MaxBytes - c.bytes, Begun: len(c.out) > 0, Held: c.r.Held,
	})
	c.more = c.more || more
	if err != nil {
		c.err = err
	}
	if len(taken) > 0 {
		c.gave = append(c.gave, p)
	}
	c.out = slices.Grow(c.out, len(taken))
	for i := range taken {
		t := &taken[i]
		m := t.Message
		c.bytes += m.SizeBytes()
		c.full = c.full || t.Alone || c.bytes >= c.r.MaxBytes
		c.out = append(c.out, queue.Delivery{
			Lease: t.Lease, Topic: c.topic, ID: m.ID, Key: m.Key, KeyNull: m.KeyNull, Value: m.Value, Headers: m.Headers,
			TimestampMillis: m.TimestampMillis, UntilMillis: t.UntilMillis, Alone: t.Alone,
		})
	}
	if g.spec.Settings.AutoAck && len(taken) > 0 {
		g.carry(d, c.trust(p))
		return
	}
	g.carry(d, nil)
	if len(taken) == 0 {
		g.schedule(d.RateMillis(c.now))
	}
}

func (g *queueGroup) topicName() string {
	g.t.mu.Lock()
	defer g.t.mu.Unlock()
	return g.t.spec.Name
}
