package node

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/peer"
	"github.com/tube-mq/tube/internal/pulse"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// tellHealthEvery is how often a node tells the others how it is, beside when that
// changes. A sick one hands over what it leads as often.
const tellHealthEvery = time.Second

// handOverWithin is how long a sick node has to hand over what it leads before the
// others elect without it.
const handOverWithin = 3 * time.Second

// watchDisk is the watchdog: it looks at the disk until ctx ends, without ever
// waiting for it, and has the node be sick, be well, or end.
func (n *Node) watchDisk(ctx context.Context) {
	d := diskHealth{slow: n.cfg.DiskSlowAfter, hung: n.cfg.DiskHungAfter}
	told, probing := time.Time{}, &atomic.Bool{}
	pulse.Vary(ctx, lookAtDisk, func() time.Duration {
		h := n.host.Load()
		s := diskSeen{now: time.Now()}
		s.oldest, _ = n.disk.Oldest()
		if h != nil {
			s.flushes = h.Flushes()
		}
		was := d.sick
		if err := d.look(s); err != nil {
			n.diskHangs(err)
			return d.next
		}
		if h == nil {
			return d.next // nobody to tell yet
		}
		n.flushing.Store(int64(d.age(s.flushes.Began, s.now)))
		if (d.sick == "") != (was == "") {
			n.changeHealth(h, d.sick)
			told = time.Time{}
		}
		if s.now.Sub(told) < tellHealthEvery-lookAtDisk/2 {
			return d.next
		}
		told = s.now
		n.peers.toAll(n.health.frame())
		for _, node := range n.health.overdue(s.now) {
			h.LeaderSick(node)
		}
		if d.sick != "" {
			yieldAll(h)
			probe(h, probing)
		}
		return d.next
	})
}

// changeHealth has this node be sick, or well again.
func (n *Node) changeHealth(h *replica.Host, why string) {
	if why == "" {
		n.logger.Info("the disk is quick again: this node may lead")
	} else {
		n.logger.Warn("this node is sick: it hands over what it leads, where others can do without it; look at the disk", "why", why)
	}
	n.health.set(n.id().Node, why, time.Now())
	h.SetSick(why != "")
}

func yieldAll(h *replica.Host) {
	for _, g := range h.Groups() {
		if s := g.Status(); s.Leader != 0 && s.Leader == g.Replica() {
			g.Yield()
		}
	}
}

// probe flushes the log if no probe is under way: a node that leads nothing may
// have nothing to write, and would not learn that its disk is well again.
func probe(h *replica.Host, under *atomic.Bool) {
	if under.CompareAndSwap(false, true) {
		h.Probe(func(error) { under.Store(false) })
	}
}

// health is what nodes say of themselves: why they are sick. It is told as who
// leads is (leaders.go): nothing depends on it but who is chosen to lead.
type health struct {
	self record.NodeID

	mu   sync.Mutex
	sick map[record.NodeID]sickness // guarded by mu
}

type sickness struct {
	why   string
	since time.Time // when this node heard of it
}

func newHealth(self record.NodeID) *health {
	return &health{self: self, sick: map[record.NodeID]sickness{}}
}

// set notes why a node is sick; empty: it is well.
func (h *health) set(node record.NodeID, why string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old, was := h.sick[node]
	switch {
	case why == "":
		delete(h.sick, node)
	case was:
		h.sick[node] = sickness{why, old.since}
	default:
		h.sick[node] = sickness{why, now}
	}
}

// why says why a node is sick; empty: it is well as far as is known.
func (h *health) why(node record.NodeID) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sick[node].why
}

// all are those that are sick, this node included, and why.
func (h *health) all() map[record.NodeID]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[record.NodeID]string, len(h.sick))
	for node, s := range h.sick {
		out[node] = s.why
	}
	return out
}

// overdue are the others that have been sick for so long that they should have
// handed over.
func (h *health) overdue(now time.Time) []record.NodeID {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []record.NodeID
	for node, s := range h.sick {
		if node != h.self && now.Sub(s.since) >= handOverWithin {
			out = append(out, node)
		}
	}
	return out
}

// frame says how this node is. The body of a frame of kind frameHealth is why it
// is sick, at most meta.MaxSick bytes; empty: it is well.
func (h *health) frame() peer.Frame {
	return peer.Frame{Kind: frameHealth, Parts: [][]byte{[]byte(h.why(h.self))}}
}

// receive takes another node's word.
func (h *health) receive(from record.NodeID, body []byte) {
	h.set(from, strings.ToValidUTF8(string(body[:min(len(body), meta.MaxSick)]), ""), time.Now())
}
