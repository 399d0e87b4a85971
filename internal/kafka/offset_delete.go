package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/record"
)

// offsetDelete forgets positions of topics that no member of the group reads.
func (d *Door) offsetDelete(ctx context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.OffsetDeleteRequest)
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	im := d.image()
	del := &group.DeleteOffsetsRequest{Group: req.Group}
	for _, t := range req.Topics {
		topic := im.Topic(t.Topic)
		if topic == nil {
			continue
		}
		dt := group.DeleteTopic{Topic: topic.ID, Name: topic.Name}
		for _, p := range t.Partitions {
			dt.Partitions = append(dt.Partitions, record.Partition(p.Partition))
		}
		del.Topics = append(del.Topics, dt)
	}
	done := d.groups.Offsets.Delete(ctx, del)
	if resp.ErrorCode = groupCode(done.Err); done.Err != nil {
		return resp
	}
	for _, t := range req.Topics {
		topic := im.Topic(t.Topic)
		rt := kmsg.NewOffsetDeleteResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetDeleteResponseTopicPartition()
			rp.Partition = p.Partition
			rp.ErrorCode = checkPartition(topic, kerr.UnknownTopicOrPartition.Code, p.Partition)
			if rp.ErrorCode == 0 && done.Subscribed[topic.ID] {
				rp.ErrorCode = kerr.GroupSubscribedToTopic.Code
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}
