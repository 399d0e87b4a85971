package sim

import (
	"time"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// operator is who sets groups to go on elsewhere, purges and pauses them, has parked
// messages tried again or set aside, and lets the log begin later, as retention does.
// In the end he resumes everything, takes the rates away, and only has to do with
// what is parked.
type operator struct {
	q       *queues
	healed  bool
	stopped bool
}

func (q *queues) makeOperator() {
	if !q.c.withModes() {
		return
	}
	q.operator = &operator{q: q}
	q.c.after(q.c.between(time.Second, 3*time.Second), q.operator.next)
}

func (x *operator) next() {
	c := x.q.c
	t := c.teams[c.rng.IntN(len(c.teams))]
	switch {
	case x.stopped:
		return
	case c.calm && !x.healed:
		x.healed = true
		x.heal()
	case t.queue == nil:
	case c.calm:
		x.unpark(t)
	default:
		x.act(t)
	}
	wait := time.Second
	if c.calm {
		wait = 100 * time.Millisecond
	}
	c.after(c.between(0, wait), x.next)
}

func (x *operator) act(t *team) {
	c := x.q.c
	g := t.queue.groups[c.rng.IntN(len(t.queue.groups))]
	switch how := c.rng.IntN(20); {
	case how < 3:
		x.seek(g, record.Offset(max(0, len(x.q.check.of(t).log)-c.rng.IntN(40))))
	case how == 3:
		x.seek(g, record.Offset(1<<62)) // purge
	case how < 7:
		x.deleteRecords(t)
	case how < 10:
		x.pause(g)
	default:
		x.unpark(t)
	}
}

// seek has a group go on at an offset.
func (x *operator) seek(g *queueGroup, to record.Offset) {
	c := x.q.c
	c.log("%s is to go on at %d", g, to)
	c.request(g.t, new(*node), func(n *node, p *partition, answer func(func())) {
		before := x.q.check.seeks(g)
		p.p.QueueSeekThen(g.id, broker.QueueTo{Offset: to}, func(err error) {
			if !n.dying && err == nil && x.q.check.seeks(g) == before {
				c.check.fail("node %d says that %s goes on at %d, which is not committed", n.id, g, to)
			}
		})
	}, func() {})
}

// deleteRecords has the log begin later, with some that groups are not done with.
func (x *operator) deleteRecords(t *team) {
	c := x.q.c
	h := x.q.check.of(t)
	if len(h.log) == 0 {
		return
	}
	to := h.start + record.Offset(c.rng.IntN(max(1, (len(h.log)-int(h.start))/2)))
	c.log("g%d is to begin at %d", t.id, to)
	c.request(t, new(*node), func(n *node, p *partition, answer func(func())) {
		p.p.DeleteRecordsThen(to, func(err error) {
			if !n.dying && err == nil && h.start < to {
				c.check.fail("node %d says that group %d begins at %d, which is not committed", n.id, t.id, to)
			}
		})
	}, func() {})
}

// pause has a group hand out nothing for a while.
func (x *operator) pause(g *queueGroup) {
	c := x.q.c
	if g.settings.Paused {
		return
	}
	c.faults.count("queue: group paused")
	g.settings.Paused = true
	x.q.configure(g.t)
	c.after(c.between(0, 4*time.Second), func() { x.resume(g) })
}

func (x *operator) resume(g *queueGroup) {
	g.settings.Paused = false
	clear(g.paused)
	x.q.configure(g.t)
}

func (x *operator) heal() {
	for _, t := range x.q.c.teams {
		if t.queue == nil {
			continue
		}
		for _, g := range t.queue.groups {
			g.settings.Rate, g.rate = 0, 0
			x.resume(g)
		}
	}
}

// unpark has a message tried again that keeps its key back, or set aside.
func (x *operator) unpark(t *team) {
	c := x.q.c
	for _, g := range t.queue.groups {
		o, parked := x.q.check.parked(g)
		if !parked {
			continue
		}
		skip := c.oneIn(2)
		c.request(t, new(*node), func(n *node, p *partition, answer func(func())) {
			c.log("offset %d of %s is to be tried again, or set aside: %v", o, g, skip)
			heard := x.q.check.unparking(g, o, skip)
			p.p.QueueRetryThen(g.id, o, skip, func(err error) {
				if !n.dying {
					heard(err)
				}
			})
		}, func() {})
	}
}

// configure tells the nodes that run a team of its groups' settings.
func (q *queues) configure(t *team) {
	for _, n := range q.c.nodes {
		n.after(q.c.between(time.Millisecond, 50*time.Millisecond), func() {
			n.run(func() {
				if h := n.here[t.id]; h == nil || h.group == nil {
					return
				}
				n.broker.SetQueueGroups(t.queueTopic())
				for _, g := range t.queue.groups {
					if g.settings.Paused {
						g.paused[n] = n.life
					}
				}
			})
		})
	}
}

// queueTopic is what metadata says of a team's groups.
func (t *team) queueTopic() broker.QueueTopic {
	spec := broker.QueueTopic{
		ID: t.partition().Topic, Name: t.name(), Partitions: 1,
		LastID: queue.GroupID(t.c.queues.groups),
	}
	for _, g := range t.queue.groups {
		spec.Groups = append(spec.Groups, broker.QueueGroup{ID: g.id, Name: g.name(), Settings: g.settings, Filter: g.filter()})
	}
	return spec
}
