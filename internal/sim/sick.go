package sim

import (
	"time"

	"github.com/tube-mq/tube/internal/record"
)

const (
	// slowAfter is when a node whose disk has not come back is sick.
	slowAfter = 2 * time.Second
	// quickAgain is how many writes and syncs have to be quick until it is well.
	quickAgain = 5
	// overdueAfter is when others elect without it, if it has not handed over.
	overdueAfter = 3 * time.Second
)

// watchDisk has the node be sick if the write or sync that takes so long has not
// come back by then, and well again after some that are quick.
func (n *node) watchDisk(takes time.Duration) {
	n.flights++
	flight := n.flights
	if takes < slowAfter {
		if n.quick++; n.sick && n.quick >= quickAgain {
			n.setSick(false)
		}
		return
	}
	n.quick = 0
	n.after(slowAfter, func() {
		if n.busy && n.flights == flight && !n.sick {
			n.c.faults.count("node sick")
			n.run(func() { n.setSick(true) })
		}
	})
}

func (n *node) setSick(on bool) {
	n.c.log("n%d is sick: %v", n.id, on)
	n.sick, n.sickSince = on, n.c.now
	n.host.SetSick(on)
}

// lookAfterSick is done again and again: a sick node hands over what it leads, and
// the others do without one that does not.
func (n *node) lookAfterSick() {
	for _, t := range n.c.teams {
		h := n.here[t.id]
		if !n.sick || h == nil || h.group == nil {
			continue
		}
		if s := h.group.Status(); s.Leader != 0 && s.Leader == h.id {
			n.c.faults.count("sick node asked to hand over")
			h.group.Yield()
		}
	}
	if n.sick {
		n.host.Probe(func(error) {})
	}
	for _, o := range n.c.nodes {
		if o != n && o.up && o.sick && n.c.now-o.sickSince >= overdueAfter {
			n.host.LeaderSick(o.id)
		}
	}
}

// isSick is what nodes hear of each other, at once.
func (c *cluster) isSick(id record.NodeID) bool { return c.node(id).up && c.node(id).sick }
