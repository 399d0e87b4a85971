package kafka

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// maxDescribedPartitions of one answer; the cursor leads to the rest.
const maxDescribedPartitions = 2000

// describeTopicPartitions lists partitions of the topics asked for, all if none,
// by name, a page at a time.
func (d *Door) describeTopicPartitions(_ context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.DescribeTopicPartitionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	im := d.image()
	up := nodesOf(allEndpoints(im))
	room := maxDescribedPartitions
	if l := int(req.ResponsePartitionLimit); l > 0 && l < room {
		room = l
	}
	for _, name := range describedNames(im, req) {
		first := 0
		if req.Cursor != nil && req.Cursor.Topic == name {
			first = int(max(req.Cursor.Partition, 0))
		}
		if room == 0 {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: int32(first)}
			return resp
		}
		t := im.Topic(name)
		rt := kmsg.NewDescribeTopicPartitionsResponseTopic()
		rt.Topic = &name
		if t == nil {
			rt.ErrorCode = kerr.UnknownTopicOrPartition.Code
			if meta.CheckTopicName(name) != nil {
				rt.ErrorCode = kerr.InvalidTopicException.Code
			}
			resp.Topics = append(resp.Topics, rt)
			continue
		}
		rt.TopicID, rt.AuthorizedOperations = t.ID, topicOperations
		first = min(first, len(t.Partitions))
		last := min(len(t.Partitions), first+room)
		for n := first; n < last; n++ {
			rt.Partitions = append(rt.Partitions, d.describedPartition(t, record.Partition(n), up))
		}
		room -= last - first
		resp.Topics = append(resp.Topics, rt)
		if last < len(t.Partitions) {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: int32(last)}
			return resp
		}
	}
	return resp
}

// describedNames are the names to answer, sorted, from the cursor on.
func describedNames(im *meta.Image, req *kmsg.DescribeTopicPartitionsRequest) []string {
	var names []string
	if len(req.Topics) == 0 {
		for name := range im.ByName {
			names = append(names, name)
		}
	}
	for _, t := range req.Topics {
		names = append(names, t.Topic)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if req.Cursor != nil {
		at, _ := slices.BinarySearch(names, req.Cursor.Topic)
		names = names[at:]
	}
	return names
}

func (d *Door) describedPartition(t *meta.Topic, n record.Partition, up map[int32]bool) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	at := d.place(t, n, up)
	p := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	p.Partition, p.ErrorCode, p.LeaderID, p.LeaderEpoch = int32(n), at.code, at.leader, at.epoch
	p.Replicas, p.ISR, p.OfflineReplicas = at.replicas, at.isr, at.offline
	// The protocol lets them be null, but Kafka's admin client fails on that.
	p.EligibleLeaderReplicas, p.LastKnownELR = []int32{}, []int32{}
	return p
}
