package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/meta"
)

// describeProducers lists the idempotent producers that partitions remember.
func (d *Door) describeProducers(_ context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.DescribeProducersRequest)
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	im := d.image()
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions, d.producersOf(im, t.Topic, p))
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (d *Door) producersOf(im *meta.Image, topic string, n int32) kmsg.DescribeProducersResponseTopicPartition {
	rp := kmsg.NewDescribeProducersResponseTopicPartition()
	rp.Partition = n
	p, code := d.hosted(im, topic, n)
	if code != 0 {
		rp.ErrorCode, rp.ErrorMessage = code, &kerr.TypedErrorForCode(code).Description
		return rp
	}
	producers, err := p.Lookup().Producers()
	if err != nil {
		rp.ErrorCode, rp.ErrorMessage = errorCode(err), errorMessage(err)
		return rp
	}
	for _, s := range producers {
		a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		a.ProducerID, a.ProducerEpoch, a.LastSequence, a.LastTimestamp = int64(s.ID), int32(s.Epoch), s.LastSequence, s.LastTimestampMillis
		a.CoordinatorEpoch, a.CurrentTxnStartOffset = -1, int64(s.TxnStart)
		rp.ActiveProducers = append(rp.ActiveProducers, a)
	}
	return rp
}
