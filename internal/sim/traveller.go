package sim

import (
	"errors"
	"time"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/record"
)

// traveller reads one partition from wherever it comes by, leader or follower, as
// a consumer does: with the newest leader epoch that it has heard of, one fetch
// after the other. For it the high watermark must not go back, what it was told to
// be there must not be out of range, and the log has no gap.
type traveller struct {
	c    *cluster
	team *team

	epoch record.Epoch  // newest heard of
	high  record.Offset // highest high watermark told
	next  record.Offset // to be read
	turn  int           // counts fetches; what belongs to an earlier one is void
}

func (c *cluster) makeTravellers() {
	for _, t := range c.teams {
		if t.kind == (partitionKind{}) {
			v := &traveller{c: c, team: t, epoch: -1}
			c.after(c.between(0, time.Second), v.move)
		}
	}
}

// move asks a node, and then goes on to another.
func (v *traveller) move() {
	c := v.c
	v.turn++
	turn := v.turn
	next := func(wait time.Duration) {
		c.after(wait, func() {
			if v.turn == turn {
				v.move()
			}
		})
	}
	next(c.between(500*time.Millisecond, time.Second)) // whatever becomes of it
	n := c.nodes[c.rng.IntN(len(c.nodes))]
	n.after(c.between(50*time.Microsecond, 2*time.Millisecond), func() {
		n.run(func() {
			if h := n.here[v.team.id]; h != nil && h.group != nil && v.turn == turn {
				v.ask(n, h, func() { next(c.between(0, 50*time.Millisecond)) })
			}
		})
	})
}

// ask fetches from a node; done is called if there is an answer.
func (v *traveller) ask(n *node, h *hosted, done func()) {
	c, p, life := v.c, h.machine.(*partition), n.life
	if s := h.group.Status(); s.Leader != 0 && (v.epoch < 0 || c.oneIn(2)) {
		v.epoch = max(v.epoch, record.Epoch(s.Term)) // the node's metadata says so
	}
	if v.epoch < 0 {
		return
	}
	req := broker.ReadRequest{Offset: v.next, MaxBytes: 8 << 10, MinOne: true, LeaderEpoch: v.epoch}
	r, err := p.p.Read(req)
	if !errors.Is(err, broker.ErrNotLeader) {
		v.answered(n, p, r, err)
		done()
		return
	}
	turn := v.turn
	stop := p.p.CatchUp(v.epoch, func(err error) {
		if n.dying || n.life != life || v.turn != turn {
			return
		}
		if err == nil {
			req.CaughtUp = true
			r, err := p.p.Read(req)
			if r.Followed && err == nil {
				c.faults.count("read from a follower")
			}
			v.answered(n, p, r, err)
		}
		done()
	})
	c.after(c.between(100*time.Millisecond, 500*time.Millisecond), stop)
}

// answered checks an answer.
func (v *traveller) answered(n *node, p *partition, r broker.ReadResult, err error) {
	k := v.c.check
	if errors.Is(err, broker.ErrOutOfRange) {
		k.fail("node %d says that offset %d of group %d is out of range in term %d, below a high watermark of %d that was told: %v", n.id, v.next, v.team.id, v.epoch, v.high, err)
	}
	if err != nil {
		return
	}
	if r.Bounds.HighWatermark < v.high {
		k.fail("the high watermark of group %d goes back from %d to %d on node %d in term %d, followed: %v", v.team.id, v.high, r.Bounds.HighWatermark, n.id, v.epoch, r.Followed)
	}
	v.high = r.Bounds.HighWatermark
	list, err := p.messages(r)
	if err != nil {
		return // reported
	}
	for _, m := range list {
		if record.Offset(m.offset) < v.next {
			continue // a batch begins before
		}
		if record.Offset(m.offset) != v.next || v.next >= v.high {
			k.fail("a reader of group %d that was at %d of %d gets offset %d from node %d", v.team.id, v.next, v.high, m.offset, n.id)
		}
		k.value(v.team, m)
		v.next++
	}
	v.c.log("n%d tells a traveller of g%d: %d of %d, followed: %v", n.id, v.team.id, v.next, v.high, r.Followed)
}

// asker carries questions between brokers over the network.
type asker struct{ n *node }

// AskEnd implements broker.Asker. As any message, question and answer may be lost,
// late or repeated.
func (a asker) AskEnd(node record.NodeID, group record.Group, term record.Term, done func(broker.Bounds, bool)) (cancel func()) {
	n, other := a.n, a.n.c.node(node)
	life := n.life
	n.c.net.call(n, other, func() {
		b, ok := other.broker.EndIn(group, term)
		n.c.log("n%d tells n%d that g%d ends at %d in term %d: %v", other.id, n.id, group, b.HighWatermark, term, ok)
		n.c.net.call(other, n, func() {
			if n.life == life {
				done(b, ok)
			}
		})
	})
	return func() {}
}
