package kafka

import (
	"context"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/record"
)

// Partitions finds the partitions that this node hosts.
// Errors: broker.ErrUnknownPartition, broker.ErrNotLeader (known, hosted elsewhere).
type Partitions interface {
	Partition(topic record.TopicID, p record.Partition) (Partition, error)
	// Leader tells who leads a partition as far as this node knows; node −1: none known.
	Leader(topic record.TopicID, p record.Partition) (record.NodeID, record.Epoch)
}

// Partition is one hosted partition.
type Partition interface {
	// Produce checks the batch and proposes it. done is called exactly once,
	// possibly before Produce returns, and must not block.
	Produce(req broker.ProduceRequest, done func(broker.ProduceResult))
	// Read returns what is there now; it does not wait. An empty result at the
	// high watermark is no error.
	Read(req broker.ReadRequest) (broker.ReadResult, error)
	Bounds() (broker.Bounds, error)
	// Followers are the other nodes whose replicas keep up, if this one leads.
	Followers() []record.NodeID
	// CatchUp has this replica, which does not lead, become as new as its leader is.
	// done is called once, from any goroutine, and must not block; stop says that
	// nobody waits any more. Read with CaughtUp serves then.
	CatchUp(epoch record.Epoch, done func(error)) (stop func())
	// Watch registers w until stop is called.
	Watch(w broker.Watcher) (stop func())
	// Queue gives the calls of share groups.
	Queue() PartitionQueue
	// Lookup gives the calls that are not on the data path.
	Lookup() PartitionLookup
}

// PartitionLookup is what the slower calls need of a partition.
type PartitionLookup interface {
	// Confirm returns once a majority has said that this replica still leads, and
	// all that was acknowledged before the call can be seen.
	Confirm(ctx context.Context) error
	// OffsetForTime: the first record with a timestamp ≥ timeMillis.
	OffsetForTime(timeMillis int64) (broker.TimedOffset, error)
	// OffsetForMaxTime: the record with the largest timestamp.
	OffsetForMaxTime() (broker.TimedOffset, error)
	// EndOfEpoch: the largest known epoch ≤ e and the offset where it ends (KIP-320).
	EndOfEpoch(e record.Epoch) (record.Epoch, record.Offset, error)
	// DeleteRecords moves the log start up to before (−1: the high watermark).
	DeleteRecords(ctx context.Context, before record.Offset) (record.Offset, error)
	Producers() ([]broker.ProducerState, error)
	SizeBytes() int64
}
