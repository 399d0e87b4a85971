package kafka

import (
	"context"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// TopicAdmin administers topics, settings and producer ids. Errors are meta's
// sentinels, and master.ErrUnavailable when nobody can decide just now.
type TopicAdmin interface {
	CreateTopic(ctx context.Context, spec master.TopicSpec) (*meta.Topic, error)
	DeleteTopic(ctx context.Context, id record.TopicID) error
	CreatePartitions(ctx context.Context, spec master.PartitionsSpec) error
	AlterConfig(ctx context.Context, c master.ConfigChange) error
	BrokerSettings() []master.BrokerSetting
	ProducerID(ctx context.Context) (record.ProducerID, error)
}

// PlacementAdmin says where partitions lie, and moves them. Of several an error
// is told for each. Errors are those of TopicAdmin, and meta.ErrNotMoving.
type PlacementAdmin interface {
	Reassign(ctx context.Context, specs []master.ReassignSpec, throttle int64, dryRun bool) ([]master.PartitionMove, []error)
	CancelReassign(ctx context.Context, partitions []master.PartitionName) []error
	ListReassignments(topic string) []master.Reassignment
}

// Leaders asks partitions' leaders to let other nodes lead, waits for it, and
// tells of each what became of it.
type Leaders interface {
	TransferLeaders(ctx context.Context, transfers []master.TransferLeader) []error
}
