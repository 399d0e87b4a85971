package broker

import (
	"context"
	"fmt"
	"sync"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/replica"
)

// Handing out is not in the log. So a leader that was deposed, and has not heard of it,
// could hand out what its successor has seen done. What a desk gives therefore leaves
// the node only once a majority has said, after that, that this node leads; what it
// does not say so of is given back.

// confirm calls done with the partitions, of those that messages were taken from, whose
// leader was not confirmed, and why; nil: all were. done may be called at once, or from
// a group's loop.
func (c *receiving) confirm(done func(map[*Partition]error)) {
	var mu sync.Mutex
	var failed map[*Partition]error
	left := 1
	one := func(p *Partition, err error) {
		mu.Lock()
		if err != nil {
			if failed == nil {
				failed = map[*Partition]error{}
			}
			failed[p] = proposalError(err)
		}
		left--
		last := left == 0
		mu.Unlock()
		if last {
			done(failed)
		}
	}
	for _, p := range c.gave {
		if p.group.Alone() {
			continue
		}
		mu.Lock()
		left++
		mu.Unlock()
		if !p.group.BarrierThen(func(err error) { one(p, err) }) {
			one(p, replica.ErrStopped)
		}
	}
	one(nil, nil)
}

// confirmed waits for confirm, and leaves in out what may be handed out.
func (c *receiving) confirmed(ctx context.Context) error {
	answer := make(chan map[*Partition]error, 1)
	c.confirm(func(failed map[*Partition]error) { answer <- failed })
	select {
	case failed := <-answer:
		c.giveBack(failed)
		return nil
	case <-ctx.Done():
		failed := map[*Partition]error{}
		for _, p := range c.gave {
			failed[p] = ctx.Err()
		}
		c.giveBack(failed)
		return ctx.Err()
	}
}

// giveBack takes out what lies in partitions that failed: it was not handed out.
func (c *receiving) giveBack(failed map[*Partition]error) {
	if len(failed) == 0 {
		return
	}
	g := c.g
	g.mu.Lock()
	defer g.mu.Unlock()
	for p, err := range failed {
		c.err = err
		left := c.out[:0:0]
		var leases []queue.Lease
		for _, d := range c.out {
			if d.Lease.Partition == p.id.Partition {
				leases = append(leases, d.Lease)
			} else {
				left = append(left, d)
			}
		}
		c.out = left
		g.giveBack(p, leases)
	}
}

// giveBack ends leases that nobody has heard of; mu is held. If this node does not lead
// the partition any more, they have ended with its desk.
func (g *queueGroup) giveBack(p *Partition, leases []queue.Lease) {
	if len(leases) == 0 {
		return
	}
	d, err := g.cursorDesk(p, leases[0])
	if err != nil {
		return
	}
	now := g.q.nowMillis()
	for _, l := range leases {
		_, _ = d.Settle(now, queue.Settlement{Lease: l, Verdict: queue.Release}) // or it is not that desk's
	}
	g.carry(d, nil)
}

// confirmTaken is confirmed for one partition.
func (g *queueGroup) confirmTaken(p *Partition, taken []queue.Taken) error {
	if p.group.Alone() {
		return nil
	}
	err := p.Confirm(g.q.ctx)
	if err == nil {
		return nil
	}
	g.giveBackTaken(p, taken)
	return fmt.Errorf("messages were taken and given back: %w", err)
}

func (g *queueGroup) giveBackTaken(p *Partition, taken []queue.Taken) {
	leases := make([]queue.Lease, len(taken))
	for i := range taken {
		leases[i] = taken[i].Lease
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.giveBack(p, leases)
}
