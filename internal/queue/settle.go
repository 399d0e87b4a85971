package queue

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// hold puts a lease into a hand until a time.
func (d *Desk) hold(l *lease, h *hand, nowMillis, untilMillis int64) {
	l.since = d.tenths(nowMillis)
	l.lengthMillis = d.length(l, untilMillis)
	h.lone = lone{}
	if h.count == 0 {
		h.lone = lone{d, l.offset}
	}
	h.count++
	h.exclusive = h.exclusive || l.alone
	d.held++
	d.leases.hold(l, h.number)
}

func (d *Desk) tenths(nowMillis int64) uint32 {
	return uint32(min(max(0, (nowMillis-d.begunMillis)/100), math.MaxUint32))
}

// length is a lease's, if it ends at a time.
func (d *Desk) length(l *lease, untilMillis int64) uint32 {
	return uint32(min(max(0, untilMillis-d.sinceMillis(l)), math.MaxUint32))
}

func (d *Desk) sinceMillis(l *lease) int64 { return d.begunMillis + l.sinceMillis() }

func (d *Desk) untilMillis(l *lease) int64 { return d.begunMillis + l.untilMillis() }

// handOf is the hand that a lease is or was in; nil: it was nobody's, or he is forgotten.
func (d *Desk) handOf(l *lease) *hand { return d.cfg.Hands.numbered(l.hand) }

// letGo takes a lease out of its hand, if it is in one.
func (d *Desk) letGo(l *lease) {
	if l.state != held && l.state != asked {
		return
	}
	h := d.handOf(l)
	d.leases.letGo(l)
	d.held--
	h.count--
	if l.alone {
		h.exclusive = false
	}
	if h.count == 0 && (l.alone || d.cfg.Hands.draining == h) || d.held == d.cfg.Settings.MaxInFlight-1 {
		d.out.Wake = true // its hand is empty, or there is room
	}
}

// Settle takes a consumer's word on a lease. commit says that the answer is to wait
// until the ops in Effects are committed; an error is the answer, and nothing was changed.
func (d *Desk) Settle(nowMillis int64, s Settlement) (commit bool, err error) {
	l := d.leases.at(s.Lease.Offset)
	switch {
	case s.Lease.Nonce != 0 && s.Lease.Generation != d.generation:
		return false, d.void(s)
	case l == nil:
		return d.settleLate(nowMillis, s)
	case l.state == acking:
		if s.Verdict == Acknowledge {
			return d.acknowledge(l), nil
		}
		return false, ErrAlreadyDone
	case l.state == failing:
		if s.Verdict == Acknowledge && (l.nonce == s.Lease.Nonce || l.nonce == 0) {
			return d.acknowledge(l), nil // late, but nobody else got it
		}
		return false, ErrLeaseExpired
	case l.nonce != s.Lease.Nonce:
		return false, ErrLeaseExpired
	}
	switch s.Verdict {
	case Acknowledge:
		d.letGo(l)
		return d.acknowledge(l), nil
	case Nack, Dead:
		d.letGo(l)
		d.fail(l, nowMillis, s, d.handOf(l).member)
		return true, nil
	case Release:
		d.release(l, nowMillis, s.Delay)
		return false, nil
	case Extend:
		return false, d.extend(l, nowMillis, s.Delay)
	}
	return false, fmt.Errorf("%w: verdict %d", ErrLeaseUnknown, s.Verdict)
}

// void answers a lease of before the group was set to go on elsewhere: whatever is
// said of it changes nothing. What is done with is acknowledged already.
func (d *Desk) void(s Settlement) error {
	var done bool
	d.cfg.Read(func(st *State) { done = st.IsDone(d.cfg.Group, d.cfg.Member, s.Lease.Offset) })
	if done && s.Verdict == Acknowledge {
		return nil
	}
	return fmt.Errorf("%w: the group was set to go on elsewhere (seek, purge) since it was given", ErrLeaseExpired)
}

// settleLate settles a lease that this desk does not hold: an earlier leader gave
// it, or it ended. It counts if the message is not done and nobody else has it.
func (d *Desk) settleLate(nowMillis int64, s Settlement) (commit bool, err error) {
	o, end := s.Lease.Offset, d.cfg.Source.End()
	if o < 0 || o >= end || s.Lease.Attempt < 1 || s.Lease.Nonce > d.given.Nonce {
		return false, ErrLeaseUnknown // nonces of earlier leaders are below this one's
	}
	var k Candidate
	var known, done bool
	d.cfg.Read(func(st *State) {
		done = st.IsDone(d.cfg.Group, d.cfg.Member, o)
		k, known = st.Candidate(d.cfg.Group, d.cfg.Member, o, end)
	})
	switch {
	case done && s.Verdict == Acknowledge:
		return false, nil
	case done:
		return false, ErrAlreadyDone
	case !known:
		return false, ErrLeaseUnknown // waits for its time: it was never handed out
	case d.invented(s.Lease, k):
		return false, ErrLeaseUnknown
	case d.isDead(k) || d.dying.has(o):
		return false, ErrLeaseExpired
	}
	if s.Verdict == Acknowledge {
		d.withdraw(o)
		d.claim(o)
		return d.acknowledge(d.late(s.Lease)), nil
	}
	if d.given.Of(s.Lease.Nonce>>32) || s.Lease.Attempt != k.Attempts+1 {
		return false, ErrLeaseExpired // this leader gave it and it ended, or it was counted already
	}
	return d.adopt(k, nowMillis, s)
}

// late is a lease in nobody's hand, of a message that is settled without being held.
func (d *Desk) late(of Lease) *lease {
	l := d.leases.add(of.Offset)
	l.attempt, l.state = int16(min(of.Attempt, math.MaxInt16)), acking
	return l
}

// adopt takes an earlier leader's lease for this one's.
func (d *Desk) adopt(k Candidate, nowMillis int64, s Settlement) (commit bool, err error) {
	switch s.Verdict {
	case Nack, Dead:
		d.withdraw(k.Offset)
		d.claim(k.Offset)
		d.fail(d.late(s.Lease), nowMillis, s, Member{})
		return true, nil
	case Release:
		if ms := s.Delay.Milliseconds(); ms > 0 && d.claim(k.Offset) {
			d.withdraw(k.Offset)
			d.wait(k.Offset, nowMillis+ms)
		}
		return false, nil // else it is there for anybody
	case Extend:
		if !d.claim(k.Offset) {
			return false, ErrLeaseExpired
		}
		d.withdraw(k.Offset)
		l := d.late(s.Lease)
		l.state, l.nonce, l.alone = held, s.Lease.Nonce, k.Suspect
		d.hold(l, d.cfg.Hands.of(Member{Session: "adopted"}, nowMillis), nowMillis, nowMillis+d.lengthMillis(s.Delay))
		return false, nil
	}
	return false, fmt.Errorf("%w: verdict %d", ErrLeaseUnknown, s.Verdict)
}

// claim has a message that was not handed out from here get its key, so that those
// behind it wait until it is settled; false: another has it.
func (d *Desk) claim(o record.Offset) bool {
	if d.keys == nil {
		return true
	}
	m, err := d.cfg.Source.Messages(o)
	return err == nil && (m[0].KeyNull || d.keys.enter(o, hashKey(m[0].Key)))
}

// withdraw takes a message out of where it might be handed out from.
func (d *Desk) withdraw(o record.Offset) {
	d.ready.remove(o)
	d.suspects.remove(o)
	d.parked.remove(o)
	d.waits.remove(o)
	d.refresh(o)
}

// refresh has new messages looked for again if one of those found has changed since.
func (d *Desk) refresh(o record.Offset) {
	if len(d.fresh) > 0 && o >= d.fresh[0].Offset {
		d.next, d.fresh = d.fresh[0].Offset, nil
	}
}

func (d *Desk) acknowledge(l *lease) bool {
	l.state = acking
	if n := len(d.out.Ops); n > 0 && d.out.Ops[n-1].Kind == OpAck {
		d.out.Ops[n-1].Offsets = append(d.out.Ops[n-1].Offsets, l.offset)
	} else {
		d.out.Ops = append(d.out.Ops, d.op(OpAck, []record.Offset{l.offset}))
	}
	return true
}

// fail counts a delivery as failed.
func (d *Desk) fail(l *lease, nowMillis int64, s Settlement, m Member) {
	l.state = failing
	due := nowMillis
	if s.Verdict == Nack {
		due += d.backoff(int(l.attempt), s.Delay).Milliseconds()
	}
	op := d.op(OpFail, nil)
	op.Offset, op.DueMillis, op.Final = l.offset, due, s.Verdict == Dead
	op.Attempt = Attempt{nowMillis, clip(m.ID, MaxMemberBytes), clip(m.Address, MaxAddressBytes), clip(s.Reason, MaxReasonBytes)}
	d.out.Ops = append(d.out.Ops, op)
}

// backoff is the delay before the next delivery, given the attempt that failed;
// asked < 0: what the group says.
func (d *Desk) backoff(attempt int, asked time.Duration) time.Duration {
	if asked >= 0 {
		return asked
	}
	if b := d.cfg.Settings.Backoff; len(b) > 0 {
		return b[min(max(attempt, 1), len(b))-1]
	}
	return 0
}

// release hands a message back, uncounted. Nothing is committed: it is as if it had
// not been handed out.
func (d *Desk) release(l *lease, nowMillis int64, delay time.Duration) {
	d.letGo(l)
	k := Candidate{Offset: l.offset, Suspect: l.alone}
	d.leases.remove(k.Offset)
	d.given.end(k.Offset)
	if ms := delay.Milliseconds(); ms > 0 {
		d.wait(k.Offset, nowMillis+ms)
		return
	}
	if d.ahead(k.Offset) {
		d.out.Wake = true // an earlier leader's
		return
	}
	d.back(k)
	d.out.Wake = true
}

func (d *Desk) extend(l *lease, nowMillis int64, delay time.Duration) error {
	last := d.sinceMillis(l) + d.cfg.Settings.MaxHandling.Milliseconds()
	until := min(nowMillis+d.lengthMillis(delay), last)
	if delay <= 0 && l.state == held {
		until = max(until, d.untilMillis(l)) // the group's lease does not shorten a longer one
	}
	if until <= nowMillis || until < d.untilMillis(l) && until == last && l.state == held {
		return fmt.Errorf("%w: handed out %d ms ago, the limit is %s", ErrHandlingTooLong, nowMillis-d.sinceMillis(l), d.cfg.Settings.MaxHandling)
	}
	l.state = held
	d.leases.prolong(l, d.length(l, until))
	return nil
}

func (d *Desk) lengthMillis(delay time.Duration) int64 {
	if ms := delay.Milliseconds(); ms > 0 {
		return ms
	}
	return d.cfg.Settings.Lease.Milliseconds()
}

// done forgets a message that is done, gone or not wanted; the next of its key is let go.
func (d *Desk) done(o record.Offset) {
	delete(d.avoid, o)
	d.given.forget(o)
	if d.keys == nil {
		return
	}
	if next, ok := d.keys.leave(o); ok {
		d.ready.add(next)
		d.out.Wake = true
	}
}

// Committed tells that an op of this desk, or a seek or retry from elsewhere, is part of the State.
func (d *Desk) Committed(nowMillis int64, op *Op) {
	switch op.Kind {
	case OpAck:
		for _, o := range op.Offsets {
			if l := d.leases.at(o); l != nil && l.state == acking {
				d.leases.remove(o)
				d.refresh(o)
				d.done(o)
			}
		}
	case OpDead:
		for _, o := range op.Offsets {
			d.dying.remove(o)
			d.parked.remove(o)
			d.letting.remove(o)
			d.done(o)
		}
	case OpSuspect:
		for _, o := range op.Offsets {
			d.again(nowMillis, o)
		}
	case OpFail:
		d.again(nowMillis, op.Offset)
	case OpRetry:
		d.dying.remove(op.Offset)
		d.parked.remove(op.Offset)
		d.retrying.remove(op.Offset)
		d.waits.remove(op.Offset)
		d.given.end(op.Offset)
		if !d.leases.has(op.Offset) {
			d.ready.add(op.Offset)
			d.out.Wake = true
		}
	case OpSeek, OpOpen:
		d.reset()
		d.out.Wake = true
	}
}

// again has a message that failed or was lost handed out again, in its time.
func (d *Desk) again(nowMillis int64, o record.Offset) {
	l := d.leases.at(o)
	if l == nil || l.state != failing {
		return // acknowledged after all
	}
	d.leases.remove(o)
	d.refresh(o)
	d.requeue(nowMillis, o)
}

func (d *Desk) requeue(nowMillis int64, o record.Offset) {
	if d.ahead(o) {
		d.out.Wake = true
		return
	}
	k, ok := d.look(o, d.cfg.Source.End())
	if !ok {
		d.done(o)
		return
	}
	if where := d.where(k, nowMillis); where != nil {
		where.add(o)
		d.out.Wake = true
	} else if k.DueMillis > nowMillis {
		d.wait(o, k.DueMillis)
	} else {
		d.ready.add(o)
		d.out.Wake = true
	}
}

// Fired tells that messages which were sent with a delay are due. What the desk has
// not come to yet it will find.
func (d *Desk) Fired(list []record.Offset) {
	for _, o := range list {
		if !d.ahead(o) {
			d.ready.add(o)
		}
	}
	d.out.Wake = true
}

// ahead says that the desk will come to a message when it looks for new ones, in
// their order; those that it has found already are looked for again.
func (d *Desk) ahead(o record.Offset) bool {
	d.refresh(o)
	return o >= d.next
}

// Trimmed tells that the log begins at an offset, by which the group lost messages.
// Those that are in hand are found gone when they are settled.
func (d *Desk) Trimmed(to record.Offset) {
	for _, s := range []*offsets{&d.ready, &d.suspects, &d.dying, &d.parked, &d.waits} {
		s.removeBelow(to)
	}
	d.given.ended.removeBelow(to)
	d.fresh = slices.DeleteFunc(d.fresh, func(k Candidate) bool { return k.Offset < to })
	if d.keys == nil {
		return
	}
	for _, o := range d.keys.ownersBelow(to) {
		if !d.leases.has(o) {
			d.done(o)
		}
	}
}

// Retry makes a parked or failed message one that never failed; skip sets it aside
// instead, as a dead letter if there is a topic for them.
func (d *Desk) Retry(o record.Offset, skip bool) error {
	if d.leases.has(o) {
		return fmt.Errorf("%w: offset %d is in hand", ErrLeaseExpired, o)
	}
	k, ok := d.look(o, d.cfg.Source.End())
	if !ok || k.Attempts == 0 {
		return fmt.Errorf("%w: offset %d has not failed", ErrLeaseUnknown, o)
	}
	switch {
	case d.letting.has(o):
		return fmt.Errorf("%w: offset %d is set aside already", ErrLeaseExpired, o)
	case skip:
		d.withdraw(o)
		if d.dying.add(o) {
			d.out.Dying = append(d.out.Dying, o)
		}
		return nil
	}
	d.retrying.add(o)
	op := d.op(OpRetry, nil)
	op.Offset = o
	d.out.Ops = append(d.out.Ops, op)
	return nil
}

// DeadWritten tells that a dead letter is committed: its source is let go.
func (d *Desk) DeadWritten(list []record.Offset) {
	d.deadErr = nil
	list = slices.DeleteFunc(slices.Clone(list), func(o record.Offset) bool { return !d.dying.has(o) || d.retrying.has(o) })
	for _, o := range list {
		d.letting.add(o)
	}
	if len(list) > 0 {
		d.out.Ops = append(d.out.Ops, d.op(OpDead, list))
	}
}

// deadRetryMillis is after what time a dead letter is tried again that could not be written.
const deadRetryMillis = 5000

// DeadFailed tells that a dead letter could not be written; it is held and tried again.
func (d *Desk) DeadFailed(nowMillis int64, o record.Offset, err error) {
	d.deadErr = err
	if d.dying.has(o) {
		heap.Push(&d.waiting, Delayed{o, nowMillis + deadRetryMillis})
	}
}

// Effects takes what is to be done.
func (d *Desk) Effects() Effects {
	e := d.out
	d.out = Effects{}
	return e
}
