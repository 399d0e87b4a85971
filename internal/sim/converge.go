package sim

import (
	"fmt"
	"time"
)

// Bounds of virtual time after the healing.
const (
	toProgress = 30 * time.Second
	toConverge = 60 * time.Second
	toDrain    = 60 * time.Second
)

// converge demands, once everybody is healed, that every client gets on, that
// groups get the members they should have, and that all replicas are the same.
func (c *cluster) converge() {
	before := map[*client]int{}
	for _, k := range c.clients {
		before[k] = k.acked
	}
	why := ""
	progress := func() bool {
		for _, k := range c.clients {
			if k.acked < before[k]+3 {
				why = fmt.Sprintf("client %d of group %d got %d acknowledgements", k.id, k.team.id, k.acked-before[k])
				return false
			}
		}
		return true
	}
	if !c.until(c.now+toProgress, progress) {
		c.check.fail("no progress within %v of healing: %s", toProgress, why)
	}
	for _, k := range c.clients {
		k.stopped = true
	}
	if c.queues != nil {
		c.queues.drain()
	}
	if !c.until(c.now+toConverge, func() bool { why = c.differs(); return why == "" }) {
		c.check.fail("not the same everywhere %v after healing: %s", toConverge, why)
	}
	for _, t := range c.teams {
		for _, n := range c.nodes {
			h := n.here[t.id]
			if !n.up || h == nil || h.id != t.at(n.id) {
				continue
			}
			list, err := h.machine.read(true)
			if err != nil {
				c.check.fail("replica %d of group %d on node %d cannot be read: %v", h.id, t.id, n.id, err)
			}
			c.check.read(t, list, c.check.ackedOf(t))
		}
	}
	for _, n := range c.nodes {
		if n.up {
			c.check.inspect(n)
		}
	}
	if c.queues != nil {
		c.queues.check.end()
	}
	c.log("done")
}

// drain demands that senders get on and that then, with consumers that do their work,
// every message is acknowledged or dead in all groups, and all that was completed sent.
func (q *queues) drain() {
	c := q.c
	before := map[*sender]int{}
	for _, s := range q.senders {
		before[s] = s.acked
	}
	if !c.until(c.now+toProgress, func() bool {
		for _, s := range q.senders {
			if s.acked < before[s]+3 {
				return false
			}
		}
		return true
	}) {
		c.check.fail("senders to queues made no progress within %v of healing", toProgress)
	}
	for _, s := range q.senders {
		s.stopped = true
	}
	why := ""
	if !c.until(c.now+toDrain, func() bool { why = q.check.left(); return why == "" }) {
		c.check.fail("%v after healing: %s", toDrain, why)
	}
	for _, k := range q.consumers {
		k.stopped = true
	}
	if q.operator != nil {
		q.operator.stopped = true
	}
}

// differs says what is not yet as it should be; "": nothing.
func (c *cluster) differs() string {
	for _, n := range c.nodes {
		if n.rotten && n != c.absent {
			return fmt.Sprintf("nobody has found the damage on node %d", n.id)
		}
	}
	for _, t := range c.teams {
		lead := t.leader()
		if lead == nil {
			return fmt.Sprintf("group %d has no leader", t.id)
		}
		away := c.absent != nil && t.at(c.absent.id) != 0
		if !t.settled && !away {
			return fmt.Sprintf("group %d has not the members it should have", t.id)
		}
		want := lead.host.Look(lead.here[t.id].group, false)
		for id, on := range t.peers {
			n := c.node(on)
			if n == c.absent {
				continue
			}
			h := n.here[t.id]
			if !n.up || h == nil || h.group == nil || h.id != id {
				return fmt.Sprintf("replica %d of group %d does not run on node %d", id, t.id, on)
			}
			l := n.host.Look(h.group, false)
			if l == nil {
				return fmt.Sprintf("replica %d of group %d on node %d is damaged", id, t.id, on)
			}
			if l.Applied != want.Last {
				return fmt.Sprintf("replica %d of group %d on node %d has applied %d of %d", id, t.id, on, l.Applied, want.Last)
			}
		}
	}
	return ""
}
