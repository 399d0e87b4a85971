package group

import (
	"maps"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/group/grouppb"
	"github.com/tube-mq/tube/internal/record"
)

// Consumers is what is replicated of a group whose partitions the coordinator
// assigns (KIP-848). It belongs to the Machine, which changes it in Apply; the
// members in it are immutable and replaced as a whole.
type Consumers struct {
	// Epoch counts the changes of who is in and what is read.
	Epoch int32
	// TargetEpoch is the Epoch that the targets were made for. Invariant: ≤ Epoch.
	TargetEpoch int32
	Assignor    string // that made the targets
	// TopicsHash and TopicsIndex are of the topics that they were made from.
	TopicsHash  uint64
	TopicsIndex record.Index

	members    map[string]*ConsumerMember
	byInstance map[string]string     // instance id → member id
	targets    map[string]Partitions // by member id: what each is to have in the end
	// owners says who holds a partition: it was assigned and was not given up
	// yet. Invariant: a partition has at most one owner.
	owners map[record.TopicPartition]string
	bytes  int // of the members and their targets
}

// ConsumerMember is one member. It is immutable.
type ConsumerMember struct {
	ID, Instance, Zone   string
	ClientID, ClientHost string
	Rebalance            time.Duration // how long it may take to give partitions up
	Topics               []string      // that it reads, sorted
	Pattern              string        // of topics that it reads as well; empty: none
	Assignor             string        // that it asks for; empty: any
	// Epoch is up to where the member has come. Behind the group's target epoch:
	// it has something to give up first. leftForNow: a static member that left
	// and may come back.
	Epoch, PreviousEpoch int32
	// Assigned is what the member is told to read; Revoking, what it must give
	// up. Invariant: disjoint; the member is the owner of both.
	Assigned, Revoking Partitions
	// Waiting: part of its target still belongs to others.
	Waiting bool
	Classic *Classic // nil: it speaks the consumer protocol
}

// Classic is what a member that speaks the classic protocol has besides.
type Classic struct {
	Session   time.Duration
	Protocols []Protocol
}

// Epochs that mean something else.
const (
	leave      = -1 // in a heartbeat: for good
	leftForNow = -2 // in a heartbeat, and of a static member that is away
)

func newConsumers() *Consumers {
	return &Consumers{
		members: map[string]*ConsumerMember{}, byInstance: map[string]string{},
		targets: map[string]Partitions{}, owners: map[record.TopicPartition]string{},
	}
}

// settled reports that the member has what it is to have.
func (m *ConsumerMember) settled(targetEpoch int32) bool {
	return m.Epoch == targetEpoch && len(m.Revoking) == 0 && !m.Waiting
}

// bytes is about what the member takes in memory and in the log.
func (m *ConsumerMember) bytes() int {
	n := consumerBytes + 2*len(m.ID) + len(m.Instance) + len(m.Zone) + len(m.ClientID) + len(m.ClientHost) + len(m.Pattern) + len(m.Assignor)
	for _, t := range m.Topics {
		n += 16 + len(t)
	}
	n += 4 * (m.Assigned.bytes() + m.Revoking.bytes()) // as many again in owners
	if m.Classic != nil {
		for _, p := range m.Classic.Protocols {
			n += 64 + len(p.Name) + len(p.Metadata)
		}
	}
	return n
}

// put replaces the member of that id.
func (c *Consumers) put(m *ConsumerMember) {
	c.remove(m.ID)
	c.members[m.ID] = m
	c.bytes += m.bytes()
	if m.Instance != "" {
		c.byInstance[m.Instance] = m.ID
	}
	for _, tp := range m.Assigned {
		c.owners[tp] = m.ID
	}
	for _, tp := range m.Revoking {
		c.owners[tp] = m.ID
	}
}

func (c *Consumers) remove(id string) {
	m := c.members[id]
	if m == nil {
		return
	}
	delete(c.members, id)
	c.bytes -= m.bytes()
	if c.byInstance[m.Instance] == id {
		delete(c.byInstance, m.Instance)
	}
	for _, set := range []Partitions{m.Assigned, m.Revoking} {
		for _, tp := range set {
			if c.owners[tp] == id {
				delete(c.owners, tp)
			}
		}
	}
}

func (c *Consumers) setTarget(id string, target Partitions) {
	if old, ok := c.targets[id]; ok {
		c.bytes -= old.bytes() + len(id)
		delete(c.targets, id)
	}
	if target != nil {
		c.targets[id] = target
		c.bytes += target.bytes() + len(id)
	}
}

// ids lists the members' ids, sorted.
func (c *Consumers) ids() []string { return slices.Sorted(maps.Keys(c.members)) }

func (c *Consumers) proto() *grouppb.Consumers {
	if c == nil {
		return nil
	}
	pb := &grouppb.Consumers{Epoch: c.Epoch, TargetEpoch: c.TargetEpoch, Assignor: c.Assignor, TopicsHash: c.TopicsHash, TopicsIndex: uint64(c.TopicsIndex)}
	for _, id := range c.ids() {
		pb.Members = append(pb.Members, c.members[id].proto())
	}
	for _, id := range slices.Sorted(maps.Keys(c.targets)) {
		pb.Targets = append(pb.Targets, &grouppb.Target{Member: id, Partitions: c.targets[id].proto()})
	}
	return pb
}

func (m *ConsumerMember) proto() *grouppb.ConsumerMember {
	pb := &grouppb.ConsumerMember{
		Id: m.ID, Instance: m.Instance, Zone: m.Zone, ClientId: m.ClientID, ClientHost: m.ClientHost,
		RebalanceMillis: m.Rebalance.Milliseconds(), Topics: m.Topics, Pattern: m.Pattern, Assignor: m.Assignor,
		Epoch: m.Epoch, PreviousEpoch: m.PreviousEpoch, Waiting: m.Waiting,
		Assigned: m.Assigned.proto(), Revoking: m.Revoking.proto(),
	}
	if m.Classic != nil {
		pb.Classic = &grouppb.Classic{SessionMillis: m.Classic.Session.Milliseconds()}
		for _, p := range m.Classic.Protocols {
			pb.Classic.Protocols = append(pb.Classic.Protocols, &grouppb.Protocol{Name: p.Name, Metadata: p.Metadata})
		}
	}
	return pb
}

// consumerMemberFrom reads the stored form; nil if it cannot be one.
func consumerMemberFrom(pb *grouppb.ConsumerMember) *ConsumerMember {
	if !topicIDsIn(pb.GetAssigned()) || !topicIDsIn(pb.GetRevoking()) {
		return nil
	}
	m := &ConsumerMember{
		ID: pb.GetId(), Instance: pb.GetInstance(), Zone: pb.GetZone(), ClientID: pb.GetClientId(), ClientHost: pb.GetClientHost(),
		Rebalance: time.Duration(pb.GetRebalanceMillis()) * time.Millisecond,
		Topics:    pb.GetTopics(), Pattern: pb.GetPattern(), Assignor: pb.GetAssignor(),
		Epoch: pb.GetEpoch(), PreviousEpoch: pb.GetPreviousEpoch(), Waiting: pb.GetWaiting(),
		Assigned: partitionsFrom(pb.GetAssigned()), Revoking: partitionsFrom(pb.GetRevoking()),
	}
	if c := pb.GetClassic(); c != nil {
		m.Classic = &Classic{Session: time.Duration(c.GetSessionMillis()) * time.Millisecond}
		for _, p := range c.GetProtocols() {
			m.Classic.Protocols = append(m.Classic.Protocols, Protocol{Name: p.GetName(), Metadata: p.GetMetadata()})
		}
	}
	return m
}

// consumersFrom reads a snapshot's form; ok is false if it is damaged.
func consumersFrom(pb *grouppb.Consumers) (c *Consumers, ok bool) {
	c = newConsumers()
	c.Epoch, c.TargetEpoch, c.Assignor, c.TopicsHash = pb.GetEpoch(), pb.GetTargetEpoch(), pb.GetAssignor(), pb.GetTopicsHash()
	c.TopicsIndex = record.Index(pb.GetTopicsIndex())
	return c, c.merge(pb.GetMembers(), pb.GetTargets())
}

// merge puts members and targets; false, and nothing is changed, if one of them
// cannot be.
func (c *Consumers) merge(members []*grouppb.ConsumerMember, targets []*grouppb.Target) bool {
	next := make([]*ConsumerMember, len(members))
	for i, pb := range members {
		if next[i] = consumerMemberFrom(pb); next[i] == nil {
			return false
		}
	}
	for _, t := range targets {
		if !topicIDsIn(t.GetPartitions()) {
			return false
		}
	}
	// Taken out first: a partition may go from one of them to another.
	for _, m := range next {
		c.remove(m.ID)
	}
	for _, m := range next {
		c.put(m)
	}
	for _, t := range targets {
		c.setTarget(t.GetMember(), partitionsFrom(t.GetPartitions()))
	}
	return true
}
