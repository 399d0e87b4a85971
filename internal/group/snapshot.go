package group

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/group/grouppb"
	"github.com/tube-mq/tube/internal/record"
)

// snapshotFormat is written into every snapshot; a newer one is refused.
const snapshotFormat = 1

// ErrSnapshot: the snapshot is damaged or of a newer format. The machine is
// unchanged.
var ErrSnapshot = errors.New("bad groups snapshot")

// Snapshot returns the whole state. Equal states give equal bytes.
func (m *Machine) Snapshot() []byte {
	pb := &grouppb.Snapshot{Format: snapshotFormat, Index: uint64(m.index), ClockMillis: m.clock.Milliseconds()}
	for _, name := range slices.Sorted(maps.Keys(m.groups)) {
		g := m.groups[name]
		pb.Groups = append(pb.Groups, &grouppb.Group{
			Name: name, State: g.state.proto(), EmptyClockMillis: g.emptyClock.Milliseconds(), Topics: g.topicsProto(), Consumers: g.consumers.proto(),
		})
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(pb)
	if err != nil {
		panic(fmt.Sprintf("group: encoding a snapshot: %v", err)) // names are checked to be UTF-8 at the door
	}
	return b
}

// Digest is a hash of the whole state, equal on all replicas at one index.
func (m *Machine) Digest() uint64 {
	h := fnv.New64a()
	h.Write(m.Snapshot())
	return h.Sum64()
}

// Restore replaces the state by a snapshot's.
func (m *Machine) Restore(b []byte) error {
	var pb grouppb.Snapshot
	if err := proto.Unmarshal(b, &pb); err != nil {
		return fmt.Errorf("%w: %v", ErrSnapshot, err)
	}
	if pb.GetFormat() != snapshotFormat {
		return fmt.Errorf("%w: format %d, this binary reads %d", ErrSnapshot, pb.GetFormat(), snapshotFormat)
	}
	next := NewMachine()
	for _, g := range pb.GetGroups() {
		if g.GetState() == nil {
			return fmt.Errorf("%w: group %q has no state", ErrSnapshot, g.GetName())
		}
		if next.groups[g.GetName()] != nil {
			return fmt.Errorf("%w: group %q is there twice", ErrSnapshot, g.GetName())
		}
		s := next.create(g.GetName())
		s.state = newState(record.Index(g.GetState().GetVersion()), g.GetState())
		if pb := g.GetConsumers(); pb != nil {
			c, ok := consumersFrom(pb)
			if !ok {
				return fmt.Errorf("%w: group %q", ErrSnapshot, g.GetName())
			}
			s.consumers, s.state.ByCoordinator, s.state.Consumers = c, true, len(c.members)
			next.bytes += c.bytes
		}
		s.emptyClock = time.Duration(g.GetEmptyClockMillis()) * time.Millisecond
		if err := next.readTopics(s, g.GetTopics()); err != nil {
			return fmt.Errorf("%w: group %q", err, g.GetName())
		}
	}
	next.index = record.Index(pb.GetIndex())
	next.clock = time.Duration(pb.GetClockMillis()) * time.Millisecond
	*m = *next
	return nil
}

// topicsProto lists the offsets in the order of topic id and partition.
func (g *stored) topicsProto() []*grouppb.TopicOffsets {
	ids := slices.SortedFunc(maps.Keys(g.topics), func(a, b record.TopicID) int { return bytes.Compare(a[:], b[:]) })
	out := make([]*grouppb.TopicOffsets, 0, len(ids))
	for _, id := range ids {
		t := g.topics[id]
		pb := &grouppb.TopicOffsets{Topic: id[:], Name: t.name}
		for _, p := range slices.Sorted(maps.Keys(t.partitions)) {
			o := t.partitions[p]
			pb.Partitions = append(pb.Partitions, &grouppb.PartitionOffset{
				Partition: int32(p), Offset: int64(o.Offset.Offset), LeaderEpoch: int32(o.LeaderEpoch),
				Metadata: o.Metadata, TimeMillis: o.Committed.UnixMilli(),
				ClockMillis: o.clock.Milliseconds(), RetentionMillis: o.retention.Milliseconds(),
			})
		}
		out = append(out, pb)
	}
	return out
}

func (m *Machine) readTopics(g *stored, topics []*grouppb.TopicOffsets) error {
	if checkTopics(topics) != nil {
		return ErrSnapshot
	}
	for _, t := range topics {
		to := m.topic(g, record.TopicID(t.GetTopic()), t.GetName())
		for _, p := range t.GetPartitions() {
			m.put(to, record.Partition(p.GetPartition()), storedOffset{
				Offset: Offset{
					Offset: record.Offset(p.GetOffset()), LeaderEpoch: record.Epoch(p.GetLeaderEpoch()),
					Metadata: p.GetMetadata(), Committed: time.UnixMilli(p.GetTimeMillis()),
				},
				clock:     time.Duration(p.GetClockMillis()) * time.Millisecond,
				retention: time.Duration(p.GetRetentionMillis()) * time.Millisecond,
			})
		}
	}
	return nil
}
