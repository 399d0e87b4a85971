package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Settings by which Kafka's tools slow down copying to other replicas. There are none
// of them here: a move has its own limit (tube topic reassign --throttle).
var (
	brokerThrottles = []string{"leader.replication.throttled.rate", "follower.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second"}
	topicThrottles  = []string{"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
)

// withoutThrottles drops what takes throttles back: kafka-reassign-partitions does so
// when it verifies or cancels, whether it had set any or not. To set one is refused,
// as the copying would not be slower.
func withoutThrottles(at resource, configs []kmsg.IncrementalAlterConfigsRequestResourceConfig) ([]kmsg.IncrementalAlterConfigsRequestResourceConfig, error) {
	var names []string
	switch at.kind {
	case kmsg.ConfigResourceTypeBroker:
		names = brokerThrottles
	case kmsg.ConfigResourceTypeTopic:
		names = topicThrottles
	}
	var others []kmsg.IncrementalAlterConfigsRequestResourceConfig
	for _, c := range configs {
		switch {
		case !slices.Contains(names, c.Name):
			others = append(others, c)
		case c.Op != kmsg.IncrementalAlterConfigOpDelete:
			return nil, refuse(kerr.InvalidConfig, "%s is not there: leave --throttle out, or move with tube topic reassign, which has a --throttle of its own", c.Name)
		}
	}
	return others, nil
}
