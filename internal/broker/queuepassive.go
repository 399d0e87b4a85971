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

// QueueReceiveNow is QueueReceive without waiting. What was taken may be handed out once
// confirm calls back, as far as it is among what that is told; confirm is nil if there
// is nothing.
func (b *Broker) QueueReceiveNow(id queue.GroupID, topic record.TopicID, r queue.Receiving) (taken []queue.Delivery, confirm func(func([]queue.Delivery)), err error) {
	g := b.queues.group(topic, id)
	if g == nil {
		return nil, nil, fmt.Errorf("%w: %d", queue.ErrUnknownGroup, id)
	}
	if r.MaxBytes <= 0 {
		r.MaxBytes = maxReceiveBytes
	}
	acks := &trusted{failed: map[*Partition]error{}, left: 1}
	round := g.round(&r, acks.of)
	if len(round.out) == 0 && !round.led && round.err == nil {
		round.err = ErrNotLeader
	}
	if len(round.out) == 0 {
		return nil, nil, round.err
	}
	return round.out, func(done func([]queue.Delivery)) {
		handOut := func(failed map[*Partition]error) {
			b.queues.goes(func() {
				round.giveBack(failed)
				done(round.out)
			})
		}
		if acks.asked {
			acks.then = handOut
			acks.one()
			return
		}
		round.confirm(handOut)
	}, nil
}

// QueueAcquireNow is QueueAcquire. What was taken may be handed out once confirm calls
// back without an error; confirm is nil if there is nothing.
func (p *Partition) QueueAcquireNow(id queue.GroupID, t queue.Taking) (taken []queue.Taken, confirm func(func(error)), err error) {
	g, taken, err := p.acquire(id, t)
	if err != nil || len(taken) == 0 {
		return nil, nil, err
	}
	return taken, func(done func(error)) {
		answer := func(err error) {
			p.broker.queues.goes(func() {
				if err != nil {
					g.giveBackTaken(p, taken)
				}
				done(err)
			})
		}
		if p.group.Alone() {
			answer(nil)
		} else if !p.group.BarrierThen(answer) {
			answer(replica.ErrStopped)
		}
	}, nil
}

// trusted is what a group that acknowledges by itself took: it calls then once all of
// that is acknowledged or will not be.
type trusted struct {
	asked  bool
	left   int
	failed map[*Partition]error
	then   func(map[*Partition]error)
}

func (t *trusted) of(p *Partition) func(error) {
	t.asked = true
	t.left++
	return func(err error) {
		if err != nil {
			t.failed[p] = err
		}
		t.one()
	}
}

func (t *trusted) one() {
	if t.left--; t.left == 0 {
		t.then(t.failed)
	}
}

// QueueSettleThen is QueueSettle.
func (p *Partition) QueueSettleThen(id queue.GroupID, list []queue.Settlement, done func([]error)) {
	left := 1
	one := func(s *settling) {
		if left--; left == 0 {
			done(s.errs)
		}
	}
	s := p.settleAll(id, list, func(s *settling, x *settled) func(error) {
		left++
		return func(err error) {
			s.committed(x, err)
			one(s)
		}
	})
	left++
	if !s.confirm(func(err error) { s.unconfirmed(err); one(s) }) {
		left--
	}
	one(s)
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

// QueueSeekThen is QueueSeek.
func (p *Partition) QueueSeekThen(id queue.GroupID, to QueueTo, done func(error)) {
	g, op, err := p.seeking(id, to)
	if err != nil {
		done(err)
		return
	}
	p.tellDesksThen(g, op, done)
}

// QueueRetryThen is QueueRetry.
func (p *Partition) QueueRetryThen(id queue.GroupID, o record.Offset, skip bool, done func(error)) {
	told := false
	err := p.retry(id, o, skip, func(err error) {
		if !told {
			told = true
			done(err)
		}
	})
	if err != nil {
		done(err)
	}
}

// DeleteRecordsThen is DeleteRecords, of what is below an offset.
func (p *Partition) DeleteRecordsThen(before record.Offset, done func(error)) {
	b, err := p.Bounds()
	if err == nil && (before < 0 || before > b.HighWatermark) {
		err = ErrOutOfRange
	}
	if err != nil {
		done(err)
		return
	}
	p.group.Propose(replica.Proposal{Data: logStartCommand(before, p.broker.clock().UnixMilli()), Done: func(_ any, err error) {
		if err != nil {
			err = proposalError(err)
		}
		done(err)
	}})
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

// Applied is what an entry did that a replica of a partition was fed.
type Applied struct {
	Ops   []queue.Op    // of a command for the queues
	Base  record.Offset // the first offset of the batch that was stored; −1: none was
	Start record.Offset // where the log begins since
	// ClockMillis is the queue clock that the entry bears; 0: none.
	ClockMillis int64
}

// WasApplied says what an entry did, given its result.
func WasApplied(e replica.Entry, result any) Applied {
	r, ok := result.(produced)
	a := Applied{Base: -1, Start: -1}
	if !ok {
		return a
	}
	a.Start = r.start
	if r.err != nil || len(r.repeats) > 0 {
		return a
	}
	// It was applied, so all of it parses.
	a.Base = r.base
	switch kind, _ := parseCommand(e.Data); kind {
	case commandAnnexed:
		h, _ := record.ParseHeader(e.Data)
		annexe, _ := queue.ParseAnnexe(e.Data[h.SizeBytes():], h.Count)
		a.ClockMillis = annexe.ClockMillis
	case commandQueue:
		a.ClockMillis, a.Ops, _ = queue.ParseCommand(e.Data[commandBytes:])
	}
	return a
}
