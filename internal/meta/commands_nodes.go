package meta

import (
	"time"

	"github.com/tube-mq/tube/internal/meta/metapb"
	"github.com/tube-mq/tube/internal/record"
)

// Bootstrap names the cluster and its first masters. Their replica ids are
// below FirstReplica.
func Bootstrap(now time.Time, clusterID string, founders ...Founder) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_Bootstrap{Bootstrap: &metapb.Bootstrap{ClusterId: clusterID, Founders: foundersToPB(founders)}}})
}

// RegisterNode makes a node known, or changes what is known of it. State,
// Since, Drain and MetaReplica are the machine's.
func RegisterNode(now time.Time, n Node) []byte { return registerNode(now, n, false) }

// ReplaceNode registers a node whose data folder is new and empty: if its id is
// known and its node down, it takes that one's place.
func ReplaceNode(now time.Time, n Node) []byte { return registerNode(now, n, true) }

func registerNode(now time.Time, n Node, replace bool) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_RegisterNode{RegisterNode: &metapb.RegisterNode{Node: nodeToPB(&n), Replace: replace}}})
}

// SetNodeState notes what the masters think of a node.
func SetNodeState(now time.Time, id record.NodeID, s NodeState) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_SetNodeState{SetNodeState: &metapb.SetNodeState{Node: int32(id), State: string(s)}}})
}

// SetNodeSick notes why a node should not lead, at most MaxSick bytes; empty: it
// is well.
func SetNodeSick(now time.Time, id record.NodeID, why string) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_SetNodeSick{SetNodeSick: &metapb.SetNodeSick{Node: int32(id), Why: why}}})
}

// DrainNode starts or ends the moving of everything away from a node.
func DrainNode(now time.Time, id record.NodeID, on bool) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_DrainNode{DrainNode: &metapb.DrainNode{Node: int32(id), On: on}}})
}

// RemoveNode makes a node unknown. force: also if replicas are on it, which are
// lost then.
func RemoveNode(now time.Time, id record.NodeID, force bool) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_RemoveNode{RemoveNode: &metapb.RemoveNode{Node: int32(id), Force: force}}})
}

// Move says where one partition shall lie.
type Move struct {
	record.TopicPartition
	Nodes []record.NodeID // preferred leader first
	Cause string
}

// Reassign moves partitions. throttle is in bytes per second, 0 for none.
func Reassign(now time.Time, moves []Move, throttle int64) []byte {
	c := &metapb.Reassign{Throttle: throttle}
	for _, m := range moves {
		c.Moves = append(c.Moves, &metapb.Move{Topic: m.Topic[:], Partition: int32(m.Partition), Nodes: nodeIDsToPB(m.Nodes), Cause: m.Cause})
	}
	return encode(now, &metapb.Command{Kind: &metapb.Command_Reassign{Reassign: c}})
}

// CancelReassign drives partitions back to where they were.
func CancelReassign(now time.Time, partitions []record.TopicPartition) []byte {
	c := &metapb.CancelReassign{}
	for _, p := range partitions {
		c.Partitions = append(c.Partitions, &metapb.PartitionRef{Topic: p.Topic[:], Partition: int32(p.Partition)})
	}
	return encode(now, &metapb.Command{Kind: &metapb.Command_CancelReassign{CancelReassign: c}})
}

// Members are the members of one partition's group.
type Members struct {
	record.TopicPartition
	Replicas []record.ReplicaID // in any order
}

// PlacementDone says that partitions' groups have exactly these members, all of
// them voters. Their leaders send it.
func PlacementDone(now time.Time, partitions []Members) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_PlacementDone{PlacementDone: &metapb.PlacementDone{Partitions: membersToPB(partitions)}}})
}

func membersToPB(partitions []Members) []*metapb.Members {
	out := make([]*metapb.Members, len(partitions))
	for i, p := range partitions {
		out[i] = &metapb.Members{Topic: p.Topic[:], Partition: int32(p.Partition), Replicas: replicaIDsToPB(p.Replicas)}
	}
	return out
}

// UnsafeRecover gives up all replicas of a partition but the survivor's, which
// becomes the group's only member; it then grows to nodes. With survivor −1 the
// partition starts empty, in a group of its own, on nodes.
func UnsafeRecover(now time.Time, p record.TopicPartition, survivor record.NodeID, nodes []record.NodeID) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_UnsafeRecover{UnsafeRecover: &metapb.UnsafeRecover{
		Topic: p.Topic[:], Partition: int32(p.Partition), Survivor: int32(survivor), Nodes: nodeIDsToPB(nodes),
	}}})
}

func nodeIDsToPB(nodes []record.NodeID) []int32 {
	out := make([]int32, len(nodes))
	for i, n := range nodes {
		out[i] = int32(n)
	}
	return out
}

func nodeIDsFromPB(ids []int32) []record.NodeID {
	out := make([]record.NodeID, len(ids))
	for i, id := range ids {
		out[i] = record.NodeID(id)
	}
	return out
}

// RenewReplicas replaces replicas on a node whose data is damaged there, one for
// each partition, by new ones that are copied from the others.
func RenewReplicas(now time.Time, node record.NodeID, damaged []Members) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_RenewReplicas{RenewReplicas: &metapb.RenewReplicas{Node: int32(node), Partitions: membersToPB(damaged)}}})
}
