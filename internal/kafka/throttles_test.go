package kafka

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafka-reassign-partitions takes throttles back whenever it verifies or cancels.
func TestThrottlesAreTakenBackButNotSet(t *testing.T) {
	eachGroupVersion(t, 44, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		d.topic("t", 1)
		d.topic("u", 1)
		cases := []struct {
			r    kmsg.IncrementalAlterConfigsRequestResource
			want *kerr.Error
		}{
			{changesOf(brokerKind, "1", operation(unset, "leader.replication.throttled.rate"), operation(unset, "follower.replication.throttled.rate"), operation(unset, "replica.alter.log.dirs.io.max.bytes.per.second")), nil},
			{changesOf(brokerKind, "2", operation(unset, "leader.replication.throttled.rate")), kerr.InvalidRequest},
			{changesOf(brokerKind, "", operation(set, "leader.replication.throttled.rate=5")), kerr.InvalidConfig},
			{changesOf(topicKind, "t", operation(unset, "leader.replication.throttled.replicas"), operation(unset, "follower.replication.throttled.replicas"), operation(set, "segment.ms=6")), nil},
			{changesOf(topicKind, "u", operation(set, "leader.replication.throttled.replicas=0:1")), kerr.InvalidConfig},
			{changesOf(topicKind, "none", operation(unset, "leader.replication.throttled.replicas")), kerr.UnknownTopicOrPartition},
		}
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		for _, c := range cases {
			req.Resources = append(req.Resources, c.r)
		}
		got := askAdmin[*kmsg.IncrementalAlterConfigsResponse](d, v, req).Resources
		for i, c := range cases {
			wantAdminCode(t, got[i].ErrorCode, got[i].ErrorMessage, c.want)
		}
		if m := got[4].ErrorMessage; m == nil || !strings.Contains(*m, "tube topic reassign") {
			t.Errorf("what to do instead is not said: %v", m)
		}
		if d.image().Topic("t").Overrides["segment.ms"] != "6" {
			t.Error("what stands beside a throttle was not set")
		}
	})
}
