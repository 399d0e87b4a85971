package group

import (
	"github.com/tube-mq/tube/internal/group/grouppb"
	"github.com/tube-mq/tube/internal/record"
)

// What things take in memory, in bytes, besides the text in them. About, and
// rather too much: these sums bound memory, they do not measure it.
const (
	groupBytes    = 512  // a stored group
	liveBytes     = 1024 // a group that a coordinator works on
	memberBytes   = 512  // a live member
	promiseBytes  = 256  // an id that was handed out
	topicBytes    = 256  // a topic that a group has positions in
	positionBytes = 128
	consumerBytes = 256 // a member of a group that the coordinator assigns
	sessionBytes  = 256 // what is known of such a member's life
)

func (o storedOffset) bytes() int { return positionBytes + len(o.Metadata) }

// Bytes is about what the machine's groups and their positions take in memory.
// Members are not in it, but for those of Consumers: the coordinator counts those.
func (m *Machine) Bytes() int { return m.bytes }

// put stores a position.
func (m *Machine) put(t *topicOffsets, p record.Partition, o storedOffset) {
	if old, ok := t.partitions[p]; ok {
		m.bytes -= old.bytes()
	}
	t.partitions[p] = o
	m.bytes += o.bytes()
}

// drop forgets a position.
func (m *Machine) drop(t *topicOffsets, p record.Partition) {
	if o, ok := t.partitions[p]; ok {
		m.bytes -= o.bytes()
		delete(t.partitions, p)
	}
}

// dropTopic forgets all positions in a topic.
func (m *Machine) dropTopic(g *stored, id record.TopicID) {
	t := g.topics[id]
	if t == nil {
		return
	}
	for p := range t.partitions {
		m.drop(t, p)
	}
	m.bytes -= topicBytes + len(t.name)
	delete(g.topics, id)
}

// growth is by how much a commit makes the shard larger; ≤ 0 if it only puts
// positions in the place of others.
func (m *Machine) growth(cmd *grouppb.CommitOffsets) int {
	n, g := 0, m.groups[cmd.GetGroup()]
	if g == nil {
		return costOf(cmd)
	}
	for _, t := range cmd.GetTopics() {
		to := g.topics[record.TopicID(t.GetTopic())]
		if to == nil {
			n += costOfTopic(t)
			continue
		}
		for _, p := range t.GetPartitions() {
			n += positionBytes + len(p.GetMetadata())
			if old, ok := to.partitions[record.Partition(p.GetPartition())]; ok {
				n -= old.bytes()
			}
		}
	}
	return n
}

// costOf is the most that a commit can make the shard larger.
func costOf(cmd *grouppb.CommitOffsets) int {
	n := groupBytes + len(cmd.GetGroup())
	for _, t := range cmd.GetTopics() {
		n += costOfTopic(t)
	}
	return n
}

func costOfTopic(t *grouppb.TopicOffsets) int {
	n := topicBytes + len(t.GetName())
	for _, p := range t.GetPartitions() {
		n += positionBytes + len(p.GetMetadata())
	}
	return n
}

// used is about what the shard takes in memory. A live member counts twice: it
// is, or will be, in the Machine as well.
func (c *Coordinator) used() int { return c.m.Bytes() + c.bytes + c.reserved }

// takes reports whether the shard has room for more bytes. What makes nothing
// larger always has it, so that a full shard goes on with what it has.
func (c *Coordinator) takes(more int) bool {
	return more <= 0 || c.used()+more <= c.cfg.MaxShardBytes
}

// takesCommit is takes for a commit. It looks closely only near the limit.
func (c *Coordinator) takesCommit(cmd *grouppb.CommitOffsets, cost int) bool {
	return c.takes(cost) || c.takes(c.m.growth(cmd))
}

// count adds the member to the sums (sign +1) or takes it out (−1).
func (c *Coordinator) count(g *live, m *member, sign int) {
	g.count(m, sign)
	c.bytes += sign * (memberBytes + 2*m.bytes())
}

// assign gives a member its assignment, or takes it away.
func (c *Coordinator) assign(g *live, m *member, assignment []byte) {
	more := len(assignment) - len(m.Assignment)
	g.bytes += more
	c.bytes += 2 * more
	m.Assignment = assignment
}

// unpromise takes back an id that was handed out.
func (c *Coordinator) unpromise(g *live, id string) {
	if p := g.pending[id]; p != nil {
		c.timers.stop(p)
		delete(g.pending, id)
		c.bytes -= promiseBytes + len(id)
	}
}

// discard lets a group go, whatever it holds.
func (c *Coordinator) discard(g *live) {
	c.timers.stop(&g.timer)
	for id := range g.pending {
		c.unpromise(g, id)
	}
	for _, m := range g.members {
		c.timers.stop(&m.timer)
		c.count(g, m, -1)
	}
	delete(c.groups, g.name)
	c.bytes -= liveBytes + len(g.name)
}
