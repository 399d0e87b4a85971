// Package record holds the types that every layer shares: ids, offsets and the
// Kafka record batch (magic 2), which is Tube's unit on the wire, in the Raft
// log and on disk. It does no I/O.
package record

import (
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"
)

// Offset is the position of a record in its partition, counted from 0.
type Offset int64

// Epoch is a partition's leader epoch as Kafka clients see it. Tube uses the
// Raft term of the partition's group for it, so it never goes back.
type Epoch int32

// Partition is the number of a partition within its topic, counted from 0.
type Partition int32

// NodeID identifies a node of the cluster; valid ids are ≥ 0.
type NodeID int32

// ReplicaID identifies one replica in its Raft group for as long as the group
// exists. A replica that lost its log comes back under a new one, so an id is
// never used twice. Zero is not a replica.
type ReplicaID uint64

// Group identifies a replica group (one Raft log). Zero is not a group.
type Group uint64

// Index is a position in a group's Raft log, counted from 1.
type Index uint64

// Term is a Raft term.
type Term uint64

// ProducerID identifies an idempotent producer; −1 means none.
type ProducerID int64

// TopicID is a topic's identity: it is never used again after a deletion.
// The zero value means "no id".
type TopicID [16]byte

// NewTopicID returns a random topic id (a version 4 UUID).
func NewTopicID() TopicID { return TopicID(uuid.New()) }

// IsZero reports whether the id is unset.
func (t TopicID) IsZero() bool { return t == TopicID{} }

// String returns the id as 32 hexadecimal digits, the form used in paths.
func (t TopicID) String() string { return hex.EncodeToString(t[:]) }

// ParseTopicID reads the form that String writes.
func ParseTopicID(s string) (TopicID, error) {
	var t TopicID
	if n, err := hex.Decode(t[:], []byte(s)); err != nil || n != len(t) || len(s) != 32 {
		return TopicID{}, fmt.Errorf("topic id %q: want 32 hexadecimal digits", s)
	}
	return t, nil
}

// TopicPartition names one partition of one topic by id.
type TopicPartition struct {
	Topic     TopicID
	Partition Partition
}

// String returns "<topic id>-<partition>", the name of the partition's folder.
func (tp TopicPartition) String() string {
	return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition)
}
