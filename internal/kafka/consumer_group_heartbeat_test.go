package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// beatReq is the first heartbeat of a consumer that reads the topics.
func beatReq(name, member string, topics ...string) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.RebalanceTimeoutMillis = name, member, 60_000
	req.SubscribedTopicNames, req.Topics = topics, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	return req
}

// consumer brings a member of the consumer protocol into a group.
func (d *groupDoor) consumer(name, member string, topics ...string) *kmsg.ConsumerGroupHeartbeatResponse {
	d.t.Helper()
	r := askGroups[*kmsg.ConsumerGroupHeartbeatResponse](d, 1, beatReq(name, member, topics...))
	wantGroupCode(d.t, r.ErrorCode, nil)
	return r
}

func TestAConsumerJoinsStaysAndLeaves(t *testing.T) {
	eachGroupVersion(t, 68, func(t *testing.T, v int16) {
		d := newGroupDoor(t)
		id := "m"
		if v == 0 {
			id = ""
		}
		r := askGroups[*kmsg.ConsumerGroupHeartbeatResponse](d, v, beatReq("g", id, "t"))
		wantGroupCode(t, r.ErrorCode, nil)
		if r.MemberEpoch != 1 || r.MemberID == nil || *r.MemberID == "" || r.HeartbeatIntervalMillis != 500 { // who has just joined comes back soon
			t.Fatalf("joined: %+v", r)
		}
		if r.Assignment == nil || len(r.Assignment.Topics) != 1 || r.Assignment.Topics[0].TopicID != d.im.ByName["t"].ID || len(r.Assignment.Topics[0].Partitions) != 2 {
			t.Fatalf("assignment %+v", r.Assignment)
		}
		beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		beat.Group, beat.MemberID, beat.MemberEpoch = "g", *r.MemberID, 1
		again := askGroups[*kmsg.ConsumerGroupHeartbeatResponse](d, v, beat)
		wantGroupCode(t, again.ErrorCode, nil)
		if again.MemberEpoch != 1 || again.Assignment != nil || again.HeartbeatIntervalMillis != 500 { // it came a moment ago
			t.Fatalf("stays: %+v", again)
		}
		beat.MemberEpoch = -1
		left := askGroups[*kmsg.ConsumerGroupHeartbeatResponse](d, v, beat)
		wantGroupCode(t, left.ErrorCode, nil)
		if left.MemberEpoch != -1 {
			t.Fatalf("left: %+v", left)
		}
		beat.MemberEpoch = 1
		wantGroupCode(t, askGroups[*kmsg.ConsumerGroupHeartbeatResponse](d, v, beat).ErrorCode, kerr.UnknownMemberID)
	})
}

func TestAConsumersMistakesAreTold(t *testing.T) {
	d := newGroupDoor(t)
	d.consumer("g", "m", "t")
	str := func(s string) *string { return &s }
	for name, c := range map[string]struct {
		change func(*kmsg.ConsumerGroupHeartbeatRequest)
		want   *kerr.Error
	}{
		"no group":         {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = "" }, kerr.InvalidRequest},
		"no member":        {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch, r.MemberID = 1, "" }, kerr.InvalidRequest},
		"no patience":      {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 }, kerr.InvalidRequest},
		"no subscription":  {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = nil }, kerr.InvalidRequest},
		"owned not said":   {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics = nil }, kerr.InvalidRequest},
		"an odd epoch":     {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -3 }, kerr.InvalidRequest},
		"away, no name":    {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -2 }, kerr.InvalidRequest},
		"an empty rack":    {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RackID = str("") }, kerr.InvalidRequest},
		"an odd assignor":  {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = str("magic") }, kerr.UnsupportedAssignor},
		"a broken pattern": {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicRegex = str("a)(b") }, kerr.InvalidRegularExpression},
		"a future epoch":   {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = 9 }, kerr.FencedMemberEpoch},
		"a stranger":       {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch, r.MemberID = 1, "x" }, kerr.UnknownMemberID},
	} {
		t.Run(name, func(t *testing.T) {
			req := beatReq("g", "m", "t")
			c.change(req)
			r := askGroups[*kmsg.ConsumerGroupHeartbeatResponse](d, 1, req)
			wantGroupCode(t, r.ErrorCode, c.want)
			if r.ErrorMessage == nil || *r.ErrorMessage == "" {
				t.Error("no message")
			}
		})
	}
	d.groups.Shard(0).LoseLeadership()
	wantGroupCode(t, askGroups[*kmsg.ConsumerGroupHeartbeatResponse](d, 1, beatReq("g", "m", "t")).ErrorCode, kerr.NotCoordinator)
}
