package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/record"
)

// shareAssignor is the name of how a share group's partitions are assigned.
const shareAssignor = "simple"

// shareGroupDescribe shows share groups and their members. One without members is there
// if it has read something.
func (d *Door) shareGroupDescribe(_ context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.ShareGroupDescribeRequest)
	resp := req.ResponseKind().(*kmsg.ShareGroupDescribeResponse)
	for _, name := range req.GroupIDs {
		g := d.groups.Admin.DescribeShare(name)
		if errors.Is(g.Err, group.ErrGroupNotFound) && d.isShareGroup(name) {
			g.Err = nil
		}
		rg := kmsg.NewShareGroupDescribeResponseGroup()
		rg.GroupID = name
		if rg.ErrorCode, rg.ErrorMessage = groupCode(g.Err), groupMessage(g.Err); g.Err == nil {
			rg.GroupState, rg.GroupEpoch, rg.AssignmentEpoch, rg.Assignor = string(sharePhase(g)), g.Epoch, g.Epoch, shareAssignor
			for _, m := range g.Members {
				rg.Members = append(rg.Members, describedShareMember(g, m))
			}
			if req.IncludeAuthorizedOperations {
				rg.AuthorizedOperations = groupOperations
			}
		}
		resp.Groups = append(resp.Groups, rg)
	}
	return resp
}

// isShareGroup says that a share group of this name has read something.
func (d *Door) isShareGroup(name string) bool {
	for _, g := range d.image().ShareQueues(name) {
		if g.Share != "" {
			return true
		}
	}
	return false
}

func sharePhase(g *group.ShareDescription) group.Phase {
	if len(g.Members) == 0 {
		return group.Empty
	}
	return group.Stable
}

func describedShareMember(g *group.ShareDescription, m group.DescribedShareMember) kmsg.ShareGroupDescribeResponseGroupMember {
	rm := kmsg.NewShareGroupDescribeResponseGroupMember()
	rm.MemberID, rm.RackID, rm.MemberEpoch, rm.ClientID, rm.ClientHost, rm.SubscribedTopicNames = m.ID, orNull(m.Zone), m.Epoch, m.ClientID, m.ClientHost, m.Topics
	eachTopic(m.Assigned, func(id record.TopicID, partitions []int32) {
		if g.Topics == nil || g.Topics.Name(id) == "" {
			return // deleted
		}
		tp := kmsg.NewShareGroupDescribeResponseGroupMemberAssignmentTopicPartition()
		tp.TopicID, tp.Topic, tp.Partitions = id, g.Topics.Name(id), partitions
		rm.Assignment.TopicPartitions = append(rm.Assignment.TopicPartitions, tp)
	})
	return rm
}
