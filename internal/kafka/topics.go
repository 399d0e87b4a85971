package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// hosted finds a partition of a topic by name; code is 0 if it is here.
func (d *Door) hosted(im *meta.Image, name string, p int32) (_ Partition, code int16) {
	t := im.Topic(name)
	if code := checkPartition(t, kerr.UnknownTopicOrPartition.Code, p); code != 0 {
		return nil, code
	}
	partition, err := d.partitions.Partition(t.ID, record.Partition(p))
	return partition, errorCode(err)
}

// checkEpoch compares the leader epoch that a client believes in, −1 for none.
func checkEpoch(client int32, b broker.Bounds) error {
	switch e := record.Epoch(client); {
	case e < 0 || e == b.LeaderEpoch:
		return nil
	case e < b.LeaderEpoch:
		return broker.ErrFencedEpoch
	default:
		return broker.ErrUnknownEpoch
	}
}

// Operations on a topic and on the cluster, as bits of authorized_operations.
const (
	topicOperations   = 1<<3 /* read */ | 1<<4 /* write */ | 1<<6 /* delete */ | 1<<7 /* alter */ | 1<<8 /* describe */ | 1<<10 /* describe configs */ | 1<<11 /* alter configs */
	clusterOperations = 1<<5 /* create */ | 1<<7 /* alter */ | 1<<8 /* describe */ | 1<<10 /* describe configs */ | 1<<11 /* alter configs */ | 1<<12          /* idempotent write */
)

// placed is where a partition lives, as clients are told.
type placed struct {
	code          int16
	leader        int32
	epoch         int32
	replicas, isr []int32
	offline       []int32
}

// place describes a partition. In sync is a replica that is not lost, on a node
// that is up: there is no list of replicas that acknowledge, as a majority does.
// A leader is named only if it is in the list of
// brokers of the same answer (up): clients fail on one that is not.
func (d *Door) place(t *meta.Topic, p record.Partition, up map[int32]bool) placed {
	leader, epoch := d.partitions.Leader(t.ID, p)
	if leader < 0 {
		leader, epoch = t.Partitions[p].Leader, t.Partitions[p].Epoch
	}
	out := placed{leader: int32(leader), epoch: int32(epoch)}
	for _, r := range t.Partitions[p].Replicas {
		n := int32(r.Node)
		out.replicas = append(out.replicas, n)
		if up[n] && !r.Lost {
			out.isr = append(out.isr, n)
		} else {
			out.offline = append(out.offline, n)
		}
	}
	if !up[out.leader] {
		out.leader, out.code = -1, kerr.LeaderNotAvailable.Code
	}
	return out
}

func nodesOf(es []endpoint) map[int32]bool {
	up := make(map[int32]bool, len(es))
	for _, e := range es {
		up[e.node] = true
	}
	return up
}
