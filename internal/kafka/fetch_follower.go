package kafka

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// Reading in one's own zone (KIP-392). A client that names its rack, which Fetch has since v11, is
// sent by a leader in another zone to a follower in its own, if one keeps up. The
// follower asks its leader where the partition ends, and serves once it has all of
// that (broker.Partition.CatchUp): so no client sees a high watermark go back. A
// follower that cannot serves nothing: NOT_LEADER_OR_FOLLOWER, and it names the
// leader as preferred, as some clients (franz-go) go back to it by no other means.

const (
	// followTimeout bounds how long a follower may take to catch up.
	followTimeout = 500 * time.Millisecond
	// awayFor is how long a client that came back is served here, where it was sent
	// away from: the follower did not serve it, whatever is known of it here.
	awayFor = 5 * time.Second
	// maxAway partitions of one connection are remembered; beyond, none is sent away.
	maxAway = 10_000
)

// nearby is what a fetch knows of its client's zone.
type nearby struct {
	// follows: this node is in the client's zone, and may serve it what it does not lead.
	follows bool
	// zone are the nodes of the client's zone, when this one is not of it; nil if
	// there is none to send it to.
	zone map[record.NodeID]bool
}

func (d *Door) nearby(rack string) nearby {
	if rack == "" {
		return nearby{}
	}
	im := d.image()
	if own := im.Nodes[d.cfg.Node]; own != nil && own.Zone == rack {
		return nearby{follows: mayFollow(own)}
	}
	var zone map[record.NodeID]bool
	for id, n := range im.Nodes {
		if n.Zone == rack && mayFollow(n) {
			if zone == nil {
				zone = map[record.NodeID]bool{}
			}
			zone[id] = true
		}
	}
	return nearby{zone: zone}
}

func mayFollow(n *meta.Node) bool { return n.State == meta.NodeUp && !n.Drain }

// sentAway remembers, for one connection, which partitions its client was sent
// elsewhere for, and when.
type sentAway map[interestKey]time.Time

// may reports whether a client may be sent away, and remembers that it was.
func (a *sentAway) may(key interestKey, now time.Time) bool {
	if now.Sub((*a)[key]) < awayFor {
		return false
	}
	if len(*a) >= maxAway {
		for k, at := range *a {
			if now.Sub(at) >= awayFor {
				delete(*a, k)
			}
		}
		if len(*a) >= maxAway {
			return false
		}
	}
	if *a == nil {
		*a = sentAway{}
	}
	(*a)[key] = now
	return true
}

// sendAway names a follower in the client's zone, if this node leads the partition
// and there is one that can serve the client.
func (f *fetching) sendAway(i *interest, p *fetchedPartition) bool {
	if f.near.zone == nil {
		return false
	}
	b, err := i.partition.Bounds()
	if err != nil || i.offset < b.LogStart || i.offset > b.HighWatermark || i.epoch >= 0 && i.epoch != b.LeaderEpoch {
		return false // Read says why
	}
	var there []record.NodeID
	for _, n := range i.partition.Followers() {
		if f.near.zone[n] {
			there = append(there, n)
		}
	}
	if len(there) == 0 || !f.client.away.may(i.key(), time.Now()) {
		return false
	}
	p.bounds, p.preferred = b, there[int(i.number)%len(there)]
	return true
}

// catching is how far the follower here is, for one interest of one fetch.
type catching struct {
	stop   func()
	by     time.Time             // when it is given up
	answer atomic.Pointer[error] // nil: none yet
	seen   bool                  // the fetch has seen the answer
}

// caughtUp reports whether the follower here may serve.
func (f *fetching) caughtUp(i *interest) bool {
	if i.catch == nil {
		return false
	}
	err := i.catch.answer.Load()
	if err == nil {
		return false
	}
	f.sawAnswer(i.catch)
	return *err == nil
}

// follow has the follower here catch up; waiting: it calls when it has.
func (f *fetching) follow(i *interest) (waiting bool, err error) {
	c := i.catch
	if c == nil {
		c = &catching{by: time.Now().Add(followTimeout)}
		i.catch = c
		f.catching = append(f.catching, i)
		f.waiting++
		c.stop = i.partition.CatchUp(i.epoch, func(err error) {
			c.answer.Store(&err)
			i.Wake()
		})
	}
	if f.caughtUp(i) {
		return false, nil
	}
	if answer := c.answer.Load(); answer != nil {
		return false, *answer
	}
	return true, nil
}

func (f *fetching) sawAnswer(c *catching) {
	if !c.seen {
		c.seen = true
		f.waiting--
	}
}

// nextExpiry is when the first follower is given up, of those that are waited for.
func (f *fetching) nextExpiry() time.Time {
	for f.catching[f.first].catch.seen {
		f.first++ // they stand in the order of their times
	}
	return f.catching[f.first].catch.by
}

// expire gives up on followers that have not caught up by now.
func (f *fetching) expire(now time.Time) {
	for f.waiting > 0 && !f.nextExpiry().After(now) {
		i := f.catching[f.first]
		f.sawAnswer(i.catch)
		p := f.part(i)
		f.failed(i, p, broker.ErrNotLeader)
		f.settle(i, p, false)
	}
}

// uncatch ends what only this fetch may rely on.
func (f *fetching) uncatch() {
	for _, i := range f.catching {
		i.catch.stop()
		i.catch = nil
	}
}

// leaderHint names the leader to a client that this node cannot serve.
func (f *fetching) leaderHint(i *interest, p *fetchedPartition) {
	named := f.req.Version >= 12 && (p.code == kerr.NotLeaderForPartition.Code || p.code == kerr.FencedLeaderEpoch.Code)
	if !named && !f.near.follows {
		return
	}
	topic, _ := groupTopic(f.door.image(), f.byID, i.topic, i.name)
	if topic == nil {
		return
	}
	leader, epoch := f.door.partitions.Leader(topic.ID, i.number)
	if named {
		p.leader, p.leaderEpoch = leader, epoch
	}
	if f.near.follows && leader != f.door.cfg.Node {
		p.preferred = leader
	}
}
