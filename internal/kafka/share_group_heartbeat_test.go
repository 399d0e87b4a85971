package kafka

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (d *shareDoor) beat(member string, epoch int32, code *kerr.Error, topics ...string) *kmsg.ShareGroupHeartbeatResponse {
	d.t.Helper()
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.GroupID, req.MemberID, req.MemberEpoch, req.SubscribedTopicNames = "g", member, epoch, topics
	r := askDoor[*kmsg.ShareGroupHeartbeatResponse](d.t, d.Door, newClient(d.Door), 1, req)
	wantGroupCode(d.t, r.ErrorCode, code)
	return r
}

func TestShareGroupHeartbeat(t *testing.T) {
	d := newShareDoor(t)
	d.beat("a", 0, kerr.InvalidRequest)
	d.beat("a", 3, kerr.CoordinatorLoadInProgress) // of an earlier coordinator: it is to say all there is
	a := d.beat("a", 0, nil, "t", "nosuch")
	if a.MemberEpoch != 1 || *a.MemberID != "a" || a.HeartbeatIntervalMillis != 5000 || a.Assignment == nil {
		t.Fatalf("%+v", a)
	}
	if tp := a.Assignment.TopicPartitions; len(tp) != 1 || tp[0].TopicID != d.topic.ID || !slices.Equal(tp[0].Partitions, []int32{0, 1}) {
		t.Fatalf("assigned %+v", tp)
	}
	if again := d.beat("a", 1, nil); again.Assignment != nil || again.MemberEpoch != 1 {
		t.Fatalf("nothing changed, and yet %+v", again)
	}
	b := d.beat("b", 0, nil, "t")
	next := d.beat("a", 1, nil)
	if b.MemberEpoch != 2 || next.MemberEpoch != 2 || len(b.Assignment.TopicPartitions[0].Partitions) != 1 || len(next.Assignment.TopicPartitions[0].Partitions) != 1 {
		t.Fatalf("b %+v, a %+v", b, next)
	}
	d.beat("a", 9, kerr.FencedMemberEpoch)
	d.beat("b", -1, nil)
	d.beat("b", -1, kerr.UnknownMemberID)
	if alone := d.beat("a", 2, nil); len(alone.Assignment.TopicPartitions[0].Partitions) != 2 {
		t.Fatalf("%+v", alone)
	}
	d.mustAlter("g", "share.heartbeat.interval.ms", "250")
	if r := d.beat("a", 3, nil); r.HeartbeatIntervalMillis != 250 {
		t.Fatalf("interval %d", r.HeartbeatIntervalMillis)
	}
}
