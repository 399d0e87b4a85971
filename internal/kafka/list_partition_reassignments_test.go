package kafka

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/record"
)

func TestWhatMovesIsListed(t *testing.T) {
	eachGroupVersion(t, 46, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		d.placed(nil, []record.NodeID{1}, []record.NodeID{1})
		list := func(topics ...kmsg.ListPartitionReassignmentsRequestTopic) []kmsg.ListPartitionReassignmentsResponseTopic {
			req := kmsg.NewPtrListPartitionReassignmentsRequest()
			req.Topics = topics
			return askAdmin[*kmsg.ListPartitionReassignmentsResponse](d, v, req).Topics
		}
		if got := list(); len(got) != 0 {
			t.Fatalf("%+v", got)
		}
		askAdmin[*kmsg.AlterPartitionAssignmentsResponse](d, 0, moveOf([]int32{1}, []int32{2}))
		for _, got := range [][]kmsg.ListPartitionReassignmentsResponseTopic{
			list(), list(kmsg.ListPartitionReassignmentsRequestTopic{Topic: "t", Partitions: []int32{0, 1, 5}}),
		} {
			if len(got) != 1 || got[0].Topic != "t" || len(got[0].Partitions) != 1 {
				t.Fatalf("%+v", got)
			}
			p := got[0].Partitions[0]
			if p.Partition != 1 || !slices.Equal(p.Replicas, []int32{2, 1}) || !slices.Equal(p.AddingReplicas, []int32{2}) || !slices.Equal(p.RemovingReplicas, []int32{1}) {
				t.Fatalf("%+v", p)
			}
		}
		if got := list(kmsg.ListPartitionReassignmentsRequestTopic{Topic: "t", Partitions: []int32{0}}); len(got) != 0 {
			t.Fatalf("%+v", got)
		}
	})
}
