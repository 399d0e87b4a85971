package sim

import (
	"hash/crc32"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// network carries messages between nodes, as long as they are lucky.
type network struct {
	c *cluster
	// cut has the directions that carry nothing, by node ids.
	cut map[[2]record.NodeID]bool
	// Odds of a message, in 1000.
	drop, repeat, late int
	slowest            time.Duration // of a message that is not late
}

// wire is the network as one node sees it.
type wire struct{ n *node }

// Send implements replica.Transport.
func (w wire) Send(to record.NodeID, parts [][]byte, release func()) bool {
	defer release()
	n := w.n
	c := n.c
	if n.dying || !n.up {
		return false
	}
	var body []byte
	for _, p := range parts {
		body = append(body, p...)
	}
	c.check.sent(n, body)
	if c.net.cut[[2]record.NodeID{n.id, to}] {
		c.faults.count("message cut off")
		return c.oneIn(2) // a sender may or may not notice
	}
	c.net.carry(func(delay time.Duration) { c.net.deliver(delay, n.id, c.node(to), body) })
	return true
}

// call has f run on another node, if and when a message arrives there.
func (w *network) call(from, to *node, f func()) {
	c := w.c
	if w.cut[[2]record.NodeID{from.id, to.id}] || from.dying || !from.up {
		return
	}
	w.carry(func(delay time.Duration) {
		c.after(delay, func() {
			if to.up {
				// A pausing node finds its mail when it wakes.
				c.push(&event{at: c.now, node: to, life: to.life, do: func() { to.run(f) }})
			}
		})
	})
}

// carry delivers a message, with luck; deliver has it arrive after a delay.
func (w *network) carry(deliver func(delay time.Duration)) {
	c := w.c
	if c.rng.IntN(1000) < w.drop {
		c.faults.count("message dropped")
		return
	}
	delay := c.between(100*time.Microsecond, max(w.slowest, 500*time.Microsecond))
	if c.rng.IntN(1000) < w.late {
		c.faults.count("message late")
		delay += c.between(10*time.Millisecond, 3*time.Second)
	}
	deliver(delay)
	if c.rng.IntN(1000) < w.repeat {
		c.faults.count("message repeated")
		deliver(delay + c.between(0, 500*time.Millisecond))
	}
}

func (w *network) deliver(delay time.Duration, from record.NodeID, to *node, body []byte) {
	c := w.c
	sent := c.seq
	c.after(delay, func() {
		if !to.up {
			return
		}
		if to.arrived[from] > sent {
			c.faults.count("message overtaken")
		}
		to.arrived[from] = max(to.arrived[from], sent)
		// A pausing node finds its mail when it wakes.
		c.push(&event{at: c.now, node: to, life: to.life, do: func() {
			group, m, err := replica.Peek(body)
			if err != nil {
				c.check.fail("a message from node %d does not decode: %v", from, err)
			}
			c.log("n%d<-n%d g%d %v %d->%d t%d i%d n%d %08x", to.id, from, group, m.GetType(), m.GetFrom(), m.GetTo(), m.GetTerm(), m.GetIndex(), len(m.GetEntries()), crc32.ChecksumIEEE(body))
			to.run(func() {
				buf := record.NewBuffer(len(body))
				copy(buf.B, body)
				if err := to.host.Receive(buf.B, buf); err != nil {
					c.check.fail("node %d cannot receive: %v", to.id, err)
				}
				buf.Release()
			})
		}})
	})
}
