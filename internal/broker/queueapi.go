package broker

import (
	"context"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// QueueHooks are what the broker's queues need from their node. None may block but
// DeadLetters.Write.
type QueueHooks struct {
	DeadLetters DeadLetters // nil: dead messages are dropped, and logged
	// Ask puts a question to a consumer, wherever its session is. answer may be called
	// for each of the leases, at once or later, from any goroutine; what is not
	// answered within two seconds counts as unknown. Nil: nobody is asked.
	Ask func(group queue.GroupID, ask queue.Ask, answer func(queue.Lease, queue.Answer))
	// Lost is told, where the partition leads, that messages of a group went with the
	// log's start before they were done.
	Lost func(QueueLost)
	// Retention is told, where the partition leads and before anything goes, how near a
	// group's messages are to being taken by retention. It may block for a few seconds.
	Retention func(context.Context, QueueRisk)
	// CarryOut does what an intent of a partition that is led here says, and then calls
	// QueueIntended. It may block; it is called again until that was done.
	CarryOut func(ctx context.Context, of record.TopicPartition, id string, intent []byte)
}

// DeadLetters writes dead letters to their topics.
type DeadLetters interface {
	// Write calls done, before it returns or later, once the dead letter is committed,
	// or with an error. It is called again, with the same message id, when it is not
	// known whether it was. It may block.
	Write(ctx context.Context, d queue.DeadLetter, done func(error))
}

// QueueLost says what retention took from a group.
type QueueLost struct {
	Topic     string
	Partition record.TopicPartition
	queue.Lost
}

// QueueRisk says how near what a group is not done with in a partition is to being
// taken by retention.
type QueueRisk struct {
	Topic     string
	Partition record.TopicPartition
	Group     queue.GroupID
	Name      string // of the group
	// UsedPercent of what retention keeps, by age or size, lies before the first message
	// that the group is not done with goes: 50 to 100.
	UsedPercent int
	Goes        int64 // messages that it is not done with and that go now
}

// QueueTopic says which queue groups a topic has, as an image of the metadata does.
type QueueTopic struct {
	ID         record.TopicID
	Name       string
	Partitions int
	Groups     []QueueGroup
	// LastID is the largest group id that the metadata has given: what is below, or
	// it, and not among Groups was deleted, or is another topic's.
	LastID queue.GroupID
}

// QueueGroup is a group as the metadata has it.
type QueueGroup struct {
	ID       queue.GroupID
	Name     string
	Settings queue.Settings
	Filter   queue.Filter // compiled from Settings.Filter; nil: everything
}

// QueueTo says where a group is to go on.
type QueueTo struct {
	Offset record.Offset
	// TimeMillis, if not 0, counts instead: queue.StartAtStart, queue.StartAtEnd or a
	// time in ms since 1970, for the first message at or behind it.
	TimeMillis int64
}

// QueueTraced says what became of a message in one group.
type QueueTraced struct {
	Group   queue.GroupID
	Member  string         // of a broadcast group
	Status  string         // done, dead, cancelled, delayed, ready, suspect, leased, asked, settling, waiting, dying, parked
	Trace   queue.Trace    // what is committed
	Pending *queue.Pending // what the leader knows; nil: nothing more
}
