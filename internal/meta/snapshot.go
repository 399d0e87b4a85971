package meta

import (
	"cmp"
	"fmt"
	"hash/crc64"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/meta/metapb"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// Snapshot returns the whole state; the same state always has the same bytes.
func (m *Machine) Snapshot() []byte {
	im := m.image
	s := &metapb.Snapshot{
		Index: uint64(im.Index), ClusterId: im.ClusterID, NextGroup: uint64(m.nextGroup), NextReplica: uint64(m.nextReplica),
		NextProducerId: m.nextProducerID, Defaults: pairs(im.Defaults),
	}
	s.Founders, s.Recovered, s.Level = foundersToPB(im.Founders), im.Recovered, uint32(im.Level)
	for _, id := range slices.Sorted(maps.Keys(m.replaced)) {
		s.Replaced = append(s.Replaced, &metapb.Replaced{Node: int32(id), Incarnations: m.replaced[id]})
	}
	for _, id := range slices.Sorted(maps.Keys(im.Nodes)) {
		s.Nodes = append(s.Nodes, nodeToPB(im.Nodes[id]))
	}
	ids := slices.SortedFunc(maps.Keys(im.Topics), func(a, b record.TopicID) int { return slices.Compare(a[:], b[:]) })
	for _, id := range ids {
		s.Topics = append(s.Topics, topicToPB(im.Topics[id]))
	}
	s.QueueGroups, s.LastQueueGroup = queueGroupsToPB(im), uint64(im.LastQueueGroup)
	s.GroupConfigs = groupConfigsToPB(im.GroupConfigs)
	for _, e := range m.kept() {
		s.Events = append(s.Events, &metapb.Event{Seq: e.Seq, TimeMillis: e.Time.UnixMilli(), Kind: e.Kind, Subject: e.Subject, Text: e.Text})
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(s)
	if err != nil {
		panic("meta: snapshot does not encode: " + err.Error())
	}
	return b
}

// Digest is a hash of the state.
func (m *Machine) Digest() uint64 {
	return crc64.Checksum(m.Snapshot(), crc64.MakeTable(crc64.ECMA))
}

func topicToPB(t *Topic) *metapb.Topic {
	out := &metapb.Topic{Id: slices.Clone(t.ID[:]), Name: t.Name, Overrides: pairs(t.Overrides), CreatedMillis: t.Created.UnixMilli()}
	for _, p := range t.Partitions {
		pb := &metapb.Placement{
			Group: uint64(p.Group), Replicas: replicasToPB(p.Replicas), Target: replicasToPB(p.Target), Leaving: replicasToPB(p.Leaving),
			Throttle: p.Throttle, Recovery: p.Recovery, Cause: p.Cause,
			Founders: replicaIDsToPB(p.Founders),
		}
		out.Partitions = append(out.Partitions, pb)
	}
	return out
}

// Restore replaces the state with a snapshot's. Errors: ErrSnapshot, ErrOldProgram; the
// state is then as it was.
func (m *Machine) Restore(b []byte) error {
	var s metapb.Snapshot
	if err := proto.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("%w: %v", ErrSnapshot, err)
	}
	n := New()
	n.nextGroup, n.nextReplica, n.nextProducerID = record.Group(s.GetNextGroup()), record.ReplicaID(s.GetNextReplica()), s.GetNextProducerId()
	if n.nextGroup < FirstPartitionGroup || n.nextProducerID < 0 {
		return fmt.Errorf("%w: next group %d, next producer id %d", ErrSnapshot, n.nextGroup, n.nextProducerID)
	}
	im := n.image
	im.Index, im.ClusterID, im.Defaults = record.Index(s.GetIndex()), s.GetClusterId(), unpair(s.GetDefaults())
	im.Founders, im.Recovered, im.Level = foundersFromPB(s.GetFounders()), s.GetRecovered(), Level(s.GetLevel())
	if err := im.Follows(KnownLevel); err != nil {
		return err
	}
	for _, pb := range s.GetReplaced() {
		n.replaced[record.NodeID(pb.GetNode())] = pb.GetIncarnations()
	}
	for _, pb := range s.GetNodes() {
		im.Nodes[record.NodeID(pb.GetId())] = nodeFromPB(pb)
	}
	if len(im.Nodes) == 1 && im.Founders == nil { // written before clusters had several nodes
		for _, node := range im.Nodes {
			node.MetaReplica = max(node.MetaReplica, 1)
		}
	}
	for _, pb := range s.GetTopics() {
		t, err := topicFromPB(pb, im.Defaults)
		if err != nil {
			return fmt.Errorf("%w: topic %q: %w", ErrSnapshot, pb.GetName(), err)
		}
		im.Topics[t.ID], im.ByName[t.Name] = t, t
		n.metrics[metricName(t.Name)] = t.Name
	}
	if err := im.restoreQueueGroups(s.GetQueueGroups(), queue.GroupID(s.GetLastQueueGroup())); err != nil {
		return err
	}
	if err := im.restoreGroupConfigs(s.GetGroupConfigs()); err != nil {
		return err
	}
	for _, e := range s.GetEvents() {
		n.events = append(n.events, Event{e.GetSeq(), time.UnixMilli(e.GetTimeMillis()), e.GetKind(), e.GetSubject(), e.GetText()})
	}
	if !slices.IsSortedFunc(n.events, func(a, b Event) int { return cmp.Compare(a.Seq, b.Seq) }) {
		return fmt.Errorf("%w: events out of order", ErrSnapshot)
	}
	*m = *n
	return nil
}

func topicFromPB(pb *metapb.Topic, defaults map[string]string) (*Topic, error) {
	id, err := topicID(pb.GetId())
	if err != nil {
		return nil, err
	}
	t := &Topic{ID: id, Name: pb.GetName(), Overrides: unpair(pb.GetOverrides()), Created: time.UnixMilli(pb.GetCreatedMillis())}
	if t.Config, err = ResolveTopicConfig(t.Overrides, defaults); err != nil {
		return nil, err
	}
	for _, p := range pb.GetPartitions() {
		pl := Placement{
			Group: record.Group(p.GetGroup()), Leader: -1, Replicas: replicasFromPB(p.GetReplicas()), Target: replicasFromPB(p.GetTarget()),
			Leaving: replicasFromPB(p.GetLeaving()), Throttle: p.GetThrottle(), Recovery: p.GetRecovery(), Cause: p.GetCause(),
			Founders: replicaIDsFromPB(p.GetFounders()),
		}
		t.Partitions = append(t.Partitions, pl)
	}
	return t, nil
}

func replicasToPB(rs []Replica) []*metapb.Replica {
	var out []*metapb.Replica
	for _, r := range rs {
		out = append(out, &metapb.Replica{Id: uint64(r.ID), Node: int32(r.Node), Lost: r.Lost})
	}
	return out
}

func replicasFromPB(rs []*metapb.Replica) []Replica {
	var out []Replica
	for _, r := range rs {
		out = append(out, Replica{record.ReplicaID(r.GetId()), record.NodeID(r.GetNode()), r.GetLost()})
	}
	return out
}

func foundersToPB(fs []Founder) []*metapb.Founder {
	var out []*metapb.Founder
	for _, f := range fs {
		out = append(out, &metapb.Founder{Node: int32(f.Node), Replica: uint64(f.Replica), Taken: f.Taken})
	}
	return out
}

func foundersFromPB(fs []*metapb.Founder) []Founder {
	var out []Founder
	for _, f := range fs {
		out = append(out, Founder{record.NodeID(f.GetNode()), record.ReplicaID(f.GetReplica()), f.GetTaken()})
	}
	return out
}

func replicaIDsToPB(ids []record.ReplicaID) []uint64 {
	out := make([]uint64, len(ids))
	for i, id := range ids {
		out[i] = uint64(id)
	}
	return out
}

func replicaIDsFromPB(ids []uint64) []record.ReplicaID {
	out := make([]record.ReplicaID, len(ids))
	for i, id := range ids {
		out[i] = record.ReplicaID(id)
	}
	return out
}
