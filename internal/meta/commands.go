package meta

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/meta/metapb"
	"github.com/tube-mq/tube/internal/record"
)

// Commands are encoded by the functions of this file and applied by Machine.
// now is the proposer's wall clock.

func encode(now time.Time, c *metapb.Command) []byte {
	c.TimeMillis = now.UnixMilli()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
	if err != nil {
		panic("meta: command does not encode: " + err.Error())
	}
	return b
}

// CreateTopic makes a topic whose partitions are placed on the given nodes.
func CreateTopic(now time.Time, id record.TopicID, name string, placement [][]record.NodeID, overrides map[string]string) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_CreateTopic{CreateTopic: &metapb.CreateTopic{
		Id: id[:], Name: name, Partitions: nodesToPB(placement), Overrides: pairs(overrides),
	}}})
}

// DeleteTopic deletes a topic for good.
func DeleteTopic(now time.Time, id record.TopicID) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_DeleteTopic{DeleteTopic: &metapb.DeleteTopic{Id: id[:]}}})
}

// CreatePartitions adds partitions to a topic that has base of them.
func CreatePartitions(now time.Time, id record.TopicID, base int, placement [][]record.NodeID) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_CreatePartitions{CreatePartitions: &metapb.CreatePartitions{
		Id: id[:], Base: int32(base), Partitions: nodesToPB(placement),
	}}})
}

// AlterConfig changes settings of a topic, or with the zero id the cluster's
// defaults. replace drops those that are not in set.
func AlterConfig(now time.Time, id record.TopicID, replace bool, set map[string]string, remove []string) []byte {
	c := &metapb.AlterConfig{Replace: replace, Set: pairs(set), Remove: slices.Sorted(slices.Values(remove))}
	if !id.IsZero() {
		c.Id = id[:]
	}
	return encode(now, &metapb.Command{Kind: &metapb.Command_AlterConfig{AlterConfig: c}})
}

// AllocateProducerIDs reserves count producer ids; the result is the first.
func AllocateProducerIDs(now time.Time, node record.NodeID, count int64) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_AllocateProducerIds{AllocateProducerIds: &metapb.AllocateProducerIds{Node: int32(node), Count: count}}})
}

func pairs(m map[string]string) []*metapb.KeyValue {
	out := make([]*metapb.KeyValue, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, &metapb.KeyValue{Key: k, Value: m[k]})
	}
	return out
}

func unpair(kvs []*metapb.KeyValue) map[string]string {
	m := make(map[string]string, len(kvs))
	for _, kv := range kvs {
		m[kv.GetKey()] = kv.GetValue()
	}
	return m
}

func nodesToPB(placement [][]record.NodeID) []*metapb.Nodes {
	out := make([]*metapb.Nodes, len(placement))
	for i, nodes := range placement {
		out[i] = &metapb.Nodes{}
		for _, n := range nodes {
			out[i].Ids = append(out[i].Ids, int32(n))
		}
	}
	return out
}

func nodeToPB(n *Node) *metapb.Node {
	return &metapb.Node{
		Id: int32(n.ID), Incarnation: n.Incarnation, Roles: n.Roles, Zone: n.Zone, Kafka: n.Kafka, Http: n.HTTP,
		Peer: n.Peer, Version: n.Version, State: string(n.State), MetaReplica: uint64(n.MetaReplica),
		SinceMillis: toMillis(n.Since), Drain: n.Drain, Sick: n.Sick, Starts: n.Starts, Run: n.Run, Level: uint32(n.Level),
	}
}

func nodeFromPB(n *metapb.Node) *Node {
	return &Node{
		ID: record.NodeID(n.GetId()), Incarnation: n.GetIncarnation(), Roles: n.GetRoles(), Zone: n.GetZone(), Kafka: n.GetKafka(),
		HTTP: n.GetHttp(), Peer: n.GetPeer(), Version: n.GetVersion(), State: NodeState(n.GetState()), MetaReplica: record.ReplicaID(n.GetMetaReplica()),
		Since: fromMillis(n.GetSinceMillis()), Drain: n.GetDrain(), Sick: n.GetSick(), Starts: n.GetStarts(), Run: n.GetRun(), Level: Level(n.GetLevel()),
	}
}

// The zero time is 0 on disk: it comes from before there was one.
func toMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n)
}
