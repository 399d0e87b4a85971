package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/queue"
)

// consumer receives messages of a group and does all that a member may: it settles them
// at once or after a while, extends, releases, refuses, keeps silent, answers when it is
// asked or does not, vanishes, and speaks of leases that it had long ago. While things
// go wrong some messages end whoever handles them. In the end it only works.
type consumer struct {
	q       *queues
	g       *queueGroup
	name    string
	member  string // of a broadcast group: whose cursor; several consumers may have one
	session string
	life    int // counts sessions
	// acquires: it takes messages partition by partition, as share consumers do.
	acquires bool
	askable  bool
	guess    *node
	inHand   int // deliveries that it is at
	stopped  bool
	// answers are what it says of leases when it is asked.
	answers map[uint64]queue.Answer
}

// reconnect gives it a new session; what it had in hand it knows nothing of any more.
func (k *consumer) reconnect() {
	delete(k.q.sessions, k.session)
	k.life++
	k.session = fmt.Sprintf("%s-%d", k.name, k.life)
	k.askable = !k.q.c.oneIn(3)
	k.inHand, k.answers = 0, map[uint64]queue.Answer{}
	k.q.sessions[k.session] = k
}

func (k *consumer) next() {
	c := k.q.c
	if k.stopped {
		return
	}
	again := func(from, to time.Duration) {
		if c.calm {
			from, to = from/10, to/10 // all is to be done soon
		}
		c.after(c.between(from, to), k.next)
	}
	if k.inHand > 5 {
		again(20*time.Millisecond, 300*time.Millisecond)
		return
	}
	life := k.life
	id := k.name
	if k.member != "" {
		id = k.member
	}
	r := queue.Receiving{Member: queue.Member{ID: id, Session: k.session, Node: 1, Address: k.name + ":1", CanBeAsked: k.askable}, Max: 1 + c.rng.IntN(5)}
	c.request(k.g.t, &k.guess, func(n *node, p *partition, answer func(func())) {
		taken, confirm, err := k.take(n, p, r)
		if n.dying {
			return
		}
		answered := func(got []queue.Delivery) {
			answer(func() {
				switch {
				case err != nil && len(got) == 0:
					k.guess = nil
					again(20*time.Millisecond, 300*time.Millisecond)
				case k.life != life: // it has vanished meanwhile
				case len(got) > 0:
					k.handle(got)
					again(0, 300*time.Millisecond)
				default:
					again(50*time.Millisecond, 300*time.Millisecond)
				}
			})
		}
		if len(taken) == 0 {
			answered(nil)
			return
		}
		c.log("n%d has %d messages of %s for %s", n.id, len(taken), k.g, r.Member.Session)
		took := k.q.check.taken(n, p, k.g, k.member, r.Member.Session, taken)
		nodeLife := n.life
		confirm(func(got []queue.Delivery) {
			if n.dying || n.life != nodeLife {
				return
			}
			took.handedOut(got)
			answered(got)
		})
	}, func() { again(20*time.Millisecond, 300*time.Millisecond) })
}

// take is what a node has for the consumer; see broker.QueueReceiveNow.
func (k *consumer) take(n *node, p *partition, r queue.Receiving) (got []queue.Delivery, confirm func(func([]queue.Delivery)), err error) {
	if !k.acquires {
		return n.broker.QueueReceiveNow(k.g.id, k.g.t.partition().Topic, r)
	}
	taken, confirmed, err := p.p.QueueAcquireNow(k.g.id, queue.Taking{Member: r.Member, Max: r.Max, MaxBytes: 1 << 20})
	if err != nil || len(taken) == 0 {
		return nil, nil, err
	}
	k.q.c.faults.count("queue: acquired by partition")
	for i := range taken {
		t := &taken[i]
		got = append(got, queue.Delivery{Lease: t.Lease, Topic: k.g.t.name(), ID: t.Message.ID, Key: t.Message.Key, Value: t.Message.Value, UntilMillis: t.UntilMillis, Alone: t.Alone})
	}
	return got, func(done func([]queue.Delivery)) {
		confirmed(func(err error) {
			if err != nil {
				done(nil)
				return
			}
			if !k.g.settings.AutoAck {
				done(got)
				return
			}
			k.trust(p, got, done)
		})
	}, nil
}

// trust has what was acquired of a group that acknowledges by itself acknowledged,
// before it is handed out.
func (k *consumer) trust(p *partition, got []queue.Delivery, done func([]queue.Delivery)) {
	list := make([]queue.Settlement, len(got))
	for i := range got {
		list[i] = queue.Settlement{Lease: got[i].Lease, Verdict: queue.Acknowledge}
	}
	p.p.QueueSettleThen(k.g.id, list, func(errs []error) {
		var acknowledged []queue.Delivery
		for i, err := range errs {
			if err == nil {
				acknowledged = append(acknowledged, got[i])
			}
		}
		done(acknowledged)
	})
}

// poison ends whoever handles it.
func (k *consumer) poison(m message) bool { return !k.q.c.calm && m.sequence%29 == 7 }

// handle decides what becomes of messages.
func (k *consumer) handle(got []queue.Delivery) {
	c := k.q.c
	if k.g.settings.AutoAck {
		return // there is nothing to be said
	}
	if !c.calm && c.oneIn(40) {
		k.vanish(got, "consumer vanished")
		return
	}
	for _, d := range got {
		if m := parse(d.Value); k.poison(m) && !isLetter(d.ID) {
			k.vanish(got, "consumer ended by a message")
			return
		}
	}
	if k.member == "" && (len(got) > 1 && !c.calm && c.oneIn(5) || !c.calm && c.oneIn(12)) {
		k.q.complete(k, got)
		return
	}
	for i := range got {
		k.handleOne(got[i])
	}
}

func (k *consumer) handleOne(d queue.Delivery) {
	c := k.q.c
	l := d.Lease
	k.inHand++
	k.answers[l.Nonce] = queue.AnswerWorking
	how := c.rng.IntN(100)
	if c.calm {
		k.later(c.between(0, 20*time.Millisecond), queue.Settlement{Lease: l, Verdict: queue.Acknowledge})
		return
	}
	later := func(from, to time.Duration, s queue.Settlement) { k.later(c.between(from, to), s) }
	switch {
	case how < 60:
		later(0, time.Second, queue.Settlement{Lease: l, Verdict: queue.Acknowledge})
	case how < 70:
		delay := time.Duration(-1)
		if c.oneIn(2) {
			delay = c.between(0, time.Second)
		}
		later(0, 500*time.Millisecond, queue.Settlement{Lease: l, Verdict: queue.Nack, Delay: delay, Reason: "cannot"})
	case how < 77:
		later(0, 500*time.Millisecond, queue.Settlement{Lease: l, Verdict: queue.Release, Delay: c.between(0, 300*time.Millisecond)})
	case how < 84:
		k.settle(queue.Settlement{Lease: l, Verdict: queue.Extend, Delay: c.between(0, 3*time.Second)}, 3, func(error) {})
		later(time.Second, 3*time.Second, queue.Settlement{Lease: l, Verdict: queue.Acknowledge})
	case how < 87:
		later(0, 500*time.Millisecond, queue.Settlement{Lease: l, Verdict: queue.Dead, Reason: "never"})
	default:
		// It says nothing until it is asked, and perhaps later.
		k.answers[l.Nonce] = []queue.Answer{queue.AnswerUnknown, queue.AnswerDone, queue.AnswerWorking, silent}[c.rng.IntN(4)]
		k.inHand--
		if c.oneIn(2) {
			c.faults.count("consumer spoke late")
			c.after(c.between(3*time.Second, 12*time.Second), func() {
				k.settle(queue.Settlement{Lease: l, Verdict: queue.Acknowledge}, 3, func(error) {})
			})
		}
	}
}

// silent: no answer.
const silent = queue.Answer(99)

// later settles a lease after a while, unless the consumer has vanished by then.
func (k *consumer) later(d time.Duration, s queue.Settlement) {
	c, life := k.q.c, k.life
	c.after(d, func() {
		if k.life != life {
			return
		}
		k.settle(s, 6, func(err error) {
			if k.life == life {
				k.inHand--
				delete(k.answers, s.Lease.Nonce)
			}
			if err == nil && s.Verdict == queue.Acknowledge && c.oneIn(8) {
				k.settle(s, 2, func(error) {}) // once more
			}
		})
	})
}

// settle says something of a lease to whoever leads, some times until it is answered.
func (k *consumer) settle(s queue.Settlement, tries int, done func(error)) {
	c := k.q.c
	again := func(err error) {
		if tries == 1 {
			done(err)
			return
		}
		c.after(c.between(5*time.Millisecond, 200*time.Millisecond), func() { k.settle(s, tries-1, done) })
	}
	c.request(k.g.t, &k.guess, func(n *node, p *partition, answer func(func())) {
		heard := k.q.check.settling(n, p, k.g, s)
		p.p.QueueSettleThen(k.g.id, []queue.Settlement{s}, func(errs []error) {
			err := errs[0]
			if n.dying {
				return
			}
			c.log("n%d answers verdict %d on %d of %s: %v", n.id, s.Verdict, s.Lease.Offset, k.g, err)
			heard(err)
			answer(func() {
				if unheard(err) {
					k.guess = nil
					again(err)
					return
				}
				done(err)
			})
		})
	}, func() { again(broker.ErrUnknownOutcome) })
}

// unheard: nothing is known, another may be asked.
func unheard(err error) bool {
	for _, e := range []error{broker.ErrNotLeader, broker.ErrUnknownOutcome, broker.ErrBusy, broker.ErrStorage, queue.ErrUnknownGroup} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// vanish ends the consumer with messages in hand; nodes may hear of it or not. Another
// comes in its place, which now and then speaks for it.
func (k *consumer) vanish(got []queue.Delivery, why string) {
	c, session := k.q.c, k.session
	c.faults.count(why)
	c.log("%s vanishes: %s", session, why)
	k.reconnect()
	if !c.oneIn(3) {
		for _, n := range c.nodes {
			n.after(c.between(time.Millisecond, time.Second), func() {
				n.run(func() {
					k.q.check.sessionEnds(n, session)
					n.broker.QueueSessionGone(session)
				})
			})
		}
	}
	for _, d := range got {
		if c.oneIn(4) {
			c.faults.count("consumer spoke late")
			c.after(c.between(10*time.Millisecond, 8*time.Second), func() {
				k.settle(queue.Settlement{Lease: d.Lease, Verdict: queue.Acknowledge}, 2, func(error) {})
			})
		}
	}
}

// askConsumer puts a broker's question to a consumer, and its answer back, if neither
// gets lost. It is broker.QueueHooks.Ask.
func (n *node) askConsumer(id queue.GroupID, ask queue.Ask, answer func(queue.Lease, queue.Answer)) {
	c, life := n.c, n.life
	q := c.queues
	c.faults.count("consumer asked")
	c.after(c.between(time.Millisecond, 300*time.Millisecond), func() {
		k := q.sessions[ask.Member.Session]
		if k == nil {
			return
		}
		for _, l := range ask.Leases {
			how, known := k.answers[l.Nonce]
			if !known {
				how = queue.AnswerUnknown
			}
			if how == silent {
				continue
			}
			c.faults.count([]string{"consumer asked: unknown", "consumer asked: done", "consumer asked: working"}[how])
			if how == queue.AnswerDone {
				q.check.saidDone(k.g, l)
			}
			n.after(c.between(time.Millisecond, 300*time.Millisecond), func() {
				if n.life == life {
					n.run(func() {
						q.check.answeredInquiry(k.g, l)
						answer(l, how)
					})
				}
			})
		}
	})
}
