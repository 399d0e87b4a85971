package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestConsumerGroupDescribeShowsMembers(t *testing.T) {
	eachGroupVersion(t, 69, func(t *testing.T, v int16) {
		d := newGroupDoor(t)
		d.consumer("g", "m", "t")
		d.member("old")
		req := kmsg.NewPtrConsumerGroupDescribeRequest()
		req.Groups, req.IncludeAuthorizedOperations = []string{"g", "old", "nowhere"}, true
		r := askGroups[*kmsg.ConsumerGroupDescribeResponse](d, v, req)
		g := r.Groups[0]
		if g.ErrorCode != 0 || g.State != "Stable" || g.Epoch != 1 || g.AssignmentEpoch != 1 || g.AssignorName != "uniform" || len(g.Members) != 1 || g.AuthorizedOperations != groupOperations {
			t.Fatalf("group %+v", g)
		}
		m := g.Members[0]
		if m.MemberID != "m" || m.MemberEpoch != 1 || len(m.SubscribedTopics) != 1 || m.SubscribedTopics[0] != "t" || v >= 1 && m.MemberType != consumerMember {
			t.Fatalf("member %+v", m)
		}
		for _, a := range []kmsg.Assignment{m.Assignment, m.TargetAssignment} {
			if len(a.TopicPartitions) != 1 || a.TopicPartitions[0].Topic != "t" || len(a.TopicPartitions[0].Partitions) != 2 {
				t.Fatalf("assignment %+v", a)
			}
		}
		for _, g := range r.Groups[1:] {
			wantGroupCode(t, g.ErrorCode, kerr.GroupIDNotFound)
			if g.ErrorMessage == nil {
				t.Error("no message")
			}
		}
		d.groups.Shard(0).LoseLeadership()
		wantGroupCode(t, askGroups[*kmsg.ConsumerGroupDescribeResponse](d, v, req).Groups[0].ErrorCode, kerr.NotCoordinator)
	})
}
