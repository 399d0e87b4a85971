package broker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tube-mq/tube/internal/pulse"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// QueueComplete acknowledges leases of this partition, all or none, and writes an
// intent down in the same entry (see queue.State.Intents). An error for a lease means
// that nothing was done. Not for broadcast groups. Errors: those of QueueReady,
// ErrUnknownOutcome, queue.ErrGroupMode, queue.ErrTooManyIntents, queue.ErrMessageTooLarge.
func (p *Partition) QueueComplete(ctx context.Context, id queue.GroupID, leases []queue.Lease, intentID string, intent []byte) ([]error, error) {
	done := make(committing, 1)
	errs, err := p.complete(id, leases, intentID, intent, func(err error) { done <- err })
	if err != nil || errs != nil {
		return errs, err
	}
	return make([]error, len(leases)), done.wait(ctx)
}

// complete begins what QueueComplete does. then is called when it is committed or not,
// unless there is an error.
func (p *Partition) complete(id queue.GroupID, leases []queue.Lease, intentID string, intent []byte, then func(error)) ([]error, error) {
	g, err := p.groupOf(id)
	if err != nil {
		return nil, fmt.Errorf("%w: %d", err, id)
	}
	if g.broadcast.Load() {
		return nil, fmt.Errorf("%w: complete is for groups whose members share", queue.ErrGroupMode)
	}
	if err := p.serving(-1); err != nil {
		return nil, err
	}
	p.machine.mu.Lock()
	err = p.machine.queues.MayIntend(len(intent))
	p.machine.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return g.complete(p, leases, queue.Op{Kind: queue.OpIntend, Member: intentID, Data: intent}, then)
}

// complete has the acknowledgements and the intent committed together, unless one of
// the leases is not held: then errs says so.
func (g *queueGroup) complete(p *Partition, leases []queue.Lease, intend queue.Op, then func(error)) (errs []error, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, err := g.desk(p, "")
	if err != nil {
		return nil, err
	}
	now := g.q.nowMillis()
	errs, refused := make([]error, len(leases)), false
	for i, l := range leases {
		if l.Partition != p.id.Partition || l.Cursor != queue.CursorOf(g.id, "") {
			errs[i] = queue.ErrLeaseUnknown
		} else {
			_, errs[i] = d.Settle(now, queue.Settlement{Lease: l, Verdict: queue.Extend})
		}
		refused = refused || errs[i] != nil
	}
	if refused {
		return errs, nil
	}
	for _, l := range leases {
		if _, err := d.Settle(now, queue.Settlement{Lease: l, Verdict: queue.Acknowledge}); err != nil {
			return nil, err // it was held a moment ago, under the same lock
		}
	}
	g.carry(d, then, intend)
	return nil, nil
}

// QueueIntended forgets an intent that was carried out.
func (p *Partition) QueueIntended(ctx context.Context, id string) error {
	if err := p.serving(-1); err != nil {
		return err
	}
	return p.queue.wait(ctx.Done(), queue.Op{Kind: queue.OpIntended, Member: id})
}

// intentsEvery is how often leaders look for intents that nobody has carried out; one
// is left to who wrote it for at least as long.
const intentsEvery = 10 * time.Second

// intentsLoop has what was left carried out.
func (b *Broker) intentsLoop(ctx context.Context) {
	pulse.Every(ctx, intentsEvery, func() {
		var left sync.WaitGroup
		for _, carryOut := range b.leftIntents(ctx) {
			left.Go(carryOut)
		}
		left.Wait()
	})
}

// leftIntents is how to carry out the intents that were there already when it was
// called last, in order.
func (b *Broker) leftIntents(ctx context.Context) (out []func()) {
	seen := b.queues.intents
	b.queues.intents = map[record.TopicPartition]map[string]bool{}
	for _, p := range b.inOrder() {
		list := p.intents()
		if len(list) == 0 {
			continue
		}
		next := map[string]bool{}
		b.queues.intents[p.id] = next
		for _, id := range slices.Sorted(maps.Keys(list)) {
			next[id] = true
			if seen[p.id][id] && b.cfg.Queues.CarryOut != nil {
				out = append(out, func() { b.cfg.Queues.CarryOut(ctx, p.id, id, list[id]) })
			}
		}
	}
	return out
}

// intents are those of a partition that this node leads.
func (p *Partition) intents() map[string][]byte {
	if p.serving(-1) != nil {
		return nil
	}
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	return p.machine.queues.Intents()
}
