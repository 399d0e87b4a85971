package kafka

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDescribeTopicPartitionsGoesPageByPage(t *testing.T) {
	cl := newFakeCluster()
	d := newTestDoor(t, cl, Config{})
	cl.addTopic("b", 3)
	cl.addTopic("a", 2)
	for _, limit := range []int32{1, 2, 3, 4, 5, 0} {
		var got string
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit = limit
		for {
			r := askDoor[*kmsg.DescribeTopicPartitionsResponse](t, d, newClient(d), 0, req)
			n := int32(0)
			for _, rt := range r.Topics {
				for _, p := range rt.Partitions {
					if p.EligibleLeaderReplicas == nil || p.LastKnownELR == nil {
						t.Fatal("a list of replicas is null: Kafka's admin client fails on that")
					}
					got += fmt.Sprintf("%s%d/%d ", *rt.Topic, p.Partition, p.LeaderID)
					n++
				}
			}
			if limit > 0 && n > limit {
				t.Fatalf("%d partitions, the limit is %d", n, limit)
			}
			if r.NextCursor == nil {
				break
			}
			req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: r.NextCursor.Topic, Partition: r.NextCursor.Partition}
		}
		if got != "a0/1 a1/1 b0/1 b1/1 b2/1 " {
			t.Fatalf("limit %d: %s", limit, got)
		}
	}
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "nowhere"}, {Topic: "b"}, {Topic: "b"}}
	r := askDoor[*kmsg.DescribeTopicPartitionsResponse](t, d, newClient(d), 0, req)
	if len(r.Topics) != 2 || len(r.Topics[0].Partitions) != 3 || r.Topics[1].ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Fatalf("%+v", r)
	}
}
