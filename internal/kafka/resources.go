package kafka

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/meta"
)

// resource is what has settings: a topic, this node, or with the name "" the
// brokers of the cluster together.
type resource struct {
	kind kmsg.ConfigResourceType
	name string
}

// findResource checks that a resource is there; t is nil for brokers.
func (d *Door) findResource(im *meta.Image, r resource) (t *meta.Topic, err error) {
	switch r.kind {
	case kmsg.ConfigResourceTypeTopic:
		if err := meta.CheckTopicName(r.name); err != nil {
			return nil, err
		}
		if t = im.Topic(r.name); t == nil {
			return nil, refuse(kerr.UnknownTopicOrPartition, "there is no such topic")
		}
		return t, nil
	case kmsg.ConfigResourceTypeBroker:
		if r.name == "" {
			return nil, nil
		}
		if id, err := strconv.ParseInt(r.name, 10, 32); err != nil || int32(id) != int32(d.cfg.Node) {
			return nil, refuse(kerr.InvalidRequest, "this is node %d; ask each node for its own settings", d.cfg.Node)
		}
		return nil, nil
	case kmsg.ConfigResourceTypeGroupConfig:
		if err := meta.CheckShareName(r.name); err != nil {
			return nil, refuse(kerr.InvalidRequest, "%v", err)
		}
		return nil, nil
	}
	return nil, refuse(kerr.InvalidRequest, "only topics (2), brokers (4) and groups (32) have settings, this is resource type %d", int8(r.kind))
}
