package group

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/tube-mq/tube/internal/record"
)

// Topics is what coordinators know of the cluster's topics, at one moment. It is
// immutable.
type Topics struct {
	Index  record.Index // of the metadata that this is of
	byName map[string]*Topic
	byID   map[record.TopicID]*Topic
	names  []string // sorted
}

// Topic is one topic as its readers' coordinator sees it; immutable.
type Topic struct {
	ID         record.TopicID
	Name       string
	Partitions int
	// Zones of each partition's replicas, the preferred leader's first; nil if
	// nobody told a zone. Leaders of the moment are left out on purpose: a
	// rebalance for each change of leader would cost more than it gains.
	Zones [][]string
	hash  uint64
}

// NewTopics makes a view of the topics.
func NewTopics(index record.Index, topics []*Topic) *Topics {
	ts := &Topics{Index: index, byName: make(map[string]*Topic, len(topics)), byID: make(map[record.TopicID]*Topic, len(topics))}
	for _, t := range topics {
		ts.byName[t.Name], ts.byID[t.ID] = t, t
		if t.hash == 0 {
			t.hash = t.sum()
		}
	}
	ts.names = slices.Sorted(maps.Keys(ts.byName))
	return ts
}

// sum is a hash of all that an assignment depends on, the same on every node.
func (t *Topic) sum() uint64 {
	h := fnv.New64a()
	h.Write(t.ID[:])
	h.Write(binary.BigEndian.AppendUint64([]byte(t.Name), uint64(t.Partitions)))
	for _, zones := range t.Zones {
		for _, z := range zones {
			h.Write(append([]byte(z), 0))
		}
		h.Write([]byte{1})
	}
	return h.Sum64()
}

// Name is the topic's name; empty if it is not there.
func (ts *Topics) Name(id record.TopicID) string {
	if t := ts.byID[id]; t != nil {
		return t.Name
	}
	return ""
}
