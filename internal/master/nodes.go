package master

import (
	"context"
	"fmt"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// NodeInfo is a node and what it carries.
type NodeInfo struct {
	*meta.Node
	Replicas  int // on it, moves under way included
	Preferred int // partitions that it should lead
	Drained   bool
}

// Nodes lists the cluster's nodes by id.
func (m *Master) Nodes() []NodeInfo {
	im := m.cfg.Image()
	replicas, preferred := replicasByNode(im), map[record.NodeID]int{}
	for _, t := range im.Topics {
		for i := range t.Partitions {
			preferred[t.Partitions[i].Wanted()[0].Node]++
		}
	}
	var out []NodeInfo
	for _, id := range sortedNodes(im) {
		n := im.Nodes[id]
		out = append(out, NodeInfo{Node: n, Replicas: replicas[id], Preferred: preferred[id], Drained: n.Drain && replicas[id] == 0})
	}
	return out
}

// Drain begins to move everything away from a node. What has come of it is in
// Nodes and Problems. Error: meta.ErrUnknownNode.
func (m *Master) Drain(ctx context.Context, node record.NodeID) error {
	_, err := m.propose(ctx, meta.DrainNode(m.cfg.Now(), node, true))
	return err
}

// Undrain lets a node take replicas again. What has moved away stays there.
func (m *Master) Undrain(ctx context.Context, node record.NodeID) error {
	_, err := m.propose(ctx, meta.DrainNode(m.cfg.Now(), node, false))
	return err
}

// RemoveNode makes a node unknown; its data folder can never join again. force:
// also if it has replicas, which are lost. Errors: meta.ErrUnknownNode,
// meta.ErrNodeNeeded.
func (m *Master) RemoveNode(ctx context.Context, node record.NodeID, force bool) error {
	im := m.cfg.Image()
	n := im.Nodes[node]
	if n == nil {
		return fmt.Errorf("%w: %d", meta.ErrUnknownNode, node)
	}
	// The machine does not refuse it: a node that is up may be on its way out.
	if n.State == meta.NodeUp && !force {
		return fmt.Errorf("%w: node %d is up; stop it or drain it first", meta.ErrNodeNeeded, node)
	}
	_, err := m.propose(ctx, meta.RemoveNode(m.cfg.Now(), node, force))
	return err
}

// CarryOut proposes what a plan says and returns the transfers of leaders, which
// are nobody's but the partitions' own. It stops at the first that cannot be
// proposed; the next plan says it again.
func (m *Master) CarryOut(ctx context.Context, plan []Action, throttle int64) ([]TransferLeader, error) {
	var transfers []TransferLeader
	var moves []meta.Move
	for _, a := range plan {
		switch a := a.(type) {
		case SetState:
			if _, err := m.propose(ctx, meta.SetNodeState(m.cfg.Now(), a.Node, a.State)); err != nil {
				return nil, err
			}
		case SetSick:
			if _, err := m.propose(ctx, meta.SetNodeSick(m.cfg.Now(), a.Node, a.Why)); err != nil {
				return nil, err
			}
		case RaiseLevel:
			if _, err := m.propose(ctx, meta.SetLevel(m.cfg.Now(), a.Level)); err != nil {
				return nil, err
			}
		case Reassign:
			moves = append(moves, a.Move)
		case TransferLeader:
			transfers = append(transfers, a)
		}
	}
	for _, err := range m.move(ctx, moves, throttle) {
		if err != nil {
			return nil, err
		}
	}
	return transfers, nil
}
