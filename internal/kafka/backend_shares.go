package kafka

import (
	"context"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// Shares is what share groups need besides members and partitions: the queue groups
// through which they read.
type Shares struct {
	Queues ShareQueues
	Admin  ShareAdmin
}

// ShareQueues are the queue groups of share groups. Errors are meta's and queue's
// sentinels, and master.ErrUnavailable.
type ShareQueues interface {
	// Queue finds the queue group through which a share group reads a topic, or makes it.
	Queue(ctx context.Context, share string, topic record.TopicID) (*meta.QueueGroup, error)
	// Begun returns once a queue group has begun in all partitions: what is sent after
	// that is its own.
	Begun(ctx context.Context, g *meta.QueueGroup) error
	// Waiter waits for messages of queue groups, in the partitions that this node leads.
	Waiter(of []broker.QueueOf) *broker.QueueWaiter
	// SessionGone says that a consumer is not there any more that has leases here.
	SessionGone(session string)
}

// ShareAdmin looks at and changes how far share groups are, wherever the partitions
// are led.
type ShareAdmin interface {
	// Progress tells how far a queue group is, by partition.
	Progress(ctx context.Context, g *meta.QueueGroup) ([]ShareProgress, error)
	// Seek has a queue group go on elsewhere in one partition.
	Seek(ctx context.Context, g *meta.QueueGroup, to queue.Place) error
	Delete(ctx context.Context, g *meta.QueueGroup) error
	AlterConfig(ctx context.Context, share string, c master.ConfigChange) error
}

// ShareProgress says how far a queue group is in one partition. Known is false if
// nobody leads it.
type ShareProgress struct {
	Known   bool
	Floor   record.Offset // everything below is done
	Backlog int64         // messages that are not
}

// PartitionQueue is what share groups need of a partition. Errors are the broker's and
// queue's sentinels.
type PartitionQueue interface {
	QueueAcquire(id queue.GroupID, t queue.Taking) ([]queue.Taken, error)
	QueueSettle(ctx context.Context, id queue.GroupID, list []queue.Settlement) []error
	// QueueBatches reads the batches that messages lie in; offsets says how many of
	// them it came to.
	QueueBatches(list []record.Offset, maxBytes int) (batches []byte, offsets int, err error)
	QueueBatchEnd(o record.Offset) (record.Offset, error)
}
