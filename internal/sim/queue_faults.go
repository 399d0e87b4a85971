package sim

import (
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// Windows in which a leader may end, with something begun and not done.
const (
	windowLease  = "leader ended between deliver and acknowledge"
	windowLetter = "leader ended between dead letter and release"
	windowIntent = "leader ended between the parts of complete"
)

// queueKinds are the faults of runs with queue groups, beside the others.
var queueKinds = []fault{
	{"crash between deliver and acknowledge", (*faults).crashLeased, false},
	{"leader cut off with messages in hand", (*faults).cutLeased, false},
	{"crash between dead letter and release", func(f *faults) bool { return f.arm(windowLetter) }, false},
	{"crash between the parts of complete", func(f *faults) bool { return f.arm(windowIntent) }, false},
}

// crashLeased ends a leader that has handed out messages.
func (f *faults) crashLeased() bool {
	n := f.leased()
	if n != nil {
		n.crash(f.policy())
	}
	return n != nil
}

// cutLeased cuts such a leader off, which may be slow to notice; clients still reach it.
func (f *faults) cutLeased() bool {
	n := f.leased()
	if n == nil {
		return false
	}
	var pairs [][2]record.NodeID
	for _, other := range f.c.nodes {
		if other != n {
			pairs = append(pairs, [2]record.NodeID{n.id, other.id}, [2]record.NodeID{other.id, n.id})
		}
	}
	if f.c.oneIn(2) {
		n.tick = 400 * time.Millisecond
		f.during(f.c.between(time.Second, 10*time.Second), func() { n.tick = 100 * time.Millisecond })
	}
	return f.sever(pairs...)
}

// leased is a leader that has handed out messages; nil: there is none.
func (f *faults) leased() *node {
	for _, i := range f.c.rng.Perm(len(f.c.teams)) {
		t := f.c.teams[i]
		if n := t.leader(); t.queue != nil && n != nil && f.c.queues.leased(n, t) > 0 {
			return n
		}
	}
	return nil
}

// arm has the leader end when next such a window opens.
func (f *faults) arm(window string) bool {
	if f.c.queues.armed[window] {
		return false
	}
	f.c.queues.armed[window] = true
	return true
}

// window is called when one opens in a team.
func (q *queues) window(t *team, name string, open func() bool) {
	c := q.c
	if !q.armed[name] || c.calm {
		return
	}
	q.armed[name] = false
	c.after(c.between(0, 2*time.Millisecond), func() {
		if n := t.leader(); n != nil && open() && !c.calm {
			n.crash(c.faults.policy())
		}
	})
}

// leased is how many messages of a team are in hand that a node has handed out.
func (q *queues) leased(n *node, t *team) (count int) {
	term := n.here[t.id].machine.(*partition).term()
	for h := range q.check.of(t).cursors {
		for _, x := range h.out {
			if q.check.holds(x, n, term) {
				count++
			}
		}
	}
	return count
}

// ends counts what a node leaves open that ends.
func (q *queues) ends(n *node) {
	for _, t := range q.c.teams {
		h := n.here[t.id]
		if t.queue == nil || h == nil || h.group == nil || h.machine == nil || !h.group.Status().Leading {
			continue
		}
		if q.leased(n, t) > 0 {
			q.c.faults.count(windowLease)
		}
		if len(q.check.of(t).intents) > 0 {
			q.c.faults.count(windowIntent)
		}
		for g := range q.check.of(t).cursors {
			if len(g.letters) > 0 {
				q.c.faults.count(windowLetter)
			}
		}
	}
}

// starts sets a node's clock, and notes by how much it is wrong.
func (q *queues) starts(n *node) {
	if q.straight {
		n.skew = q.c.between(-50*time.Millisecond, 50*time.Millisecond)
	}
	q.ahead = max(q.ahead, n.skew)
}
