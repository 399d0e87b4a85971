package meta

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/meta/metapb"
	"github.com/tube-mq/tube/internal/record"
)

const (
	// FirstPartitionGroup is the first replica group id of a partition; lower
	// ones are the masters' own.
	FirstPartitionGroup = record.Group(1000)
	// MaxPartitions of one topic.
	MaxPartitions = 10_000
	// MaxEvents that are kept.
	MaxEvents = 10_000
	// maxProducerIDs that one command may reserve.
	maxProducerIDs = 1_000_000
)

// Machine is the replicated state. Not safe for concurrent use, but what Image
// returns is.
type Machine struct {
	image *Image
	// Counters of ids that are never given twice.
	nextGroup      record.Group
	nextReplica    record.ReplicaID
	nextProducerID int64
	// metrics maps names as metrics see them to topics: see metricName.
	metrics map[string]string
	// events are the last ones. Invariant: seqs follow one another.
	events []Event
}

// Event is one thing that happened to the cluster.
type Event struct {
	Seq     uint64
	Time    time.Time
	Kind    string // for example "topic-created"
	Subject string // for example "topic orders"
	Text    string
}

// Result is what a command did.
type Result struct {
	Topic           *Topic // created or changed
	FirstProducerID int64  // of AllocateProducerIDs
	Err             error  // one of the package's sentinels; nothing was changed
}

// New returns the metadata of a cluster that has no name yet.
func New() *Machine {
	return &Machine{
		image:     &Image{Topics: map[record.TopicID]*Topic{}, ByName: map[string]*Topic{}, Nodes: map[record.NodeID]*Node{}, Defaults: map[string]string{}, Controller: -1},
		nextGroup: FirstPartitionGroup, nextReplica: 1, metrics: map[string]string{},
	}
}

// Image returns the metadata as of the last command.
func (m *Machine) Image() *Image { return m.image }

// Apply applies one committed command. ErrUnknownCommand means that this
// version cannot follow: its owner must stop the replica.
func (m *Machine) Apply(index record.Index, data []byte) Result {
	var c metapb.Command
	if err := proto.Unmarshal(data, &c); err != nil {
		return Result{Err: fmt.Errorf("entry %d: %w: %v", index, ErrUnknownCommand, err)}
	}
	im := *m.image // the maps are cloned by whoever changes them
	im.Index = index
	now := time.UnixMilli(c.GetTimeMillis())
	var r Result
	switch k := c.GetKind().(type) {
	case *metapb.Command_Bootstrap:
		r = m.bootstrap(&im, now, k.Bootstrap)
	case *metapb.Command_RegisterNode:
		r = m.registerNode(&im, now, k.RegisterNode.GetNode())
	case *metapb.Command_SetNodeState:
		r = m.setNodeState(&im, now, k.SetNodeState)
	case *metapb.Command_CreateTopic:
		r = m.createTopic(&im, now, k.CreateTopic)
	case *metapb.Command_DeleteTopic:
		r = m.deleteTopic(&im, now, k.DeleteTopic)
	case *metapb.Command_CreatePartitions:
		r = m.createPartitions(&im, now, k.CreatePartitions)
	case *metapb.Command_AlterConfig:
		r = m.alterConfig(&im, now, k.AlterConfig)
	case *metapb.Command_AllocateProducerIds:
		r = m.allocateProducerIDs(k.AllocateProducerIds)
	default:
		return Result{Err: fmt.Errorf("entry %d: %w", index, ErrUnknownCommand)}
	}
	if r.Err != nil {
		im = *m.image
		im.Index = index
	}
	m.image = &im
	return r
}

func (m *Machine) note(now time.Time, kind, subject, format string, args ...any) {
	seq := uint64(1)
	if n := len(m.events); n > 0 {
		seq = m.events[n-1].Seq + 1
	}
	if len(m.events) >= 2*MaxEvents {
		m.events = slices.Clone(m.events[len(m.events)-MaxEvents+1:])
	}
	m.events = append(m.events, Event{seq, now, kind, subject, fmt.Sprintf(format, args...)})
}

// kept are the events that count: the ring is trimmed now and then only.
func (m *Machine) kept() []Event { return m.events[max(0, len(m.events)-MaxEvents):] }

// Events returns up to limit events after seq, oldest first; the last ones if seq is 0.
func (m *Machine) Events(after uint64, limit int) []Event {
	all := m.kept()
	if after == 0 {
		return slices.Clone(all[max(0, len(all)-limit):])
	}
	i, _ := slices.BinarySearchFunc(all, after+1, func(e Event, seq uint64) int {
		return int(int64(e.Seq) - int64(seq))
	})
	return slices.Clone(all[i:min(len(all), i+limit)])
}

// LastEvent is the newest event's sequence number; 0 if there is none.
func (m *Machine) LastEvent() uint64 {
	if n := len(m.events); n > 0 {
		return m.events[n-1].Seq
	}
	return 0
}

func (m *Machine) bootstrap(im *Image, now time.Time, c *metapb.Bootstrap) Result {
	if im.ClusterID != "" {
		return Result{Err: fmt.Errorf("%w: %s", ErrClusterExists, im.ClusterID)}
	}
	if c.GetClusterId() == "" {
		return Result{Err: fmt.Errorf("%w: empty cluster id", ErrInvalidConfig)}
	}
	im.ClusterID = c.GetClusterId()
	m.note(now, "cluster-created", "cluster "+im.ClusterID, "the cluster was founded")
	return Result{}
}

func (m *Machine) registerNode(im *Image, now time.Time, pb *metapb.Node) Result {
	n := nodeFromPB(pb)
	if n.ID < 0 || n.Kafka == "" || n.Incarnation == "" {
		return Result{Err: fmt.Errorf("%w: id %d, Kafka address %q, incarnation %q", ErrInvalidNode, n.ID, n.Kafka, n.Incarnation)}
	}
	n.State = NodeUp
	old := im.Nodes[n.ID]
	if old != nil && old.Incarnation != n.Incarnation {
		return Result{Err: fmt.Errorf("%w: id %d belongs to another data folder", ErrInvalidNode, n.ID)}
	}
	im.Nodes = maps.Clone(im.Nodes)
	im.Nodes[n.ID] = n
	subject := fmt.Sprintf("node %d", n.ID)
	switch {
	case old == nil:
		m.note(now, "node-added", subject, "node %d joined at %s", n.ID, n.Kafka)
	default:
		m.note(now, "node-started", subject, "node %d started at %s, version %s", n.ID, n.Kafka, n.Version)
	}
	return Result{}
}

func (m *Machine) setNodeState(im *Image, now time.Time, c *metapb.SetNodeState) Result {
	old := im.Nodes[record.NodeID(c.GetNode())]
	if old == nil {
		return Result{Err: fmt.Errorf("%w: %d", ErrUnknownNode, c.GetNode())}
	}
	s := NodeState(c.GetState())
	if s != NodeUp && s != NodeDown && s != NodeDraining {
		return Result{Err: fmt.Errorf("%w: state %q", ErrInvalidNode, s)}
	}
	if old.State == s {
		return Result{}
	}
	n := *old
	n.State = s
	im.Nodes = maps.Clone(im.Nodes)
	im.Nodes[n.ID] = &n
	m.note(now, "node-"+string(s), fmt.Sprintf("node %d", n.ID), "node %d was %s and is %s", n.ID, old.State, s)
	return Result{}
}

func (m *Machine) allocateProducerIDs(c *metapb.AllocateProducerIds) Result {
	if c.GetCount() < 1 || c.GetCount() > maxProducerIDs {
		return Result{Err: fmt.Errorf("%w: %d producer ids", ErrInvalidConfig, c.GetCount())}
	}
	first := m.nextProducerID
	m.nextProducerID += c.GetCount()
	return Result{FirstProducerID: first}
}
