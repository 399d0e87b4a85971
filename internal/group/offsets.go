package group

import (
	"time"

	"github.com/tube-mq/tube/internal/group/grouppb"
	"github.com/tube-mq/tube/internal/record"
)

// Offset is one committed position.
type Offset struct {
	Offset      record.Offset // the next record to read
	LeaderEpoch record.Epoch  // of the last record read; −1: not said
	Metadata    string
	Committed   time.Time // wall clock of the proposer, for display
}

// topicOffsets are a group's positions in one topic.
type topicOffsets struct {
	name       string
	partitions map[record.Partition]storedOffset
}

type storedOffset struct {
	Offset
	clock     time.Duration // machine's clock at the commit
	retention time.Duration // asked for by the client; 0: as the group's retention says
}

// commit stores offsets if the caller may. Here, not in the coordinator, it is
// decided for good: the order of the log is the same for all.
func (m *Machine) commit(index record.Index, now time.Time, c *grouppb.CommitOffsets) error {
	g := m.groups[c.GetGroup()]
	if g != nil && g.consumers != nil {
		if err := g.consumers.mayCommit(c.GetGeneration(), c.GetMember(), c.GetInstance()); err != nil {
			return err
		}
	} else if err := mayCommit(m.State(c.GetGroup()), c.GetGeneration(), c.GetMember(), c.GetInstance()); err != nil {
		return err
	}
	if err := checkTopics(c.GetTopics()); err != nil {
		return err
	}
	if g == nil {
		g = m.create(c.GetGroup())
		g.state = &State{Version: index, Since: now}
	}
	for _, t := range c.GetTopics() {
		to := m.topic(g, record.TopicID(t.GetTopic()), t.GetName())
		for _, p := range t.GetPartitions() {
			m.put(to, record.Partition(p.GetPartition()), storedOffset{
				Offset: Offset{
					Offset: record.Offset(p.GetOffset()), LeaderEpoch: record.Epoch(p.GetLeaderEpoch()),
					Metadata: p.GetMetadata(), Committed: now,
				},
				clock:     m.clock,
				retention: time.Duration(c.GetRetentionMillis()) * time.Millisecond,
			})
		}
	}
	return nil
}

// mayCommit is the guard of invariant 6. Without membership (generation < 0)
// one may commit while nobody is in the group.
func mayCommit(s *State, generation int32, member, instance string) error {
	if generation < 0 && s.empty() {
		return nil
	}
	if s == nil {
		return ErrIllegalGeneration
	}
	if s.fenced(instance, member) {
		return ErrFencedInstance
	}
	if s.Member(member) == nil {
		return ErrUnknownMember
	}
	if s.Generation != generation {
		return ErrIllegalGeneration
	}
	return nil
}

// checkTopics refuses what is no topic id, before anything is changed.
func checkTopics(topics []*grouppb.TopicOffsets) error {
	for _, t := range topics {
		if len(t.GetTopic()) != len(record.TopicID{}) {
			return ErrUnknownCommand
		}
	}
	return nil
}

func (m *Machine) topic(g *stored, id record.TopicID, name string) *topicOffsets {
	t := g.topics[id]
	if t == nil {
		t = &topicOffsets{partitions: map[record.Partition]storedOffset{}}
		g.topics[id] = t
		m.bytes += topicBytes
	}
	m.bytes += len(name) - len(t.name)
	t.name = name
	return t
}

func (m *Machine) deleteOffsets(c *grouppb.DeleteOffsets) error {
	g := m.groups[c.GetGroup()]
	if g == nil {
		return ErrGroupNotFound
	}
	if err := checkTopics(c.GetTopics()); err != nil {
		return err
	}
	for _, t := range c.GetTopics() {
		id := record.TopicID(t.GetTopic())
		to := g.topics[id]
		if to == nil {
			continue
		}
		for _, p := range t.GetPartitions() {
			m.drop(to, record.Partition(p.GetPartition()))
		}
		if len(to.partitions) == 0 {
			m.dropTopic(g, id)
		}
	}
	return nil
}

func (m *Machine) forgetTopics(c *grouppb.ForgetTopics) {
	for _, id := range c.GetTopics() {
		if len(id) != len(record.TopicID{}) {
			continue
		}
		for _, g := range m.groups {
			m.dropTopic(g, record.TopicID(id))
		}
	}
}

// expire moves the clock and drops what is too old. An empty group that has
// nothing left goes as well.
func (m *Machine) expire(c *grouppb.Expire) {
	elapsed := time.Duration(c.GetElapsedMillis()) * time.Millisecond
	m.clock += max(0, min(elapsed, MaxClockStep))
	retention := time.Duration(c.GetRetentionMillis()) * time.Millisecond
	for name, g := range m.groups {
		subscribed, known := map[string]bool(nil), false
		if !g.state.empty() {
			subscribed, known = g.state.subscriptions()
		}
		for id, t := range g.topics {
			if !g.state.empty() && (!known || subscribed[t.name]) {
				continue // in use
			}
			for p, o := range t.partitions {
				if m.clock-g.agesFrom(o) >= o.keep(retention) {
					m.drop(t, p)
				}
			}
			if len(t.partitions) == 0 {
				m.dropTopic(g, id)
			}
		}
		if g.state.empty() && len(g.topics) == 0 && m.clock-g.emptyClock >= retention {
			m.remove(name)
		}
	}
}

// agesFrom is the moment from which an offset ages: its commit, or, in a group
// that had members, the moment when the last one left if that was later.
func (g *stored) agesFrom(o storedOffset) time.Duration {
	if g.state.empty() && g.state.ProtocolType != "" && o.retention == 0 {
		return max(o.clock, g.emptyClock)
	}
	return o.clock
}

func (o storedOffset) keep(groups time.Duration) time.Duration {
	if o.retention > 0 {
		return o.retention
	}
	return groups
}

// subscriptions are the topics that the members say they read; known is false
// if one of them does not say so in a form that is understood here.
func (s *State) subscriptions() (topics map[string]bool, known bool) {
	if s.ProtocolType != ConsumerProtocol || s.ByCoordinator {
		return nil, false
	}
	topics = map[string]bool{}
	for i := range s.Members {
		names, ok := subscribedTopics(s.Members[i].metadata(s.Protocol))
		if !ok {
			return nil, false
		}
		for _, n := range names {
			topics[n] = true
		}
	}
	return topics, true
}

// Offset returns a group's position; ok is false if it has none.
func (m *Machine) Offset(name string, topic record.TopicID, p record.Partition) (o Offset, ok bool) {
	g := m.groups[name]
	if g == nil || g.topics[topic] == nil {
		return Offset{}, false
	}
	so, ok := g.topics[topic].partitions[p]
	return so.Offset, ok
}

// offsetCount is how many positions the group holds.
func (m *Machine) offsetCount(name string) int {
	n := 0
	if g := m.groups[name]; g != nil {
		for _, t := range g.topics {
			n += len(t.partitions)
		}
	}
	return n
}
