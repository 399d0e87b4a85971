package sim

import (
	"errors"
	"hash/crc32"
	"time"

	"github.com/tube-mq/tube/internal/replica"
)

// client produces one message after the other to one team, each until it is
// acknowledged, and now and then reads everything behind a barrier.
type client struct {
	c    *cluster
	id   uint32
	team *team
	// sequence is of the message under way; attempt counts its tries.
	sequence uint32
	attempt  int
	guess    *node // who seems to lead
	acked    int
	stopped  bool
	losses   int // of its team, that it knows of
}

func (c *cluster) makeClients() {
	for _, t := range c.teams {
		if t.queue != nil {
			continue // it has its own
		}
		for range 1 + c.rng.IntN(3) {
			c.clientIDs++
			k := &client{c: c, id: c.clientIDs, team: t}
			c.clients = append(c.clients, k)
			c.after(c.between(0, time.Second), k.next)
		}
	}
}

func (k *client) next() {
	if k.stopped {
		return
	}
	k.sequence++
	k.attempt = 0
	k.try()
}

// try sends the present message to whoever seems to lead.
func (k *client) try() {
	c := k.c
	k.attempt++
	attempt, sequence := k.attempt, k.sequence
	mine := func() bool { return k.sequence == sequence && k.attempt == attempt }
	again := func(wait time.Duration) { c.after(wait, k.try) }
	n := k.guess
	if n == nil || !n.up {
		n = c.nodes[c.rng.IntN(len(c.nodes))]
		// Metadata names a leader, though not always the present one.
		if lead := k.team.leader(); lead != nil && c.oneIn(2) {
			n = lead
		}
	}
	k.guess = n
	// Whatever becomes of it, the client asks again after a while.
	c.after(c.between(500*time.Millisecond, 3*time.Second), func() {
		if mine() {
			c.faults.count("client timed out")
			k.guess = nil
			k.try()
		}
	})
	msg := message{client: k.id, sequence: k.sequence}
	msg.sum = crc32.ChecksumIEEE(text(msg))
	life := n.life
	c.push(&event{at: c.now + c.between(50*time.Microsecond, 2*time.Millisecond), node: n, life: n.life, do: func() {
		n.run(func() {
			h := n.here[k.team.id]
			if h == nil || h.group == nil {
				c.after(time.Millisecond, func() {
					if mine() {
						k.guess = nil
						k.attempt++
						again(c.between(10*time.Millisecond, 100*time.Millisecond))
					}
				})
				return
			}
			h.machine.produce(msg, func(a answer) {
				if n.dying || n.life != life {
					return // nobody hears it
				}
				c.log("n%d answers client %d sequence %d: %d %v", n.id, k.id, sequence, a.offset, a.err)
				if a.err == nil {
					// From here on it counts, whether the client hears of it or not.
					c.check.acknowledged(k.team, msg, a.offset)
				}
				c.after(c.between(50*time.Microsecond, 2*time.Millisecond), func() {
					if mine() {
						k.answered(a)
					}
				})
			})
		})
	}})
}

func (k *client) answered(a answer) {
	c := k.c
	switch {
	case a.err == nil:
		k.acked++
		k.attempt++ // the timeout is void
		if c.oneIn(20) {
			c.read(k.guess, k.team)
		}
		c.after(c.between(0, 100*time.Millisecond), k.next)
	case errors.Is(a.err, errSequence) && c.check.of(k.team.id).losses > k.losses:
		// What it had acknowledged is lost: it begins anew, as another.
		k.losses = c.check.of(k.team.id).losses
		c.clientIDs++
		k.id, k.sequence, k.guess = c.clientIDs, 0, nil
		c.faults.count("client began anew")
		c.after(c.between(0, 100*time.Millisecond), k.next)
	case errors.Is(a.err, errSequence):
		c.check.fail("client %d: sequence %d, its next, is refused: %v", k.id, k.sequence, a.err)
	default:
		if errors.Is(a.err, replica.ErrUnknownOutcome) {
			c.faults.count("outcome unknown")
		}
		k.guess = nil
		k.attempt++
		c.after(c.between(5*time.Millisecond, 200*time.Millisecond), k.try)
	}
}

// makeReaders has somebody read from each team now and then, from whatever node
// believes to lead: also one that was cut off, or has just woken up.
func (c *cluster) makeReaders() {
	for _, t := range c.teams {
		var next func()
		next = func() {
			if n := c.nodes[c.rng.IntN(len(c.nodes))]; n.up && n.here[t.id] != nil {
				c.read(n, t)
			}
			c.after(c.between(10*time.Millisecond, 400*time.Millisecond), next)
		}
		c.after(c.between(0, time.Second), next)
	}
}

// read asks a node for everything, behind a barrier.
func (c *cluster) read(n *node, t *team) {
	life := n.life
	n.after(c.between(50*time.Microsecond, 2*time.Millisecond), func() {
		n.run(func() {
			h := n.here[t.id]
			if h == nil || h.group == nil {
				return
			}
			seen := c.check.ackedOf(t)
			n.host.Barrier(h.group, func(err error) {
				if err != nil || n.dying || n.life != life {
					return
				}
				list, err := h.machine.read(false)
				c.log("n%d reads %d of g%d: %v", n.id, len(list), t.id, err)
				if err == nil {
					c.faults.count("read behind a barrier")
					c.check.read(t, list, seen)
				}
			})
		})
	})
}
