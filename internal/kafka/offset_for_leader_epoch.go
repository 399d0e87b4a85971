package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// offsetForLeaderEpoch tells where an epoch ends (KIP-320), by which a client
// finds out whether what it read was lost. −1 and −1: nothing is known of it.
func (d *Door) offsetForLeaderEpoch(_ context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.OffsetForLeaderEpochRequest)
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	im := d.image()
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for j := range t.Partitions {
			rt.Partitions = append(rt.Partitions, d.endOfEpoch(im, t.Topic, &t.Partitions[j]))
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (d *Door) endOfEpoch(im *meta.Image, topic string, ask *kmsg.OffsetForLeaderEpochRequestTopicPartition) kmsg.OffsetForLeaderEpochResponseTopicPartition {
	rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
	rp.Partition, rp.LeaderEpoch, rp.EndOffset = ask.Partition, -1, -1
	p, code := d.hosted(im, topic, ask.Partition)
	if code != 0 {
		rp.ErrorCode = code
		return rp
	}
	var b broker.Bounds
	var epoch record.Epoch
	var end record.Offset
	b, err := p.Bounds()
	if err == nil {
		err = checkEpoch(ask.CurrentLeaderEpoch, b)
	}
	if err == nil {
		epoch, end, err = p.Lookup().EndOfEpoch(record.Epoch(ask.LeaderEpoch))
	}
	if err != nil {
		rp.ErrorCode = errorCode(err)
		return rp
	}
	rp.LeaderEpoch, rp.EndOffset = int32(epoch), int64(end)
	return rp
}
