package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A group without members forgets a topic.
func TestDeleteShareGroupOffsets(t *testing.T) {
	d := newShareDoor(t)
	del := func(topics ...string) *kmsg.DeleteShareGroupOffsetsResponse {
		req := kmsg.NewPtrDeleteShareGroupOffsetsRequest()
		req.GroupID = "g"
		for _, name := range topics {
			rt := kmsg.NewDeleteShareGroupOffsetsRequestTopic()
			rt.Topic = name
			req.Topics = append(req.Topics, rt)
		}
		return askDoor[*kmsg.DeleteShareGroupOffsetsResponse](t, d.Door, newClient(d.Door), 0, req)
	}
	d.beat("a", 0, nil, "t")
	wantGroupCode(t, del("t").ErrorCode, kerr.NonEmptyGroup)
	d.beat("a", -1, nil)
	r := del("t", "nosuch")
	wantGroupCode(t, r.Topics[0].ErrorCode, nil)
	wantGroupCode(t, r.Topics[1].ErrorCode, kerr.UnknownTopicOrPartition)
	if d.f.image().ShareQueue("g", d.topic.ID) != nil {
		t.Error("the queue group is there still")
	}
	wantGroupCode(t, del("t").ErrorCode, kerr.GroupIDNotFound)
}
