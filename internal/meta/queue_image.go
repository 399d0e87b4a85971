package meta

import (
	"time"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// QueueGroup is a second way of reading a topic: see package queue. How far it is
// with each partition the partitions know.
type QueueGroup struct {
	ID       queue.GroupID
	Name     string
	Topic    record.TopicID
	Settings queue.Settings // with the defaults filled in
	Created  time.Time
	// Version is the index at which it was last changed: who changes settings names
	// the version that he has seen.
	Version record.Index
	// Share is the share group (KIP-932) that reads the topic through it, and for which
	// it was made; "" if it was made as a queue group.
	Share string
}

// QueueGroup finds a queue group by name; nil if there is none.
func (im *Image) QueueGroup(name string) *QueueGroup { return im.QueueGroups[name] }

// QueueGroupsOf are the queue groups of a topic, by id. The slice is not to be changed.
func (im *Image) QueueGroupsOf(topic record.TopicID) []*QueueGroup { return im.queuesByTopic[topic] }

// QueueGroupDeleted reports whether there was once a queue group of this id and is
// no more. An id that this image does not know yet is not deleted.
func (im *Image) QueueGroupDeleted(topic record.TopicID, id queue.GroupID) bool {
	if id > im.LastQueueGroup {
		return false
	}
	for _, g := range im.queuesByTopic[topic] {
		if g.ID == id {
			return false
		}
	}
	return true
}
