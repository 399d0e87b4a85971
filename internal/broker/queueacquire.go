package broker

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tube-mq/tube/internal/commitlog"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// QueueAcquire hands out messages of this partition, by offset, without waiting: for
// who asks partitions one by one, and reads the batches himself (QueueBatches). What
// he has is settled with QueueSettle; in a group that acknowledges by itself that is his
// to do, for what he hands on, before he does. Not for broadcast groups.
//
// Errors: ErrNotLeader and what else keeps the partition from serving, and those of
// reading; queue.ErrUnknownGroup: SetQueueGroups did not tell of it, or it has not
// begun here yet; queue.ErrGroupMode.
func (p *Partition) QueueAcquire(id queue.GroupID, t queue.Taking) ([]queue.Taken, error) {
	g, taken, err := p.acquire(id, t)
	if err != nil || len(taken) == 0 {
		return nil, err
	}
	if err := g.confirmTaken(p, taken); err != nil {
		return nil, err
	}
	return taken, nil
}

// acquire takes what there is, by offset.
func (p *Partition) acquire(id queue.GroupID, t queue.Taking) (g *queueGroup, taken []queue.Taken, err error) {
	g, err = p.groupOf(id)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %d", err, id)
	}
	if g.broadcast.Load() {
		return nil, nil, fmt.Errorf("%w: each member of a broadcast group has everything", queue.ErrGroupMode)
	}
	t.Max, t.Hold = min(max(t.Max, 1), maxReceive), true
	g.mu.Lock()
	defer g.mu.Unlock()
	d, err := g.desk(p, "")
	if err != nil {
		return nil, nil, err
	}
	for more := true; more && len(taken) == 0 && err == nil; {
		taken, more, err = d.Take(g.q.nowMillis(), t)
		g.carry(d, nil)
	}
	if len(taken) == 0 {
		g.schedule(d.RateMillis(g.q.nowMillis()))
		return nil, nil, err
	}
	slices.SortFunc(taken, func(a, b queue.Taken) int { return int(a.Lease.Offset - b.Lease.Offset) })
	return g, taken, nil
}

// QueueWaiter waits for messages of several groups.
type QueueWaiter struct {
	woken chan struct{}
	in    []queueWaiting
}

type queueWaiting struct {
	g *queueGroup
	w *waiter
}

// QueueOf names a group.
type QueueOf struct {
	Topic record.TopicID
	Group queue.GroupID
}

// QueueWaiter puts somebody in line for messages of groups. Groups that are not known
// here are left out. Close must be called.
func (b *Broker) QueueWaiter(of []QueueOf) *QueueWaiter {
	x := &QueueWaiter{woken: make(chan struct{}, 1)}
	for _, o := range of {
		g := b.queues.group(o.Topic, o.Group)
		if g == nil {
			continue
		}
		if w := g.waiters.addWith(x.woken); w != nil {
			g.t.waits(g, 1)
			x.in = append(x.in, queueWaiting{g, w})
		}
	}
	return x
}

// Looking says that he is about to look at all of the groups: what comes from now on
// wakes him anew.
func (x *QueueWaiter) Looking() {
	for _, i := range x.in {
		i.g.waiters.looking(i.w)
	}
}

// Looked says that he has looked and took what he may have: what is left is for others.
func (x *QueueWaiter) Looked() {
	for _, i := range x.in {
		i.g.waiters.wakeOne(i.w)
	}
}

// Woken has a value when there may be something.
func (x *QueueWaiter) Woken() <-chan struct{} { return x.woken }

// Close leaves the lines.
func (x *QueueWaiter) Close() {
	for _, i := range x.in {
		i.g.waiters.remove(i.w)
		i.g.t.waits(i.g, -1)
	}
	x.in = nil
}

// QueueBatches reads the batches that messages lie in, as they are stored: those of
// the offsets, which are in ascending order, up to maxBytes but at least one. offsets
// tells how many of them are in what was read.
//
// Errors: those of reading, queue.ErrGone.
func (p *Partition) QueueBatches(list []record.Offset, maxBytes int) (batches []byte, offsets int, err error) {
	end := p.machine.bounds.Load().HighWatermark
	for offsets < len(list) {
		// In small steps: what lies between may not be wanted.
		all, err := p.readWhole(list[offsets], min(max(0, maxBytes-len(batches)), readStepBytes), end)
		if err != nil {
			return batches, offsets, err
		}
		for len(all) > 0 && offsets < len(list) {
			h, err := record.ParseHeader(all)
			if err != nil || h.SizeBytes() > len(all) {
				return batches, offsets, p.readError(fmt.Errorf("%w: batch at %d", record.ErrCorrupt, list[offsets]))
			}
			if last := h.LastOffset(); list[offsets] <= last {
				if list[offsets] < h.BaseOffset {
					return batches, offsets, fmt.Errorf("%w: offset %d", queue.ErrGone, list[offsets])
				}
				if len(batches) > 0 && len(batches)+h.SizeBytes() > maxBytes {
					return batches, offsets, nil
				}
				batches = append(batches, all[:h.SizeBytes()]...)
				for offsets < len(list) && list[offsets] <= last {
					offsets++
				}
			}
			all = all[h.SizeBytes():]
		}
	}
	return batches, offsets, nil
}

// QueueBatchEnd is the offset behind the batch that a message lies in.
func (p *Partition) QueueBatchEnd(o record.Offset) (record.Offset, error) {
	b, err := p.readWhole(o, 1, p.machine.bounds.Load().HighWatermark)
	if err != nil {
		return 0, err
	}
	h, err := record.ParseHeader(b)
	if err != nil {
		return 0, p.readError(err)
	}
	return h.NextOffset(), nil
}

// readWhole reads batches from the one of an offset on, in one piece, at least one.
func (p *Partition) readWhole(o record.Offset, maxBytes int, end record.Offset) ([]byte, error) {
	chunk, err := p.log.Read(o, maxBytes, true, end)
	switch {
	case errors.Is(err, commitlog.ErrOutOfRange):
		return nil, fmt.Errorf("%w: %w", queue.ErrGone, err)
	case err != nil:
		return nil, p.readError(err)
	}
	all := slices.Concat(chunk.Parts...)
	if chunk.Release != nil {
		chunk.Release()
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: partition %s: nothing at offset %d", ErrStorage, p.id, o)
	}
	return all, nil
}
