package group

import (
	"errors"
	"time"
	"unicode/utf8"

	"github.com/tube-mq/tube/internal/group/grouppb"
	"github.com/tube-mq/tube/internal/record"
)

// CommitOffsets stores positions. The reply, a *CommitResponse, comes when they
// are committed. Who may commit is decided again in Apply.
func (c *Coordinator) CommitOffsets(now time.Time, t Token, req *CommitRequest) Effects {
	c.now = now
	if err := c.mayCommit(req); err != nil {
		c.reply(t, &CommitResponse{Err: err})
		return c.take()
	}
	cmd, n, refused := c.commitCommand(req)
	cost := costOf(cmd)
	switch {
	case n == 0:
		c.reply(t, &CommitResponse{Refused: refused})
		return c.take()
	case c.m.State(req.Group) == nil && c.full():
		c.reply(t, &CommitResponse{Err: ErrTooManyGroups})
		return c.take()
	case c.m.offsetCount(req.Group)+n > c.cfg.MaxOffsets && c.m.offsetCount(req.Group)+c.m.missing(cmd) > c.cfg.MaxOffsets:
		c.reply(t, &CommitResponse{Err: ErrTooLarge})
		return c.take()
	case !c.takesCommit(cmd, cost):
		c.reply(t, &CommitResponse{Err: ErrShardFull})
		return c.take()
	}
	c.reserved += cost
	c.propose(&grouppb.Command{Kind: &grouppb.Command_CommitOffsets{CommitOffsets: cmd}}, func(r Result) {
		c.reserved -= cost
		if errors.Is(r.Err, ErrIllegalGeneration) {
			r.Err = ErrRebalancing // it was right when it came; the next generation overtook it
		}
		c.reply(t, &CommitResponse{Err: outward(r.Err), Refused: refused})
	})
	return c.take()
}

// outward turns a proposal's error into what a caller may see: one that is not
// the Machine's verdict means that the outcome is not known.
func outward(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrFencedInstance), errors.Is(err, ErrUnknownMember), errors.Is(err, ErrRebalancing), errors.Is(err, ErrStaleEpoch),
		errors.Is(err, ErrGroupNotFound), errors.Is(err, ErrNonEmpty), errors.Is(err, ErrNotCoordinator):
		return err
	default:
		return ErrLoading
	}
}

// mayCommit checks the caller against the live group.
func (c *Coordinator) mayCommit(req *CommitRequest) error {
	if err := c.check(req.Group); err != nil {
		return err
	}
	if len(req.MemberID) > 2*MaxNameBytes || !utf8.ValidString(req.MemberID) || !utf8.ValidString(req.Instance) {
		return ErrUnknownMember
	}
	if g := c.consumerGroup(req.Group); g != nil && g.classic == nil {
		return c.mayCommitConsumers(g, req)
	} else if g != nil {
		return ErrRebalancing
	}
	g := c.groups[req.Group]
	if g == nil || len(g.members) == 0 {
		if req.Generation < 0 {
			return nil
		}
		if g == nil && c.m.State(req.Group) == nil {
			return ErrIllegalGeneration
		}
		return ErrUnknownMember
	}
	m, err := g.find(req.MemberID, req.Instance)
	switch {
	case err != nil:
		return err
	case req.Generation != g.generation:
		return ErrIllegalGeneration
	case g.phase == Completing, g.phase == Preparing && g.busy:
		return ErrRebalancing // it does not know yet what it reads
	}
	c.alive(m)
	return nil
}

// mayCommitConsumers is mayCommit for a group whose partitions are assigned here.
func (c *Coordinator) mayCommitConsumers(g *consumerGroup, req *CommitRequest) error {
	r := c.replicated(g)
	if m := r.members[req.MemberID]; m != nil && m.Classic == nil && req.NoEpochs {
		return ErrUnsupportedVersion
	}
	if err := r.mayCommit(req.Generation, req.MemberID, req.Instance); err != nil {
		return err
	}
	if s := g.sessions[req.MemberID]; s != nil {
		c.aliveConsumer(s)
	}
	return nil
}

// noPosition is what a client commits to have none: kafkajs does so when it resets a
// group's offsets. As in Kafka that is stored; who asks is told that there is none.
const noPosition = -1

// commitCommand builds the command of what may be stored, n positions, and says
// what may not.
func (c *Coordinator) commitCommand(req *CommitRequest) (cmd *grouppb.CommitOffsets, n int, refused map[record.TopicPartition]error) {
	cmd = &grouppb.CommitOffsets{
		Group: req.Group, Generation: req.Generation, Member: req.MemberID, Instance: req.Instance,
		RetentionMillis: max(0, req.Retention.Milliseconds()),
	}
	for _, t := range req.Topics {
		pt := &grouppb.TopicOffsets{Topic: t.Topic[:], Name: t.Name}
		for _, p := range t.Partitions {
			if err := c.checkPosition(p); err != nil {
				if refused == nil {
					refused = map[record.TopicPartition]error{}
				}
				refused[record.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = err
				continue
			}
			n++
			pt.Partitions = append(pt.Partitions, &grouppb.PartitionOffset{
				Partition: int32(p.Partition), Offset: int64(max(p.Offset, noPosition)), LeaderEpoch: int32(p.LeaderEpoch), Metadata: p.Metadata,
			})
		}
		if len(pt.Partitions) > 0 {
			cmd.Topics = append(cmd.Topics, pt)
		}
	}
	return cmd, n, refused
}

func (c *Coordinator) checkPosition(p CommitPartition) error {
	switch {
	case p.Partition < 0:
		return ErrInvalidOffset
	case len(p.Metadata) > c.cfg.MaxOffsetMetadataBytes || !utf8.ValidString(p.Metadata):
		return ErrOffsetMetadata
	}
	return nil
}

// missing counts the positions of cmd that the group does not have yet.
func (m *Machine) missing(cmd *grouppb.CommitOffsets) int {
	n := 0
	for _, t := range cmd.GetTopics() {
		for _, p := range t.GetPartitions() {
			if _, ok := m.Offset(cmd.GetGroup(), record.TopicID(t.GetTopic()), record.Partition(p.GetPartition())); !ok {
				n++
			}
		}
	}
	return n
}

// DeleteOffsets forgets positions of topics that no member reads. The reply is a
// *DeleteOffsetsResponse.
func (c *Coordinator) DeleteOffsets(now time.Time, t Token, req *DeleteOffsetsRequest) Effects {
	c.now = now
	refuse := func(err error) { c.reply(t, &DeleteOffsetsResponse{Err: err}) }
	if err := c.check(req.Group); err != nil {
		refuse(err)
		return c.take()
	}
	g, cg := c.groups[req.Group], c.consumerGroup(req.Group)
	if g == nil && c.m.State(req.Group) == nil {
		refuse(ErrGroupNotFound)
		return c.take()
	}
	var read map[string]bool
	if g != nil && len(g.members) > 0 {
		known := false
		if read, known = g.subscriptions(); !known {
			refuse(ErrNonEmpty)
			return c.take()
		}
	}
	subscribed := map[record.TopicID]bool{}
	cmd := &grouppb.DeleteOffsets{Group: req.Group}
	for _, dt := range req.Topics {
		if read[dt.Name] || cg != nil && c.reads(cg, dt.Topic, dt.Name) {
			subscribed[dt.Topic] = true
			continue
		}
		pt := &grouppb.TopicOffsets{Topic: dt.Topic[:]}
		for _, p := range dt.Partitions {
			pt.Partitions = append(pt.Partitions, &grouppb.PartitionOffset{Partition: int32(p)})
		}
		cmd.Topics = append(cmd.Topics, pt)
	}
	c.propose(&grouppb.Command{Kind: &grouppb.Command_DeleteOffsets{DeleteOffsets: cmd}}, func(r Result) {
		c.reply(t, &DeleteOffsetsResponse{Err: outward(r.Err), Subscribed: subscribed})
	})
	return c.take()
}

// subscriptions are the topics that the live members say they read.
func (g *live) subscriptions() (topics map[string]bool, known bool) {
	if g.protocolType != ConsumerProtocol {
		return nil, false
	}
	topics = map[string]bool{}
	for _, m := range g.members {
		for _, p := range m.Protocols {
			names, ok := subscribedTopics(p.Metadata)
			if !ok {
				return nil, false
			}
			for _, n := range names {
				topics[n] = true
			}
		}
	}
	return topics, true
}

// DeleteGroup removes a group without members, and its positions. The reply is
// an error or nil.
func (c *Coordinator) DeleteGroup(now time.Time, t Token, name string) Effects {
	c.now = now
	refuse := func(err error) { c.reply(t, err) }
	if err := c.check(name); err != nil {
		refuse(err)
		return c.take()
	}
	if c.consumerGroup(name) != nil {
		refuse(ErrNonEmpty)
		return c.take()
	}
	g := c.open(name)
	if g == nil {
		refuse(ErrGroupNotFound)
		return c.take()
	}
	c.enqueue(g, t, func() {
		switch {
		case len(g.members) > 0:
			refuse(ErrNonEmpty)
		case g.base == nil:
			refuse(ErrGroupNotFound)
		default:
			c.deleteGroup(g, t)
		}
	}, refuse)
	return c.take()
}

func (c *Coordinator) deleteGroup(g *live, t Token) {
	g.busy = true
	c.propose(&grouppb.Command{Kind: &grouppb.Command_DeleteGroup{DeleteGroup: &grouppb.DeleteGroup{Group: g.name}}}, func(r Result) {
		c.reply(t, outward(r.Err))
		g.busy = false
		switch {
		case c.groups[g.name] != g:
		case r.Err != nil:
			c.reload(g)
		default:
			g.adopt(nil)
			c.drain(g)
		}
	})
}

// ForgetTopics removes the offsets of topics that were deleted from all groups.
// The reply is an error or nil.
func (c *Coordinator) ForgetTopics(now time.Time, t Token, topics []record.TopicID) Effects {
	c.now = now
	if !c.leading {
		c.reply(t, ErrNotCoordinator)
		return c.take()
	}
	cmd := &grouppb.ForgetTopics{}
	for _, id := range topics {
		cmd.Topics = append(cmd.Topics, id[:])
	}
	c.propose(&grouppb.Command{Kind: &grouppb.Command_ForgetTopics{ForgetTopics: cmd}}, func(r Result) {
		c.reply(t, outward(r.Err))
	})
	return c.take()
}
