package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestOffsetDeleteLeavesWhatIsRead(t *testing.T) {
	d := newGroupDoor(t)
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = "g"
	for _, topic := range []string{"t", "u", "nowhere"} {
		req.Topics = append(req.Topics, kmsg.OffsetDeleteRequestTopic{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}})
	}
	wantGroupCode(t, askGroups[*kmsg.OffsetDeleteResponse](d, 0, req).ErrorCode, kerr.GroupIDNotFound)
	d.commit("g", "t", 0, 1, "")
	d.commit("g", "u", 0, 1, "")
	d.member("g")
	r := askGroups[*kmsg.OffsetDeleteResponse](d, 0, req)
	wantGroupCode(t, r.ErrorCode, nil)
	for i, want := range []*kerr.Error{kerr.GroupSubscribedToTopic, nil, kerr.UnknownTopicOrPartition} {
		wantGroupCode(t, r.Topics[i].Partitions[0].ErrorCode, want)
	}
	if o, _ := d.positionOf("g", "t", 0); o.Offset != 1 {
		t.Fatalf("lost the position of a topic that is read: %+v", o)
	}
	if o, _ := d.positionOf("g", "u", 0); o.Offset != -1 {
		t.Fatalf("left %+v", o)
	}
}
