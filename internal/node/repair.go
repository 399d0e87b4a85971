package node

import (
	"context"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// repairEvery is how often damaged replicas are reported.
const repairEvery = time.Second

// repair has replicas of this node whose data is damaged replaced by new ones,
// until ctx ends. One that has no others to copy from stays as it is.
func (n *Node) repair(ctx context.Context) {
	tick := time.NewTicker(repairEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		im := n.meta.Image()
		var damaged []meta.Members
		for _, d := range n.broker.DamagedReplicas() {
			p := im.Partition(d.TopicPartition)
			if p == nil {
				continue
			}
			own, ok := p.Hosted(n.id().Node)
			if !ok || own.ID != d.Replica || !othersLeft(p, own) {
				continue
			}
			damaged = append(damaged, meta.Members{TopicPartition: d.TopicPartition, Replicas: []record.ReplicaID{own.ID}})
		}
		if len(damaged) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		if _, err := (metaProposer{n}).Propose(ctx, meta.RenewReplicas(time.Now(), n.id().Node, damaged)); err != nil {
			n.logger.Debug("damaged replicas not reported yet", "err", err)
		}
		cancel()
	}
}

// othersLeft reports whether there is another replica to copy from.
func othersLeft(p *meta.Placement, own meta.Replica) bool {
	for _, r := range p.Replicas {
		if r.ID != own.ID && !r.Lost {
			return true
		}
	}
	return false
}
