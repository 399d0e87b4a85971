package queue

import (
	"container/heap"
	"slices"

	"github.com/tube-mq/tube/internal/record"
)

// askMillis is how long a consumer may think about a question.
const askMillis = 2000

// avoidMillis is how long a message does not go to who had it last and did not answer.
const avoidMillis = 5000

// Tick does what is due: leases that ran out, messages whose time has come.
func (d *Desk) Tick(nowMillis int64) {
	for len(d.waiting) > 0 && d.waiting[0].DueMillis <= nowMillis {
		e := heap.Pop(&d.waiting).(Delayed)
		waited := d.waits.remove(e.Offset)
		if d.leases.has(e.Offset) {
			continue
		}
		if d.dying.remove(e.Offset) {
			// A dead letter that could not be written.
			if k, ok := d.look(e.Offset, d.cfg.Source.End()); ok && !d.isDead(k) {
				d.dying.add(e.Offset) // skipped by an operator
				d.out.Dying = append(d.out.Dying, e.Offset)
				continue
			}
			waited = true
		}
		if waited {
			d.requeue(nowMillis, e.Offset)
		}
	}
	var out []*lease
	for l := d.leases.ending(); l != nil && d.untilMillis(l) <= nowMillis; l = d.leases.ending() {
		out = append(out, l)
		d.leases.prolong(l, d.length(l, nowMillis+askMillis))
	}
	d.ended(nowMillis, out, "lease ran out")
}

// ended asks about leases, or gives them up.
func (d *Desk) ended(nowMillis int64, list []*lease, reason string) {
	var asks map[*hand][]Lease
	for _, l := range list {
		if h := d.handOf(l); l.state == held && h.member.CanBeAsked {
			l.state = asked
			if asks == nil {
				asks = map[*hand][]Lease{}
			}
			asks[h] = append(asks[h], d.leaseOf(l))
			continue
		}
		d.lose(l, nowMillis, reason)
	}
	for _, l := range list {
		if len(asks) == 0 {
			break
		}
		h := d.handOf(l)
		if leases := asks[h]; leases != nil { // in order, not the map's
			d.out.Asks = append(d.out.Asks, Ask{h.member, leases})
			delete(asks, h)
		}
	}
}

func (d *Desk) leaseOf(l *lease) Lease {
	return Lease{d.cfg.Partition, l.offset, int(l.attempt), l.nonce, d.cursor, d.generation}
}

// lose gives up a lease whose consumer did not settle it. It is counted if the
// consumer held nothing else meanwhile; else it may have been another that it
// perished by, so the message becomes a suspect.
func (d *Desk) lose(l *lease, nowMillis int64, reason string) {
	h := d.handOf(l)
	counted := l.alone || h.lone == lone{d, l.offset}
	if l.state == asked {
		reason += ", no answer"
	}
	d.letGo(l)
	l.state = failing
	if len(d.avoid) < 10_000 {
		d.avoid[l.offset] = avoided{h.member.ID, nowMillis + avoidMillis}
	}
	if counted {
		d.fail(l, nowMillis, Settlement{Reason: reason}, h.member)
		return
	}
	l.state = failing
	if n := len(d.out.Ops); n > 0 && d.out.Ops[n-1].Kind == OpSuspect {
		d.out.Ops[n-1].Offsets = append(d.out.Ops[n-1].Offsets, l.offset)
	} else {
		d.out.Ops = append(d.out.Ops, d.op(OpSuspect, []record.Offset{l.offset}))
	}
}

// Answer takes a consumer's answer to a question.
func (d *Desk) Answer(nowMillis int64, lease Lease, a Answer) {
	l := d.leases.at(lease.Offset)
	if l == nil || l.state != asked || l.nonce != lease.Nonce {
		return
	}
	switch a {
	case AnswerDone:
		d.letGo(l)
		d.acknowledge(l)
	case AnswerWorking:
		if d.extend(l, nowMillis, d.cfg.Settings.Lease) != nil {
			d.lose(l, nowMillis, "longest handling time exceeded")
		}
	default:
		d.lose(l, nowMillis, "lease ran out, the consumer does not know of it")
	}
}

// SessionGone tells that a session has ended: what it holds is asked about, where
// the consumer may be back under another session, or given up.
func (d *Desk) SessionGone(nowMillis int64, session string) {
	h := d.cfg.Hands.bySession[session]
	if h == nil || h.count == 0 {
		return
	}
	out := slices.DeleteFunc(d.leases.inHand(h.number), func(l *lease) bool { return l.state != held })
	for _, l := range out {
		d.leases.prolong(l, d.length(l, nowMillis+askMillis))
	}
	d.ended(nowMillis, out, "consumer went away")
}

// DeadlineMillis is when Tick is to be called; 0: never.
func (d *Desk) DeadlineMillis() int64 {
	at := int64(0)
	if l := d.leases.ending(); l != nil {
		at = d.untilMillis(l)
	}
	if len(d.waiting) > 0 && (at == 0 || d.waiting[0].DueMillis < at) {
		at = d.waiting[0].DueMillis
	}
	return at
}

// RateMillis is when the rates let something through for who waits; 0: they do not hinder.
func (d *Desk) RateMillis(nowMillis int64) int64 {
	_, at := d.cfg.Rates.ready(nowMillis)
	return at
}

// Idle says that the desk knows nothing that the State does not: it may be dropped
// and made anew.
func (d *Desk) Idle() bool {
	return d.leases.count == 0 && len(d.waiting) == 0 && d.dying.empty() && d.cfg.Settings.Rate == 0 && d.cfg.Settings.RateBytes == 0
}
