package kafka

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/record"
)

// listPartitionReassignments tells what moves, of the partitions asked for or of
// all. One that does not move, or that there is not, is left out.
func (d *Door) listPartitionReassignments(_ context.Context, c *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.ListPartitionReassignmentsRequest)
	items := 0
	asked := map[master.PartitionName]bool{}
	for i := range req.Topics {
		items += 1 + len(req.Topics[i].Partitions)
		for _, n := range req.Topics[i].Partitions {
			asked[partitionName(req.Topics[i].Topic, n)] = true
		}
	}
	if d.absurd(c, "ListPartitionReassignments", items) {
		return nil
	}
	resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	for _, m := range d.placement.ListReassignments("") {
		if req.Topics != nil && !asked[m.PartitionName] {
			continue
		}
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != m.Topic {
			rt := kmsg.NewListPartitionReassignmentsResponseTopic()
			rt.Topic = m.Topic
			resp.Topics = append(resp.Topics, rt)
		}
		rt := &resp.Topics[len(resp.Topics)-1]
		rp := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
		rp.Partition, rp.Replicas = int32(m.Partition), plainIDs(m.Replicas)
		rp.AddingReplicas, rp.RemovingReplicas = plainIDs(m.Adding), plainIDs(m.Removing)
		rt.Partitions = append(rt.Partitions, rp)
	}
	return resp
}

func plainIDs(ids []record.NodeID) []int32 {
	out := slices.Grow([]int32{}, len(ids))
	for _, id := range ids {
		out = append(out, int32(id))
	}
	return out
}
