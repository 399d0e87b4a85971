package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/record"
)

// Kinds of member in a group whose partitions the coordinator assigns.
const (
	classicMember  = 0
	consumerMember = 1
)

// consumerGroupDescribe shows groups whose partitions the coordinator assigns.
func (d *Door) consumerGroupDescribe(ctx context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.ConsumerGroupDescribeRequest)
	resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	for _, name := range req.Groups {
		g := d.groups.Admin.DescribeConsumers(ctx, name)
		rg := kmsg.NewConsumerGroupDescribeResponseGroup()
		rg.Group = name
		if rg.ErrorCode, rg.ErrorMessage = groupCode(g.Err), groupMessage(g.Err); g.Err == nil {
			rg.State, rg.Epoch, rg.AssignmentEpoch, rg.AssignorName = string(g.Phase), g.Epoch, g.TargetEpoch, g.Assignor
			for _, m := range g.Members {
				rg.Members = append(rg.Members, describedConsumer(g, m))
			}
			if req.IncludeAuthorizedOperations {
				rg.AuthorizedOperations = groupOperations
			}
		}
		resp.Groups = append(resp.Groups, rg)
	}
	return resp
}

func describedConsumer(g *group.ConsumerDescription, m group.DescribedConsumer) kmsg.ConsumerGroupDescribeResponseGroupMember {
	rm := kmsg.NewConsumerGroupDescribeResponseGroupMember()
	rm.MemberID, rm.InstanceID, rm.RackID, rm.MemberEpoch = m.ID, orNull(m.Instance), orNull(m.Zone), m.Epoch
	rm.ClientID, rm.ClientHost, rm.SubscribedTopics, rm.SubscribedTopicRegex = m.ClientID, m.ClientHost, m.Topics, orNull(m.Pattern)
	rm.Assignment, rm.TargetAssignment = describedAssignment(g.Topics, m.Assigned), describedAssignment(g.Topics, m.Target)
	rm.MemberType = consumerMember
	if m.Classic != nil {
		rm.MemberType = classicMember
	}
	return rm
}

// describedAssignment names the topics; one that was deleted is left out.
func describedAssignment(topics *group.Topics, ps group.Partitions) kmsg.Assignment {
	a := kmsg.NewAssignment()
	eachTopic(ps, func(id record.TopicID, partitions []int32) {
		if topics == nil || topics.Name(id) == "" {
			return
		}
		tp := kmsg.NewAssignmentTopicPartition()
		tp.TopicID, tp.Topic, tp.Partitions = id, topics.Name(id), partitions
		a.TopicPartitions = append(a.TopicPartitions, tp)
	})
	return a
}
