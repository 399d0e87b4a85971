package group

import (
	"time"

	"github.com/tube-mq/tube/internal/group/grouppb"
	"github.com/tube-mq/tube/internal/record"
)

// Consumers returns what is replicated of a group whose partitions the
// coordinator assigns; nil if there is no such group or it is classic. It is the
// Machine's own: it may be read until the next Apply.
func (m *Machine) Consumers(name string) *Consumers {
	if g := m.groups[name]; g != nil {
		return g.consumers
	}
	return nil
}

// changeConsumers changes members, targets and epochs together. Epochs never go
// back: who holds an old one is fenced for good.
func (m *Machine) changeConsumers(index record.Index, now time.Time, c *grouppb.ChangeConsumers) error {
	name, old := c.GetGroup(), m.State(c.GetGroup())
	if uint64(old.version()) != c.GetBase() || old != nil && c.GetEpoch() < old.Generation || c.GetTargetEpoch() > c.GetEpoch() {
		return ErrConflict
	}
	to := m.Consumers(name)
	fresh := to == nil
	if fresh {
		to = newConsumers()
	}
	m.bytes -= to.bytes
	for _, id := range c.GetRemoved() {
		to.remove(id)
		to.setTarget(id, nil)
	}
	ok := to.merge(c.GetMembers(), c.GetTargets())
	m.bytes += to.bytes
	if !ok {
		return ErrUnknownCommand
	}
	to.Epoch, to.TargetEpoch, to.Assignor, to.TopicsHash = c.GetEpoch(), c.GetTargetEpoch(), c.GetAssignor(), c.GetTopicsHash()
	to.TopicsIndex = record.Index(c.GetTopicsIndex())
	s := &State{
		Version: index, Since: now, ProtocolType: ConsumerProtocol, Generation: to.Epoch, Consumers: len(to.members), ByCoordinator: true,
	}
	if err := m.replace(name, c.GetBase(), s); err != nil {
		return err
	}
	m.groups[name].consumers = to
	return nil
}

// becomeClassic ends what ChangeConsumers began.
func (m *Machine) becomeClassic(index record.Index, now time.Time, c *grouppb.BecomeClassic) error {
	old := m.Consumers(c.GetGroup())
	if old == nil || c.GetState().GetGeneration() < old.Epoch {
		return ErrConflict
	}
	s := newState(index, c.GetState())
	s.Since, s.ByCoordinator, s.Consumers = now, false, 0
	s.index()
	return m.replace(c.GetGroup(), c.GetBase(), s)
}

// dropConsumers forgets what the coordinator assigned in the group.
func (m *Machine) dropConsumers(g *stored) {
	if g.consumers != nil {
		m.bytes -= g.consumers.bytes
		g.consumers = nil
	}
}

// mayCommit decides for a member of such a group, or for who is outside.
func (c *Consumers) mayCommit(epoch int32, member, instance string) error {
	if epoch < 0 && len(c.members) == 0 {
		return nil
	}
	m := c.members[member]
	if owner := c.byInstance[instance]; instance != "" && owner != "" && owner != member {
		return ErrFencedInstance
	}
	switch {
	case m == nil:
		return ErrUnknownMember
	case m.Epoch == epoch:
		return nil
	case m.Classic != nil:
		return ErrIllegalGeneration
	default:
		return ErrStaleEpoch
	}
}
