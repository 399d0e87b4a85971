package broker

import (
	"errors"

	"github.com/tube-mq/tube/internal/record"
)

// What a partition may answer. Doors map these (with errors.Is) to wire codes.
var (
	// ErrUnknownPartition: this node knows of no such topic or partition.
	ErrUnknownPartition = errors.New("unknown topic or partition")
	// ErrNotLeader: another replica leads, or none does just now. Nothing was stored.
	ErrNotLeader = errors.New("not the leader of the partition")
	// ErrUnknownOutcome: the proposal's fate is not known (leadership was lost
	// while it was under way, or the deadline passed). It may be stored or may
	// yet be; sequences make the retry safe. Doors answer a retriable error.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrOutOfRange: the offset is below the log start or above the high watermark.
	ErrOutOfRange = errors.New("offset out of range")
	// ErrFencedEpoch / ErrUnknownEpoch: the caller's leader epoch is older / newer than ours.
	ErrFencedEpoch  = errors.New("fenced leader epoch")
	ErrUnknownEpoch = errors.New("unknown leader epoch")
	// ErrOutOfOrderSequence, ErrProducerFenced, ErrUnknownProducer: idempotent produce.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	ErrProducerFenced     = errors.New("producer epoch is fenced")
	ErrUnknownProducer    = errors.New("unknown producer id")
	// ErrDuplicateSequence: a repeat too old to say its offset.
	ErrDuplicateSequence = errors.New("duplicate sequence number")
	// ErrDiskFull: refused before the disk is full; retry later.
	ErrDiskFull = errors.New("disk is full")
	// ErrStorage: this partition's data is damaged or cannot be read here; the
	// log says which file and offset.
	ErrStorage = errors.New("partition storage error")
	// ErrBusy: too much is under way; retry later.
	ErrBusy = errors.New("overloaded")
	// ErrTimestamp: a record's time is outside the topic's message.timestamp limits.
	ErrTimestamp = errors.New("record timestamp outside the topic's limits")
	// ErrStopping: the node is shutting down.
	ErrStopping = errors.New("node is stopping")
)

// ProduceRequest is one partition's part of a produce call.
type ProduceRequest struct {
	// Batch is exactly one record batch lying in Buf. Until done is called the
	// broker may write to its header (offset and epoch fields). Nil Buf means
	// that Batch is the broker's to keep.
	Batch []byte
	Buf   *record.Buffer // the broker retains it for as long as it needs
	// LeaderEpoch the client believes in, −1 for none.
	LeaderEpoch record.Epoch
}

// ProduceResult answers a ProduceRequest.
type ProduceResult struct {
	BaseOffset          record.Offset // of the first record; a repeat gets its first offset; −1 on error
	LogAppendTimeMillis int64         // −1 unless the topic stamps LogAppendTime
	LogStart            record.Offset
	Err                 error
}

// Bounds are the offsets that a client may see of a partition.
type Bounds struct {
	LogStart      record.Offset
	HighWatermark record.Offset // committed end: the next offset a reader may wait for
	LastStable    record.Offset // end for read_committed
	LeaderEpoch   record.Epoch
}

// ReadRequest asks for whole batches from the one that contains Offset.
type ReadRequest struct {
	Offset   record.Offset
	MaxBytes int // budget; the first batch is returned whole even if larger when MinOne
	MinOne   bool
	// LeaderEpoch the client believes in, −1 for none.
	LeaderEpoch record.Epoch
	// Committed asks to end at LastStable rather than HighWatermark.
	Committed bool
	// CaughtUp allows that a replica answers which does not lead: it has caught up
	// for this reader, see Partition.CatchUp.
	CaughtUp bool
}

// ReadResult holds whole, checked batches. Release must be called once the
// bytes are no longer needed; it is nil when Parts is empty. Ahead, if it is not nil,
// may be called once they are on their way: it reads on for who will ask for what
// follows.
type ReadResult struct {
	Parts     [][]byte // batches in order; a part may hold several, or one its beginning and the next its rest
	SizeBytes int
	Bounds    Bounds
	// Aborted lists aborted transactions that overlap, for read_committed.
	Aborted []AbortedTransaction
	// Followed: a replica answered that does not lead.
	Followed bool
	Release  func()
	Ahead    func()
}

// AbortedTransaction tells a read_committed reader what to skip.
type AbortedTransaction struct {
	ProducerID  record.ProducerID
	FirstOffset record.Offset
}

// Watcher is told that a partition's bounds or leadership changed. Wake is
// called from the partition's loop: it must not block and may be called more
// often than needed.
type Watcher interface{ Wake() }

// TimedOffset is an offset found by time, with the record's timestamp.
type TimedOffset struct {
	Offset          record.Offset // −1: none
	TimestampMillis int64         // −1: none
	LeaderEpoch     record.Epoch
}

// ProducerState is what DescribeProducers shows of one producer.
type ProducerState struct {
	ID                  record.ProducerID
	Epoch               int16
	LastSequence        int32
	LastTimestampMillis int64
	TxnStart            record.Offset // −1: no open transaction
}
