package node

import (
	"errors"
	"fmt"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/kafka"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

func isUnknown(err, sentinel error) bool { return errors.Is(err, sentinel) }

// partitions is the Kafka door's view of the broker.
type partitions struct {
	broker  *broker.Broker
	image   func() *meta.Image
	leaders *leaders
	node    record.NodeID
}

// Partition implements kafka.Partitions.
func (v partitions) Partition(topic record.TopicID, n record.Partition) (kafka.Partition, error) {
	p, ok := v.broker.Partition(record.TopicPartition{Topic: topic, Partition: n})
	if ok {
		return hosted{p}, nil
	}
	if t := v.image().Topics[topic]; t != nil && n >= 0 && int(n) < len(t.Partitions) {
		return nil, broker.ErrNotLeader
	}
	return nil, broker.ErrUnknownPartition
}

// Leader implements kafka.Partitions.
func (v partitions) Leader(topic record.TopicID, n record.Partition) (record.NodeID, record.Epoch) {
	if p, ok := v.broker.Partition(record.TopicPartition{Topic: topic, Partition: n}); ok {
		if b, err := p.Bounds(); err == nil {
			return v.node, b.LeaderEpoch
		}
	}
	place := v.image().Partition(record.TopicPartition{Topic: topic, Partition: n})
	if place == nil {
		return -1, -1
	}
	node, term := v.leaders.of(place.Group)
	if node < 0 || node == v.node {
		return -1, -1 // this node leads no longer, as it has just said
	}
	return node, record.Epoch(term)
}

func (n *Node) partitions() partitions {
	return partitions{n.broker, n.meta.Image, n.leaders, n.id().Node}
}

// hosted makes a broker's partition what the door asks for.
type hosted struct{ *broker.Partition }

// Lookup implements kafka.Partition.
func (h hosted) Lookup() kafka.PartitionLookup { return h.Partition }

// Queue implements kafka.Partition.
func (h hosted) Queue() kafka.PartitionQueue { return h.Partition }

// cluster is the HTTP door's view.
type cluster struct{ n *Node }

// Image implements rpc.Cluster, with the leaders that this node knows of.
func (c cluster) Image() *meta.Image {
	if c.n.host.Load() == nil {
		return c.n.meta.Image() // nothing runs yet
	}
	im := *c.n.meta.Image()
	topics := make(map[record.TopicID]*meta.Topic, len(im.Topics))
	view := c.n.partitions()
	for id, t := range im.Topics {
		led := *t
		led.Partitions = make([]meta.Placement, len(t.Partitions))
		copy(led.Partitions, t.Partitions)
		for i := range led.Partitions {
			led.Partitions[i].Leader, led.Partitions[i].Epoch = view.Leader(id, record.Partition(i))
		}
		topics[id] = &led
	}
	im.Topics = topics
	return &im
}

// Problems implements rpc.Cluster.
func (c cluster) Problems() []string {
	var out []string
	if c.n.host.Load() == nil {
		return []string{"the node is starting"}
	}
	if n := len(c.n.broker.DamagedReplicas()); n > 0 {
		out = append(out, fmt.Sprintf("%d partitions are out of service because their data is damaged; the log names file and offset", n))
	}
	out = append(out, c.n.lapses()...)
	out = append(out, c.n.riskProblems()...)
	if err := c.n.broker.DiskFull(); err != nil {
		out = append(out, fmt.Sprintf("produce is refused: %v", err))
	}
	if why := c.n.health.why(c.n.id().Node); why != "" {
		out = append(out, fmt.Sprintf("this node is sick and leads only what no other node can: %s; look at the disk", why))
	}
	if c.n.outdated.Load() {
		out = append(out, outdatedText)
	}
	if im := c.n.meta.Image(); im.Controller == -1 {
		out = append(out, "no master is active")
	}
	return out
}
