package meta

import "time"

// TopicConfig is a topic's settings, resolved and typed. Names and defaults are
// Kafka's where Kafka has them.
type TopicConfig struct {
	Retention          time.Duration // retention.ms; < 0: no limit
	RetentionBytes     int64         // retention.bytes, per partition; < 0: no limit
	SegmentBytes       int64         // segment.bytes
	SegmentAge         time.Duration // segment.ms
	MaxMessageBytes    int           // max.message.bytes: the largest batch
	LogAppendTime      bool          // message.timestamp.type = LogAppendTime
	TimestampBeforeMax time.Duration // message.timestamp.before.max.ms
	TimestampAfterMax  time.Duration // message.timestamp.after.max.ms
	MinInsyncReplicas  int           // min.insync.replicas: accepted and explained
	Durability         Durability    // tube.durability
	MemoryOnly         bool          // tube.storage = memory
}

// Durability is when a produced batch is acknowledged.
type Durability string

// The durabilities, safest first.
const (
	QuorumFsync  Durability = "quorum-fsync"  // fsynced on a majority
	QuorumMemory Durability = "quorum-memory" // in the page cache of a majority; a power cut of a majority may lose the last moments
	NoDurability Durability = "none"          // on the leader's page cache
)
