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
