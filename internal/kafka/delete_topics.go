package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// doomed is one topic that a request wants deleted: by name or, v6+, by id.
type doomed struct {
	name string
	id   record.TopicID
	// topic is nil if it is not there, err says why not.
	topic *meta.Topic
	err   error
}

// deleteTopics deletes topics for good, one after the other. One that is named
// twice, be it by name and by id, is not deleted.
func (d *Door) deleteTopics(ctx context.Context, c *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.DeleteTopicsRequest)
	if d.absurd(c, "DeleteTopics", len(req.Topics)+len(req.TopicNames)) {
		return nil
	}
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	ctx, cancel := adminContext(ctx, req.TimeoutMillis)
	defer cancel()
	_ = d.newest(ctx) // what cannot be decided now is told when it is tried
	im := d.image()
	list := doomedTopics(im, req)
	type key struct {
		name string
		id   record.TopicID
	}
	keyOf := func(x *doomed) key {
		if x.topic != nil {
			return key{id: x.topic.ID}
		}
		return key{x.name, x.id}
	}
	keys := tally[key]{}
	for i := range list {
		keys[keyOf(&list[i])]++
	}
	for i := range list {
		x := &list[i]
		first, twice := keys.first(keyOf(x))
		if !first {
			continue
		}
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.TopicID = x.id
		if x.name != "" {
			out.Topic = &x.name
		}
		err := x.err
		switch {
		case twice:
			err = refuse(kerr.InvalidRequest, "the topic stands in the request more than once")
		case x.topic != nil:
			out.Topic, out.TopicID = &x.topic.Name, x.topic.ID
			err = d.topics.DeleteTopic(ctx, x.topic.ID)
		}
		out.ErrorCode, out.ErrorMessage = d.adminError(err, "DeleteTopics", x.name)
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// doomedTopics reads either form of the request.
func doomedTopics(im *meta.Image, req *kmsg.DeleteTopicsRequest) []doomed {
	if req.Version < 6 {
		out := make([]doomed, len(req.TopicNames))
		for i, name := range req.TopicNames {
			out[i] = findDoomed(im, &name, record.TopicID{})
		}
		return out
	}
	out := make([]doomed, len(req.Topics))
	for i, t := range req.Topics {
		out[i] = findDoomed(im, t.Topic, t.TopicID)
	}
	return out
}

func findDoomed(im *meta.Image, name *string, id record.TopicID) doomed {
	var none record.TopicID
	x := doomed{name: orEmpty(name), id: id}
	switch {
	case name != nil && id != none:
		x.err = refuse(kerr.InvalidRequest, "name the topic by its name or by its id, not by both")
	case name != nil:
		if x.topic = im.Topic(*name); x.topic == nil {
			x.err = refuse(kerr.UnknownTopicOrPartition, "there is no such topic")
		}
	case id != none:
		if x.topic = im.Topics[id]; x.topic == nil {
			x.err = refuse(kerr.UnknownTopicID, "there is no topic with this id")
		}
	default:
		x.err = refuse(kerr.InvalidRequest, "a topic has neither a name nor an id")
	}
	return x
}
