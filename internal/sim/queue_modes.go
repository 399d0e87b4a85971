package sim

import (
	"time"

	"github.com/tube-mq/tube/internal/queue"
)

// What else a queue group can be, in one run of three: each of its two teams has groups
// of two of these kinds beside the others.

type groupMode string

const (
	modeBroadcast groupMode = "broadcast"    // each member has everything
	modeFilter    groupMode = "filter"       // some messages are not wanted
	modeTrust     groupMode = "trust"        // what is handed out is acknowledged
	modePark      groupMode = "parking keys" // a dead message keeps back those of its key
	modeRate      groupMode = "rate"         // so many messages a second until the healing
)

var groupModes = []groupMode{modeBroadcast, modeFilter, modeTrust, modePark, modeRate}

// withModes: half of the runs with queue groups have groups of these kinds, short
// windows for repeats, and an operator.
func (c *cluster) withModes() bool { return c.withQueues() && c.cfg.Seed%3 == 1 }

// addModes gives a pair of teams such groups; one of the two remembers ids for a short time.
func (q *queues) addModes(pair []*team) {
	if !q.c.withModes() {
		return
	}
	pair[1].queue.window = q.c.between(2*time.Second, 6*time.Second)
	for i, k := range q.c.rng.Perm(len(groupModes))[:4] {
		q.addMode(pair[i%2], groupModes[k])
	}
}

// short says that ids may be forgotten while the run lasts.
func (t *queueTeam) short() bool { return t.window > 0 && t.window < time.Minute }

func (q *queues) addMode(t *team, mode groupMode) {
	c := q.c
	q.addGroup(t, mode == modePark)
	g := t.queue.groups[len(t.queue.groups)-1]
	g.mode = mode
	s := &g.settings
	switch mode {
	case modeBroadcast:
		s.Broadcast = true
		g.members = []string{"m1", "m2", "m3"}[:2+c.rng.IntN(2)]
	case modeFilter:
		g.unwanted = func(m message) bool { return m.sequence%4 == 1 }
	case modeTrust:
		s.AutoAck = true
	case modePark:
		s.ParkKey = true
	case modeRate:
		s.Rate = float64(2 + c.rng.IntN(6))
		g.rate = s.Rate
	}
	c.log("%s: %s, members %q, %v messages/s", g, mode, g.members, s.Rate)
}

// filter is what a node is given for the group's.
func (g *queueGroup) filter() queue.Filter {
	if g.unwanted == nil {
		return nil
	}
	return func(m *queue.Message) (bool, error) { return !g.unwanted(parse(m.Value)), nil }
}

// meter is what one leader may still hand out of a group with a rate: a second's worth
// at a time. A desk that is made anew in the same term begins with as much, and so does
// one whose clock is told to be behind; for that, twice as much is let pass.
type meter struct {
	tokens float64
	at     time.Duration
}

// takes says whether the rate lets one more message through.
func (m *meter) takes(rate float64, now time.Duration) bool {
	const clocksDiffer = 1.01
	m.tokens = min(m.tokens+rate*clocksDiffer*(now-m.at).Seconds(), 3*max(rate, 1))
	m.at = now
	m.tokens--
	return m.tokens >= 0
}
