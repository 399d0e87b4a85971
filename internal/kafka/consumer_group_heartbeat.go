package kafka

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/record"
)

// consumerGroupHeartbeat is the whole of membership in a group whose partitions
// the coordinator assigns (KIP-848). Before v1 the server makes the member's id.
func (d *Door) consumerGroupHeartbeat(ctx context.Context, c *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.ConsumerGroupHeartbeatRequest)
	resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	if req.InstanceID != nil && *req.InstanceID == "" || req.RackID != nil && *req.RackID == "" {
		text := "instance id and rack id may be left out, but not be empty"
		resp.ErrorCode, resp.ErrorMessage = groupCode(group.ErrInvalidRequest), &text
		return resp
	}
	h := d.groups.Members.ConsumerHeartbeat(ctx, consumerHeartbeat(c, req))
	if resp.ErrorCode, resp.ErrorMessage = groupCode(h.Err), groupMessage(h.Err); h.Err != nil {
		return resp
	}
	resp.MemberID, resp.MemberEpoch = &h.MemberID, h.Epoch
	resp.HeartbeatIntervalMillis = int32(h.Interval.Milliseconds())
	if h.HasAssignment {
		a := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
		a.Topics = []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{}
		eachTopic(h.Assignment, func(topic record.TopicID, partitions []int32) {
			t := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
			t.TopicID, t.Partitions = topic, partitions
			a.Topics = append(a.Topics, t)
		})
		resp.Assignment = &a
	}
	return resp
}

// consumerHeartbeat copies everything that a group keeps: the request's bytes are
// used again.
func consumerHeartbeat(c *client, req *kmsg.ConsumerGroupHeartbeatRequest) *group.ConsumerHeartbeatRequest {
	id, host := identity(c)
	h := &group.ConsumerHeartbeatRequest{
		Group: req.Group, MemberID: strings.Clone(req.MemberID), Epoch: req.MemberEpoch,
		Instance: strings.Clone(orEmpty(req.InstanceID)), Zone: strings.Clone(orEmpty(req.RackID)),
		ClientID: strings.Clone(id), ClientHost: host,
		Rebalance: time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond,
		Pattern:   cloned(req.SubscribedTopicRegex), Assignor: cloned(req.ServerAssignor),
		OwnedSaid: req.Topics != nil,
	}
	if req.SubscribedTopicNames != nil {
		h.Topics = make([]string, len(req.SubscribedTopicNames))
		for i, t := range req.SubscribedTopicNames {
			h.Topics[i] = strings.Clone(t)
		}
	}
	var owned []record.TopicPartition
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			owned = append(owned, record.TopicPartition{Topic: t.TopicID, Partition: record.Partition(p)})
		}
	}
	h.Owned = group.NewPartitions(owned)
	return h
}

func cloned(s *string) *string {
	if s == nil {
		return nil
	}
	c := strings.Clone(*s)
	return &c
}

// eachTopic calls f for each topic with its partitions' numbers.
func eachTopic(ps group.Partitions, f func(topic record.TopicID, partitions []int32)) {
	for len(ps) > 0 {
		n := slices.IndexFunc(ps, func(tp record.TopicPartition) bool { return tp.Topic != ps[0].Topic })
		if n < 0 {
			n = len(ps)
		}
		numbers := make([]int32, n)
		for i, tp := range ps[:n] {
			numbers[i] = int32(tp.Partition)
		}
		f(ps[0].Topic, numbers)
		ps = ps[n:]
	}
}
