package broker

import (
	"fmt"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// The queues of a passive broker. What they would do in goroutines of their own waits
// for RunQueues, and calls that wait for something to be committed are told by a
// function instead, which must not call the broker.

// RunQueues does what the queues have left to be done, until nothing is left. It
// reports whether there was anything.
func (b *Broker) RunQueues() bool {
	q := b.queues
	for did := false; ; did = true {
		q.mu.Lock()
		list := q.todo
		q.todo = nil
		q.mu.Unlock()
		if len(list) == 0 {
			return did
		}
		for _, f := range list {
			f()
		}
	}
}

// LookAtIntents has those carried out that were there at the last look already.
func (b *Broker) LookAtIntents() {
	for _, carryOut := range b.leftIntents(b.queues.ctx) {
		carryOut()
	}
}

// QueueSendThen is QueueSend.
func (p *Partition) QueueSendThen(list []queue.Outgoing, done func([]queue.Sent)) {
	s := p.sending(list)
	var batches []*sendBatch
	for b := range s.batches {
		batches = append(batches, b)
	}
	left := len(batches)
	if left == 0 {
		done(s.done())
		return
	}
	for _, b := range batches {
		b.answered = func(r sendAnswer) {
			if s.stored(b, r) {
				s.propose(b)
				return
			}
			if left--; left == 0 {
				done(s.done())
			}
		}
		s.propose(b)
	}
}

// QueueReceiveNow is QueueReceive without waiting, and not for groups that acknowledge
// by themselves. What was taken may be handed out once confirm calls back, as far as it
// is among what that is told; confirm is nil if there is nothing.
func (b *Broker) QueueReceiveNow(id queue.GroupID, topic record.TopicID, r queue.Receiving) (taken []queue.Delivery, confirm func(func([]queue.Delivery)), err error) {
	g := b.queues.group(topic, id)
	if g == nil {
		return nil, nil, fmt.Errorf("%w: %d", queue.ErrUnknownGroup, id)
	}
	if r.MaxBytes <= 0 {
		r.MaxBytes = maxReceiveBytes
	}
	round := g.round(&r)
	if len(round.out) == 0 && !round.led && round.err == nil {
		round.err = ErrNotLeader
	}
	if len(round.out) == 0 {
		return nil, nil, round.err
	}
	return round.out, func(done func([]queue.Delivery)) {
		round.confirm(func(failed map[*Partition]error) {
			b.queues.goes(func() {
				round.giveBack(failed)
				done(round.out)
			})
		})
	}, nil
}

// QueueSettleThen is QueueSettle.
func (p *Partition) QueueSettleThen(id queue.GroupID, list []queue.Settlement, done func([]error)) {
	left := 1
	one := func(s *settling) {
		if left--; left == 0 {
			done(s.errs)
		}
	}
	one(p.settleAll(id, list, func(s *settling, x *settled) func(error) {
		left++
		return func(err error) {
			s.committed(x, err)
			one(s)
		}
	}))
}

// QueueCompleteThen is QueueComplete.
func (p *Partition) QueueCompleteThen(id queue.GroupID, leases []queue.Lease, intentID string, intent []byte, done func([]error, error)) {
	errs, err := p.complete(id, leases, intentID, intent, func(err error) { done(make([]error, len(leases)), err) })
	if err != nil || errs != nil {
		done(errs, err)
	}
}

// QueueIntendedThen is QueueIntended.
func (p *Partition) QueueIntendedThen(id string, done func(error)) {
	if err := p.serving(-1); err != nil {
		done(err)
		return
	}
	p.queue.submit(errand{ops: []queue.Op{{Kind: queue.OpIntended, Member: id}}, then: done})
}

// QueueFinishThen is QueueFinish.
func (p *Partition) QueueFinishThen(id queue.GroupID, offsets []record.Offset, done func(error)) {
	g, err := p.groupOf(id)
	if err == nil {
		err = p.serving(-1)
	}
	if err != nil {
		done(err)
		return
	}
	p.tellDesksThen(g, queue.Op{Kind: queue.OpAck, Group: id, Offsets: offsets}, done)
}

// Applied says what an entry did that a replica of a partition was fed: with ops it
// is a command for the queues; else, if stored, a batch, whose first offset is base.
func Applied(e replica.Entry, result any) (ops []queue.Op, base record.Offset, stored bool) {
	r, ok := result.(produced)
	switch {
	case !ok || r.err != nil || len(r.repeats) > 0:
		return nil, -1, false
	case r.base >= 0:
		return nil, r.base, true
	}
	if kind, _ := parseCommand(e.Data); kind != commandQueue {
		return nil, -1, false
	}
	_, ops, _ = queue.ParseCommand(e.Data[commandBytes:]) // it was applied
	return ops, -1, false
}
