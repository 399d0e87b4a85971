package node

import (
	"context"
	"errors"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/pulse"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// repairEvery is how often damaged replicas are reported.
const repairEvery = time.Second

// repair has replicas of this node whose data is damaged replaced by new ones,
// until ctx ends. One that has no others to copy from stays as it is.
func (n *Node) repair(ctx context.Context) {
	pulse.Every(ctx, repairEvery, func() {
		n.checkMasterGroups()
		n.lookForRecovery()
		damaged := n.damagedWithOthers()
		if len(damaged) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if _, err := (metaProposer{n}).Propose(ctx, meta.RenewReplicas(time.Now(), n.id().Node, damaged)); err != nil {
			n.logger.Debug("damaged replicas not reported yet", "err", err)
		}
	})
}

// checkMasterGroups ends the node if its replicas of the masters' groups have forgotten
// what they had confirmed: then the folder is not what it was, and nothing in it counts.
func (n *Node) checkMasterGroups() {
	for _, id := range n.masterGroups() {
		if g := n.host.Load().Group(id); g != nil && errors.Is(g.Err(), replica.ErrForgotten) {
			n.end("the data folder lacks what this node had confirmed: start the node with an empty one, and what it had is copied to it from the others", g.Err())
		}
	}
}

// damagedWithOthers are the damaged replicas here that can be copied from others.
func (n *Node) damagedWithOthers() []meta.Members {
	im := n.meta.Image()
	var out []meta.Members
	for _, d := range n.broker.DamagedReplicas() {
		p := im.Partition(d.TopicPartition)
		if p == nil {
			continue
		}
		if own, ok := p.Hosted(n.id().Node); ok && own.ID == d.Replica && othersLeft(p, own) {
			out = append(out, meta.Members{TopicPartition: d.TopicPartition, Replicas: []record.ReplicaID{own.ID}})
		}
	}
	return out
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
