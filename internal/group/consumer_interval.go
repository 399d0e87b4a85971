package group

import "time"

// How soon a member is to come again. A member hears of a change only when it comes, so
// one that waits for partitions gets them, at the earliest, after those who have them
// came: it is told to come right after. Coming more often than that costs the coordinator
// and moves nothing.
//
// While all is well the interval decides how long a newcomer waits for those who have what
// it is to get. So a coordinator with few members has them come more often than it must:
// as often as makes beatsPerSecond for all of them, which is nothing beside what clients
// that read ask.

// beatsPerSecond is what a coordinator spends on members that come more often than they
// must.
const beatsPerSecond = 500

// steady is the interval of a member for which nothing is under way.
func (c *Coordinator) steady() time.Duration {
	enough := time.Duration(c.present) * time.Second / beatsPerSecond
	return min(max(enough, c.cfg.LeastConsumerInterval), c.cfg.ConsumerInterval)
}

// soon is how long partitions take that somebody is about to let go.
func (c *Coordinator) soon() time.Duration {
	return max(MinConsumerInterval, c.cfg.ConsumerInterval/10)
}

// interval is for a member that is answered now.
func (c *Coordinator) interval(g *consumerGroup, m *ConsumerMember) time.Duration {
	s := g.sessions[m.ID]
	switch {
	case m.Waiting:
		return c.untilFreed(g, m)
	case s != nil && c.now.Sub(s.joined) < c.soon():
		// Members of a new group come one right after the other, and wait for those who
		// came first. Some clients come twice when they join.
		return c.soon()
	}
	return c.steady()
}

// untilFreed is until the first who has what m waits for was told, and had time to give
// it up.
func (c *Coordinator) untilFreed(g *consumerGroup, m *ConsumerMember) time.Duration {
	r, wait := c.replicated(g), c.steady()
	for _, tp := range r.targets[m.ID].minus(m.Assigned) {
		holder := g.sessions[r.owners[tp]]
		if holder == nil || len(holder.member.Revoking) > 0 || !holder.due.After(c.now) {
			return c.soon() // nobody has it, or gives it up now, or is late
		}
		wait = min(wait, holder.due.Sub(c.now)+c.soon())
	}
	return wait
}
