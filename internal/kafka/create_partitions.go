package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// createPartitions adds partitions to topics, one after the other. Every topic
// asked for is in the answer; one that stands twice is left as it is.
func (d *Door) createPartitions(ctx context.Context, c *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.CreatePartitionsRequest)
	if d.absurd(c, "CreatePartitions", len(req.Topics)) {
		return nil
	}
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	ctx, cancel := adminContext(ctx, req.TimeoutMillis)
	defer cancel()
	_ = d.newest(ctx) // what cannot be decided now is told when it is tried
	names := tally[string]{}
	for i := range req.Topics {
		names[req.Topics[i].Topic]++
	}
	room := &allowance{maxPartitionsPerRequest}
	for i := range req.Topics {
		rt := &req.Topics[i]
		first, twice := names.first(rt.Topic)
		if !first {
			continue
		}
		var err error
		if twice {
			err = refuse(kerr.InvalidRequest, "the topic stands in the request more than once")
		} else {
			err = d.addPartitions(ctx, rt, req.ValidateOnly, room)
		}
		out := kmsg.NewCreatePartitionsResponseTopic()
		out.Topic = rt.Topic
		out.ErrorCode, out.ErrorMessage = d.adminError(err, "CreatePartitions", rt.Topic)
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (d *Door) addPartitions(ctx context.Context, rt *kmsg.CreatePartitionsRequestTopic, validateOnly bool, room *allowance) error {
	t := d.image().Topic(rt.Topic)
	if t == nil {
		return refuse(kerr.UnknownTopicOrPartition, "there is no such topic")
	}
	spec := master.PartitionsSpec{Topic: rt.Topic, Count: int(rt.Count), ValidateOnly: validateOnly}
	if rt.Assignment != nil {
		spec.Assignment = make([][]record.NodeID, len(rt.Assignment))
		for i, a := range rt.Assignment {
			spec.Assignment[i] = nodeIDs(a.Replicas)
		}
	}
	// Numbers that one topic cannot have are INVALID_PARTITIONS, below.
	if spec.Count <= meta.MaxPartitions {
		if err := room.take(spec.Count - len(t.Partitions)); err != nil {
			return err
		}
	}
	return d.topics.CreatePartitions(ctx, spec)
}
