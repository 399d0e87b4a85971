package sim

import (
	"fmt"
	"strconv"
	"time"

	"github.com/tube-mq/tube/internal/queue"
)

// sender sends messages to a team until each is stored: some with ids, some with keys,
// some to be delivered later.
type sender struct {
	q       *queues
	t       *team
	id      uint32
	last    uint32 // sequence
	guess   *node
	stopped bool
	acked   int
}

func (q *queues) makeClients() {
	c := q.c
	for _, t := range c.teams {
		if t.queue == nil {
			continue
		}
		c.clientIDs++
		s := &sender{q: q, t: t, id: c.clientIDs}
		q.senders = append(q.senders, s)
		c.after(c.between(0, time.Second), s.next)
		for _, g := range t.queue.groups {
			for i := range max(2+c.rng.IntN(2), len(g.members)) {
				k := &consumer{q: q, g: g, name: fmt.Sprintf("c%d", len(q.consumers)+1), member: g.members[i%len(g.members)]}
				k.acquires = c.withModes() && k.member == "" && c.oneIn(3)
				q.consumers = append(q.consumers, k)
				k.reconnect()
				c.after(c.between(0, time.Second), k.next)
			}
		}
	}
}

// delayOf, keyOf and idOf follow from a message's number, as its text does.
func delayOf(m message) time.Duration {
	if m.sequence%7 != 3 {
		return 0
	}
	return time.Duration(m.sequence%40+1) * 150 * time.Millisecond
}

func idOf(m message) string {
	if m.sequence%2 == 0 {
		return ""
	}
	return fmt.Sprintf("id-%d-%d", m.client, m.sequence)
}

func (t *team) keyOf(m message) []byte {
	if m.sequence%5 == 0 {
		return nil
	}
	return []byte("k" + strconv.Itoa(int(m.sequence)%t.queue.keys))
}

func (s *sender) outgoing(m message) queue.Outgoing {
	key := s.t.keyOf(m)
	return queue.Outgoing{Key: key, KeyNull: key == nil, Value: encodeMessage(m), ID: idOf(m), Delay: delayOf(m)}
}

func (s *sender) next() {
	if s.stopped {
		return
	}
	var list []message
	for range 1 + s.q.c.rng.IntN(4) {
		s.last++
		list = append(list, summed(message{client: s.id, sequence: s.last}))
	}
	s.send(list)
}

func (s *sender) send(list []message) {
	c := s.q.c
	out := make([]queue.Outgoing, len(list))
	for i := range list {
		out[i] = s.outgoing(list[i])
	}
	var sent []queue.Sent
	c.request(s.t, &s.guess, func(n *node, p *partition, answer func(func())) {
		p.p.QueueSendThen(out, func(got []queue.Sent) {
			if n.dying {
				return
			}
			sent = got
			for i := range got {
				c.log("n%d answers sender %d message %d: %d duplicate %v %v", n.id, s.id, list[i].sequence, got[i].Offset, got[i].Duplicate, got[i].Err)
				if got[i].Err == nil {
					s.q.check.sent(s.t, list[i], got[i])
				}
			}
			answer(func() { s.answered(list, sent) })
		})
	}, func() { c.after(c.between(5*time.Millisecond, 200*time.Millisecond), func() { s.send(list) }) })
}

// answered sends again what is not stored, and now and then what is.
func (s *sender) answered(list []message, sent []queue.Sent) {
	c := s.q.c
	var rest []message
	for i := range sent {
		switch {
		case sent[i].Err != nil:
			rest = append(rest, list[i])
		case idOf(list[i]) != "" && c.oneIn(10):
			c.faults.count("message sent again with its id")
			rest = append(rest, list[i])
			s.acked++
		default:
			s.acked++
			if s.t.queue.short() && idOf(list[i]) != "" && c.oneIn(2) {
				s.repeat(list[i])
			}
		}
	}
	if len(rest) > 0 {
		s.guess = nil
		c.after(c.between(5*time.Millisecond, 200*time.Millisecond), func() { s.send(rest) })
		return
	}
	c.after(c.between(50*time.Millisecond, 600*time.Millisecond), s.next)
}

// repeat sends a stored message once more, perhaps when its window has passed.
func (s *sender) repeat(m message) {
	c := s.q.c
	c.after(c.between(s.t.queue.window, 25*time.Second), func() {
		if s.stopped || c.calm {
			return
		}
		c.request(s.t, &s.guess, func(n *node, p *partition, answer func(func())) {
			p.p.QueueSendThen([]queue.Outgoing{s.outgoing(m)}, func(got []queue.Sent) {
				if !n.dying && got[0].Err == nil {
					c.log("n%d answers sender %d message %d, sent again: %d duplicate %v", n.id, s.id, m.sequence, got[0].Offset, got[0].Duplicate)
					s.q.check.sent(s.t, m, got[0])
				}
			})
		}, func() {})
	})
}
