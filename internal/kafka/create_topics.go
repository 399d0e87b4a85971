package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// createTopics makes topics, one after the other; one that fails does not keep
// the others from being made. A name that stands twice is not made at all.
func (d *Door) createTopics(ctx context.Context, c *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.CreateTopicsRequest)
	if d.absurd(c, "CreateTopics", len(req.Topics)) {
		return nil
	}
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	ctx, cancel := adminContext(ctx, req.TimeoutMillis)
	defer cancel()
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
		out := kmsg.NewCreateTopicsResponseTopic()
		out.Topic = rt.Topic
		var t *meta.Topic
		var err error
		if twice {
			err = refuse(kerr.InvalidRequest, "the topic stands in the request more than once")
		} else {
			t, err = d.createTopic(ctx, rt, req.ValidateOnly, room)
		}
		if out.ErrorCode, out.ErrorMessage = d.adminError(err, "CreateTopics", rt.Topic); err == nil {
			d.fillCreated(&out, t, req.Version, req.ValidateOnly)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (d *Door) createTopic(ctx context.Context, rt *kmsg.CreateTopicsRequestTopic, validateOnly bool, room *allowance) (*meta.Topic, error) {
	spec := master.TopicSpec{
		Name: rt.Topic, Partitions: int(rt.NumPartitions), ReplicationFactor: int(rt.ReplicationFactor),
		ValidateOnly: validateOnly,
	}
	var err error
	if spec.Settings, err = createdSettings(rt.Configs); err != nil {
		return nil, err
	}
	if len(rt.ReplicaAssignment) > 0 {
		if rt.NumPartitions != -1 || rt.ReplicationFactor != -1 {
			return nil, refuse(kerr.InvalidRequest, "give replicas by hand, or a number of partitions and a replication factor, not both")
		}
		if spec.Assignment, err = createdAssignment(rt.ReplicaAssignment); err != nil {
			return nil, err
		}
	}
	// A number that is too large for one topic is INVALID_PARTITIONS, below.
	asked := max(len(spec.Assignment), spec.Partitions, 1)
	if asked <= meta.MaxPartitions {
		if err := room.take(asked); err != nil {
			return nil, err
		}
	}
	t, err := d.topics.CreateTopic(ctx, spec)
	if err == nil {
		room.left -= max(0, len(t.Partitions)-asked) // the default may be more than one
	}
	return t, err
}

// createdSettings are a new topic's settings.
func createdSettings(configs []kmsg.CreateTopicsRequestTopicConfig) (map[string]string, error) {
	out, given := map[string]string{}, map[string]bool{}
	for _, c := range configs {
		if err := giveOnce(given, c.Name); err != nil {
			return nil, err
		}
		if c.Value == nil {
			return nil, refuse(kerr.InvalidConfig, "a setting has no value; leave it out for its default")
		}
		out[c.Name] = *c.Value
	}
	return out, nil
}

// createdAssignment puts replicas given by hand into the order of their
// partitions, which must be 0, 1, 2, …
func createdAssignment(given []kmsg.CreateTopicsRequestTopicReplicaAssignment) ([][]record.NodeID, error) {
	out := make([][]record.NodeID, len(given))
	for _, a := range given {
		if a.Partition < 0 || int(a.Partition) >= len(given) {
			return nil, refuse(kerr.InvalidReplicaAssignment, "replicas are given for partition %d of %d; partitions are numbered from 0 without a gap", a.Partition, len(given))
		}
		if out[a.Partition] != nil {
			return nil, refuse(kerr.InvalidReplicaAssignment, "replicas are given twice for partition %d", a.Partition)
		}
		out[a.Partition] = nodeIDs(a.Replicas)
	}
	return out, nil
}

// nodeIDs is never nil, as nil stands for "place them for me".
func nodeIDs(ids []int32) []record.NodeID {
	out := make([]record.NodeID, len(ids))
	for i, id := range ids {
		out[i] = record.NodeID(id)
	}
	return out
}

// fillCreated tells what was made or, with validateOnly, would be: such a topic
// has no id.
func (d *Door) fillCreated(out *kmsg.CreateTopicsResponseTopic, t *meta.Topic, version int16, validateOnly bool) {
	if !validateOnly {
		out.TopicID = t.ID
	}
	if version < 5 {
		return
	}
	out.NumPartitions, out.ReplicationFactor = int32(len(t.Partitions)), int16(len(t.Partitions[0].Replicas))
	for _, e := range topicEntries(d.image(), t, nil) {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value, c.ReadOnly, c.Source = e.name, &e.value, e.readOnly, int8(e.source)
		out.Configs = append(out.Configs, c)
	}
}
