package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/pulse"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// driveEvery is how often a leader looks whether its group's members are those
// that metadata wants.
const driveEvery = 200 * time.Millisecond

// driveMembers keeps the members of the groups that this node leads in line with
// the metadata, until ctx ends. It looks at what is, so whoever leads goes on with
// a change that another has begun.
func (n *Node) driveMembers(ctx context.Context) {
	var m moving
	d := driven{}
	pulse.Vary(ctx, driveEvery, func() time.Duration {
		im := n.meta.Image()
		if im.ClusterID != "" {
			n.driveMasters(ctx, im, d)
			n.drivePartitions(ctx, im, m.of(im))
		}
		return n.unlessAlone(im, driveEvery)
	})
}

// unlessAlone is how often a loop comes round that has to do with other nodes: seldom if
// there are none.
func (n *Node) unlessAlone(im *meta.Image, interval time.Duration) time.Duration {
	if n.alone(im) {
		return max(interval, pulse.Calm)
	}
	return interval
}

// alone reports whether the cluster has no other node, and none is to come soon.
func (n *Node) alone(im *meta.Image) bool {
	return len(im.Nodes) == 1 && im.Nodes[n.id().Node] != nil && !slices.ContainsFunc(im.Founders, func(f meta.Founder) bool { return !f.Taken })
}

// driven remembers which of the masters' groups have the members that an image wants, and
// since which term: then nothing is to be done until one of the two is another.
type driven map[record.Group]goal

type goal struct {
	image *meta.Image
	term  record.Term
}

// driveMasters: masters vote in the masters' groups, all other nodes follow the
// metadata.
func (n *Node) driveMasters(ctx context.Context, im *meta.Image, driven driven) {
	var voters, learners []record.ReplicaID
	for _, node := range im.Nodes {
		if node.Has(meta.RoleMaster) {
			voters = append(voters, node.MetaReplica)
		} else {
			learners = append(learners, node.MetaReplica)
		}
	}
	for _, f := range im.Founders {
		if !f.Taken { // it may not have been there yet
			voters = append(voters, f.Replica)
		}
	}
	for _, id := range n.masterGroups() {
		g := n.host.Load().Group(id)
		if g == nil || len(voters) == 0 {
			continue
		}
		s := g.Status()
		want := goal{im, s.Term}
		if !s.Leading || driven[id] == want {
			continue
		}
		var follow []record.ReplicaID
		if id == metaGroup {
			follow = learners
		}
		done, err := g.Drive(ctx, voters, follow)
		switch {
		case done:
			driven[id] = want
		case err != nil && !expected(err):
			n.logger.Warn("members of a masters' group not changed yet", "group", id, "err", err)
		}
	}
}

// drivePartitions takes the moves that are under way a step further.
func (n *Node) drivePartitions(ctx context.Context, im *meta.Image, moving []record.TopicPartition) {
	var done []meta.Members
	for _, m := range moving {
		p := im.Partition(m)
		g := n.host.Load().Group(p.Group)
		if g == nil || !g.Status().Leading {
			continue
		}
		var voters []record.ReplicaID
		for _, r := range p.Target {
			if !r.Lost {
				voters = append(voters, r.ID)
			}
		}
		ok, err := g.Drive(ctx, voters, nil)
		switch {
		case err != nil && !expected(err):
			n.logger.Warn("replicas of a partition not moved yet", "topic", im.Topics[m.Topic].Name, "partition", m.Partition, "err", err)
		case ok:
			done = append(done, meta.Members{TopicPartition: m, Replicas: voters})
		}
	}
	if len(done) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := (metaProposer{n}).Propose(ctx, meta.PlacementDone(time.Now(), done)); err != nil {
		n.logger.Debug("moved replicas not reported yet", "err", err)
	}
}

// moving remembers which partitions of an image have replicas to move: mostly none of
// thousands, which would all be looked at again while nothing changes.
type moving struct {
	image      *meta.Image
	partitions []record.TopicPartition
}

func (m *moving) of(im *meta.Image) []record.TopicPartition {
	if m.image == im {
		return m.partitions
	}
	m.image, m.partitions = im, nil
	for _, t := range im.Topics {
		for i := range t.Partitions {
			if t.Partitions[i].Target != nil {
				m.partitions = append(m.partitions, record.TopicPartition{Topic: t.ID, Partition: record.Partition(i)})
			}
		}
	}
	return m.partitions
}

func expected(err error) bool {
	return errors.Is(err, replica.ErrNotLeader) || errors.Is(err, replica.ErrStopped) || errors.Is(err, context.Canceled)
}

// masterGroups are the groups that the masters vote in.
func (n *Node) masterGroups() []record.Group { return ownMasterGroups() }

// masterGroupName is a masters' group's name for people; "": it is none.
func masterGroupName(g record.Group) string {
	switch {
	case g == metaGroup:
		return "metadata"
	case g >= firstGroupsGroup && g < firstGroupsGroup+groupsShards:
		return fmt.Sprintf("stream groups, shard %d", g-firstGroupsGroup)
	}
	return ""
}

func ownMasterGroups() []record.Group {
	out := []record.Group{metaGroup}
	for i := range groupsShards {
		out = append(out, firstGroupsGroup+record.Group(i))
	}
	return out
}

// handOver asks that others lead what this node leads, and waits a moment for it,
// so that clients find the new leaders while this node still answers them.
func (n *Node) handOver(ctx context.Context) {
	h := n.host.Load()
	if h == nil || len(n.meta.Image().Nodes) < 2 {
		return
	}
	var led []*replica.Group
	for _, g := range h.Groups() {
		if g.Status().Leading {
			g.Transfer(0)
			led = append(led, g)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for _, g := range led {
		for g.Status().Leading && !g.Alone() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

// handOverTimeout bounds how long a stop waits for others to lead.
const handOverTimeout = time.Second

// copyRate bounds the copying to a replica of a group, in bytes per second: what was given
// with the move that it belongs to, or else the node's own limit; 0: none.
func (n *Node) copyRate(id record.Group) int64 {
	for _, t := range n.meta.Image().Topics {
		for i := range t.Partitions {
			if p := &t.Partitions[i]; p.Group == id && p.Throttle > 0 {
				return p.Throttle
			}
		}
	}
	return n.cfg.CopyThrottle
}

// partitionLed passes on what a partition's replica here sees of its leadership.
func (n *Node) partitionLed(p broker.Led) {
	n.leaders.observe(p.Group, p.Status, p.Leader)
}
