package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// completion is one acknowledge-and-send: of messages of one team, to the other. Its
// steps are those of internal/node: the acknowledgements and the intent in one entry,
// then the message, then the intent is done. Who begins it may not come to the end.
type completion struct {
	id     string
	home   *queueGroup
	to     *team
	msg    message
	leases []queue.Lease

	intended, carried bool // committed at home: the intent, and that it is done
	refused           bool
	stored            int // times
}

// completing is where the client numbers of messages begin that completions send.
const completing = 1 << 20

func (q *queues) complete(k *consumer, got []queue.Delivery) {
	c := q.c
	q.completes++
	x := &completion{
		id: fmt.Sprint("complete-", q.completes), home: k.g, to: k.g.t.queue.other,
		msg: summed(message{client: completing + uint32(q.completes), sequence: 1}),
	}
	for _, d := range got {
		x.leases = append(x.leases, d.Lease)
		k.answers[d.Lease.Nonce] = queue.AnswerWorking
	}
	q.check.completions[x.id] = x
	c.faults.count("complete asked for")
	life := k.life
	wait := 500 * time.Millisecond
	if c.oneIn(4) {
		wait = 5 * time.Second // longer than leases may last
	}
	c.after(c.between(0, wait), func() {
		if k.life == life {
			q.begin(k, x)
		}
	})
}

func (q *queues) begin(k *consumer, x *completion) {
	c := q.c
	c.request(x.home.t, &k.guess, func(n *node, p *partition, answer func(func())) {
		heard := q.check.completing(n, x)
		p.p.QueueCompleteThen(x.home.id, x.leases, x.id, []byte(x.id), func(errs []error, err error) {
			if n.dying {
				return
			}
			c.log("n%d answers %s: %v %v", n.id, x.id, errs, err)
			ok := heard(errs, err)
			answer(func() {
				switch {
				case !ok:
				case c.oneIn(3):
					c.faults.count("complete left to the leader")
				default:
					q.sendOn(x, new(*node), 5)
				}
			})
		})
	}, func() {})
}

func (x *completion) outgoing() []queue.Outgoing {
	return []queue.Outgoing{{Value: encodeMessage(x.msg), KeyNull: true, OnceID: x.id}}
}

// sendOn carries out what was intended, as who began it does.
func (q *queues) sendOn(x *completion, guess **node, tries int) {
	c := q.c
	again := func() {
		if tries > 1 {
			*guess = nil
			c.after(c.between(5*time.Millisecond, 200*time.Millisecond), func() { q.sendOn(x, guess, tries-1) })
		}
	}
	c.request(x.to, guess, func(_ *node, p *partition, answer func(func())) {
		p.p.QueueSendThen(x.outgoing(), func(sent []queue.Sent) {
			answer(func() {
				if sent[0].Err != nil {
					again()
					return
				}
				q.finish(x, new(*node))
			})
		})
	}, again)
}

func (q *queues) finish(x *completion, guess **node) {
	q.c.request(x.home.t, guess, func(_ *node, p *partition, answer func(func())) {
		p.p.QueueIntendedThen(x.id, func(error) {})
	}, func() {})
}

// carryOut does, for a partition that the node leads, what was intended and left. It is
// broker.QueueHooks.CarryOut.
func (n *node) carryOut(_ context.Context, of record.TopicPartition, id string, intent []byte) {
	c := n.c
	x := c.queues.check.completions[string(intent)]
	if x == nil || x.id != id || x.home.t.partition() != of {
		c.check.fail("node %d is to carry out %q as %q of %s, which nobody intended", n.id, intent, id, of)
	}
	c.faults.count("complete carried out by the leader")
	n.send(x.to, x.outgoing(), func(err error) {
		if h := n.here[x.home.t.id]; err == nil && h != nil && h.group != nil {
			h.machine.(*partition).p.QueueIntendedThen(id, func(error) {})
		}
	})
}

// send sends a message from node to node, once; done is called if an answer comes.
func (n *node) send(to *team, list []queue.Outgoing, done func(error)) {
	c, life := n.c, n.life
	lead := to.leader()
	if lead == nil {
		return
	}
	c.net.call(n, lead, func() {
		h := lead.here[to.id]
		if h == nil || h.group == nil {
			return
		}
		h.machine.(*partition).p.QueueSendThen(list, func(sent []queue.Sent) {
			c.net.call(lead, n, func() {
				if n.life == life {
					done(sent[0].Err)
				}
			})
		})
	})
}

// letterWriter is a node's broker.DeadLetters.
type letterWriter struct{ n *node }

// Write implements broker.DeadLetters.
func (w letterWriter) Write(_ context.Context, d queue.DeadLetter, done func(error)) {
	n := w.n
	c, life, over := n.c, n.life, false
	finish := func(err error) {
		if !over && n.life == life {
			over = true
			done(err)
		}
	}
	for _, t := range c.teams {
		if t.queue != nil && fmt.Sprint("t", t.id) == d.To {
			m := d.Message
			n.send(t, []queue.Outgoing{{Key: m.Key, KeyNull: m.KeyNull, Value: m.Value, ID: d.ID()}}, finish)
		}
	}
	n.after(3*time.Second, func() { n.run(func() { finish(errNoWay) }) })
}
