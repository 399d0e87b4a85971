package broker

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// maxListed is how much one listing shows.
const maxListed = 10_000

// cursors are the names of a group's cursors here: "", or those of its broadcast members.
func (p *Partition) cursors(g *queueGroup) []string {
	if !g.broadcast.Load() {
		return []string{""}
	}
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	return slices.Sorted(maps.Keys(p.machine.queues.Members(g.id)))
}

// QueueReady returns once a group has begun in this partition: what is sent after
// that will be delivered, wherever the group begins.
//
// Errors: ErrNotLeader and what else keeps the partition from serving;
// queue.ErrUnknownGroup if SetQueueGroups did not tell of it; the context's.
func (p *Partition) QueueReady(ctx context.Context, id queue.GroupID) error {
	woken := make(wakes, 1)
	stop := p.Watch(woken)
	defer stop()
	for {
		if err := p.serving(-1); err != nil {
			return err
		}
		if _, err := p.groupOf(id); err != nil {
			return err
		}
		p.machine.mu.Lock()
		has := p.machine.queues.Has(id, "")
		p.machine.mu.Unlock()
		if has {
			return nil
		}
		select {
		case <-woken:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wakes is a Watcher that somebody waits on.
type wakes chan struct{}

// Wake implements Watcher.
func (w wakes) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// each runs f with the desk of each cursor of a group, in order.
func (p *Partition) each(id queue.GroupID, f func(*queueGroup, *desk)) error {
	g, err := p.groupOf(id)
	if err != nil {
		return fmt.Errorf("%w: %d", err, id)
	}
	if err := p.serving(-1); err != nil {
		return err
	}
	names := p.cursors(g)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names[:min(len(names), maxListed)] {
		d, err := g.desk(p, name)
		if err != nil {
			return err
		}
		f(g, d)
		g.carry(d, nil)
	}
	return nil
}

// QueueExplain says why a group does or does not move in this partition: one
// explanation for the group, or for each broadcast member. Errors: those of QueueReady.
func (p *Partition) QueueExplain(id queue.GroupID) ([]queue.Explanation, error) {
	out := []queue.Explanation{}
	err := p.each(id, func(g *queueGroup, d *desk) {
		now := g.q.nowMillis()
		d.Tick(now)
		out = append(out, d.Explain(now, g.waiters.count()))
	})
	return out, err
}

// QueuePending lists what a group has in hand, failed or held back here, by offset from one on,
// at most max and 10,000.
func (p *Partition) QueuePending(id queue.GroupID, from record.Offset, most int) ([]queue.Pending, error) {
	out := []queue.Pending{}
	most = min(most, maxListed)
	err := p.each(id, func(g *queueGroup, d *desk) {
		if left := most - len(out); left > 0 {
			out = append(out, d.Pending(g.q.nowMillis(), from, left)...)
		}
	})
	return out, err
}

// QueueDelayed lists what waits for its time, by offset from one on, at most max and
// 10,000: go on behind the last.
func (p *Partition) QueueDelayed(from record.Offset, most int) ([]queue.Delayed, error) {
	if err := p.serving(-1); err != nil {
		return nil, err
	}
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	return p.machine.queues.Delayed(from, min(most, maxListed)), nil
}

// QueueMessage reads a message of this partition. Errors: queue.ErrGone,
// ErrOutOfRange, ErrNotLeader, ErrStorage.
func (p *Partition) QueueMessage(o record.Offset) (*queue.Message, error) {
	if err := p.serving(-1); err != nil {
		return nil, err
	}
	if src := (messages{p}); o < 0 || o >= src.End() {
		return nil, fmt.Errorf("%w: %d, the log ends at %d", ErrOutOfRange, o, src.End())
	}
	return messages{p}.one(o)
}

// QueueCancel takes messages that wait for their time from all groups, also from
// those that begin later. Each is answered: queue.ErrNotDelayed, ErrNotLeader, ErrUnknownOutcome.
func (p *Partition) QueueCancel(ctx context.Context, list []record.Offset) []error {
	errs := make([]error, len(list))
	op := queue.Op{Kind: queue.OpCancel}
	for i, o := range list {
		if errs[i] = p.delayed(o); errs[i] == nil {
			op.Offsets = append(op.Offsets, o)
		}
	}
	if len(op.Offsets) == 0 {
		return errs
	}
	if err := p.queue.wait(ctx.Done(), op); err != nil {
		for i := range errs {
			if errs[i] == nil {
				errs[i] = err
			}
		}
	}
	return errs
}

// delayed says why a message cannot be cancelled or moved.
func (p *Partition) delayed(o record.Offset) error {
	if err := p.serving(-1); err != nil {
		return err
	}
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	if p.machine.queues.DueMillis(o) == 0 {
		return fmt.Errorf("%w: offset %d of partition %d", queue.ErrNotDelayed, o, p.id.Partition)
	}
	return nil
}

// QueueReschedule gives a message that waits for its time another, ms since 1970;
// one in the past is now. Errors: those of QueueCancel, queue.ErrDelayTooLong.
func (p *Partition) QueueReschedule(ctx context.Context, o record.Offset, dueMillis int64) error {
	if err := p.delayed(o); err != nil {
		return err
	}
	if ahead := dueMillis - p.broker.queues.nowMillis(); ahead > queue.MaxDelay.Milliseconds() {
		return fmt.Errorf("%w: %d ms, the limit is %s", queue.ErrDelayTooLong, ahead, queue.MaxDelay)
	}
	return p.queue.wait(ctx.Done(), queue.Op{Kind: queue.OpMove, Offset: o, DueMillis: dueMillis})
}

// QueueSeek has a group, with all its members, go on elsewhere in this partition:
// what lies behind is delivered, again or not, what lies before is done. Leases that
// are out are void. Errors: those of QueueReady, ErrUnknownOutcome.
func (p *Partition) QueueSeek(ctx context.Context, id queue.GroupID, to QueueTo) error {
	g, op, err := p.seeking(id, to)
	if err != nil {
		return err
	}
	return p.tellDesks(ctx, g, op)
}

func (p *Partition) seeking(id queue.GroupID, to QueueTo) (*queueGroup, queue.Op, error) {
	g, err := p.groupOf(id)
	if err != nil {
		return nil, queue.Op{}, fmt.Errorf("%w: %d", err, id)
	}
	if err := p.serving(-1); err != nil {
		return nil, queue.Op{}, err
	}
	op := queue.Op{Kind: queue.OpSeek, Group: id, Offset: max(to.Offset, 0)}
	if to.TimeMillis != 0 {
		op.Offset = p.queue.startAt(to.TimeMillis)
	}
	return g, op, nil
}

// QueueFinish makes messages done, whoever has them in hand: his lease ends. Of
// broadcast groups nothing. Errors: those of QueueReady, ErrUnknownOutcome.
func (p *Partition) QueueFinish(ctx context.Context, id queue.GroupID, offsets []record.Offset) error {
	g, err := p.groupOf(id)
	if err != nil {
		return fmt.Errorf("%w: %d", err, id)
	}
	if err := p.serving(-1); err != nil {
		return err
	}
	return p.tellDesks(ctx, g, queue.Op{Kind: queue.OpAck, Group: id, Offsets: offsets})
}

// QueuePurge makes everything that is there now done, for all members.
func (p *Partition) QueuePurge(ctx context.Context, id queue.GroupID) error {
	return p.QueueSeek(ctx, id, QueueTo{Offset: math.MaxInt64})
}

// tellDesks commits an op and has the group's desks here hear of it.
func (p *Partition) tellDesks(ctx context.Context, g *queueGroup, op queue.Op) error {
	answer := make(committing, 1)
	p.tellDesksThen(g, op, func(err error) { answer <- err })
	return answer.wait(ctx)
}

func (p *Partition) tellDesksThen(g *queueGroup, op queue.Op, then func(error)) {
	p.queue.submit(errand{ops: []queue.Op{op}, then: func(err error) {
		if err != nil {
			then(err)
			return
		}
		g.post(func() {
			for _, d := range g.inOrder() {
				if d.p == p {
					d.Committed(g.q.nowMillis(), &op)
					g.carry(d, nil)
				}
			}
			g.wakeAll()
			then(nil)
		})
	}})
}

// QueueRetry makes a message that failed or is parked one that never failed, so that
// it is delivered again; skip sets it aside instead, as a dead letter. (That is
// forgotten if the leadership changes before the dead letter is written.)
// Errors: those of QueueReady; queue.ErrLeaseUnknown: it has not failed;
// queue.ErrLeaseExpired: it is in hand.
func (p *Partition) QueueRetry(ctx context.Context, id queue.GroupID, o record.Offset, skip bool) error {
	answer := make(committing, 1)
	err := p.retry(id, o, skip, func(err error) {
		select {
		case answer <- err:
		default: // of a broadcast group another member's counts
		}
	})
	if err != nil {
		return err
	}
	return answer.wait(ctx)
}

// retry begins what QueueRetry does. then is called for each member that the message
// failed with, when that is committed or not, unless there is an error.
func (p *Partition) retry(id queue.GroupID, o record.Offset, skip bool, then func(error)) error {
	err, found := queue.ErrLeaseUnknown, false
	e := p.each(id, func(g *queueGroup, d *desk) {
		switch x := d.Retry(o, skip); {
		case x != nil:
			err = x
		default: // of a broadcast group each member that it failed with
			found = true
			g.carry(d, then)
		}
	})
	switch {
	case e != nil:
		return e
	case !found:
		return err
	}
	return nil
}

// QueueTrace follows a message through all groups of the partition, at most 10,000
// cursors of them.
func (p *Partition) QueueTrace(o record.Offset) ([]QueueTraced, error) {
	if err := p.serving(-1); err != nil {
		return nil, err
	}
	t := p.queue.topic.Load()
	out := []QueueTraced{}
	if t == nil {
		return out, nil
	}
	groups := t.list()
	slices.SortFunc(groups, func(a, b *queueGroup) int { return int(int64(a.id) - int64(b.id)) })
	for _, g := range groups {
		err := p.each(g.id, func(g *queueGroup, d *desk) {
			if len(out) < maxListed {
				x := QueueTraced{Group: g.id, Member: d.key.member}
				x.Status, x.Trace, x.Pending = d.Trace(g.q.nowMillis(), o)
				out = append(out, x)
			}
		})
		if err != nil && p.serving(-1) != nil {
			return nil, err
		}
	}
	return out, nil
}

// QueueFind looks for the messages of an id: in what is remembered of them, or, if
// the topic remembers none, through the whole partition, as long as ctx lets it.
func (p *Partition) QueueFind(ctx context.Context, id string) ([]record.Offset, error) {
	if err := p.serving(-1); err != nil {
		return nil, err
	}
	p.machine.mu.Lock()
	o, ok := p.machine.queues.FindID(queue.HashID(id))
	p.machine.mu.Unlock()
	if ok {
		return []record.Offset{o}, nil
	}
	b := *p.machine.bounds.Load()
	var found []record.Offset
	for at := b.LogStart; at < b.HighWatermark && len(found) < maxListed; {
		if err := ctx.Err(); err != nil {
			return found, err
		}
		chunk, err := p.log.Read(at, readStepBytes, true, b.HighWatermark)
		if err != nil {
			return found, p.readError(err)
		}
		all := slices.Concat(chunk.Parts...)
		if chunk.Release != nil {
			chunk.Release()
		}
		for len(all) > 0 {
			batch, rest, err := decode(all, p.id.Partition, p.broker.limits)
			if err != nil {
				return found, p.readError(err)
			}
			for i := range batch.messages {
				if batch.messages[i].ID == id {
					found = append(found, batch.messages[i].Offset)
				}
			}
			at, all = batch.base+record.Offset(len(batch.messages)), rest
		}
	}
	return found, nil
}
