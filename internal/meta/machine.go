package meta

import (
	"fmt"
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
	// FirstReplica is the first replica id that the machine gives; lower ones are
	// the founding masters'.
	FirstReplica = record.ReplicaID(1 << 20)
	// MaxPartitions of one topic.
	MaxPartitions = 10_000
	// MaxEvents that are kept.
	MaxEvents = 10_000
	// MaxQueueGroups of the cluster.
	MaxQueueGroups = 10_000
	// MaxGroupConfigs is how many groups may have settings of their own.
	MaxGroupConfigs = 10_000
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
	// replaced are the data folders that each node id had before and that may not
	// come back, oldest first; at most maxReplaced of each.
	replaced map[record.NodeID][]string
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
	Topic           *Topic      // created or changed
	Node            *Node       // registered or changed
	QueueGroup      *QueueGroup // created, changed or deleted
	FirstProducerID int64       // of AllocateProducerIDs
	// Items says for each partition of a command about many what became of it:
	// nil or one of the sentinels. Those refused did not change.
	Items []error
	Err   error // one of the package's sentinels; nothing was changed
}

// New returns the metadata of a cluster that has no name yet.
func New() *Machine {
	return &Machine{
		image: &Image{Topics: map[record.TopicID]*Topic{}, ByName: map[string]*Topic{}, Nodes: map[record.NodeID]*Node{}, Defaults: map[string]string{},
			QueueGroups: map[string]*QueueGroup{}, queuesByTopic: map[record.TopicID][]*QueueGroup{}, GroupConfigs: map[string]map[string]string{}, Controller: -1},
		nextGroup: FirstPartitionGroup, nextReplica: FirstReplica, replaced: map[record.NodeID][]string{}, metrics: map[string]string{},
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
		r = m.registerNode(&im, now, k.RegisterNode)
	case *metapb.Command_SetNodeState:
		r = m.setNodeState(&im, now, k.SetNodeState)
	case *metapb.Command_SetNodeSick:
		r = m.setNodeSick(&im, now, k.SetNodeSick)
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
	case *metapb.Command_RemoveNode:
		r = m.removeNode(&im, now, k.RemoveNode)
	case *metapb.Command_DrainNode:
		r = m.drainNode(&im, now, k.DrainNode)
	case *metapb.Command_Reassign:
		r = m.reassign(&im, now, k.Reassign)
	case *metapb.Command_CancelReassign:
		r = m.cancelReassign(&im, now, k.CancelReassign)
	case *metapb.Command_PlacementDone:
		r = m.placementDone(&im, now, k.PlacementDone)
	case *metapb.Command_UnsafeRecover:
		r = m.unsafeRecover(&im, now, k.UnsafeRecover)
	case *metapb.Command_RenewReplicas:
		r = m.renewReplicas(&im, now, k.RenewReplicas)
	case *metapb.Command_CreateQueueGroup:
		r = m.createQueueGroup(&im, now, k.CreateQueueGroup)
	case *metapb.Command_UpdateQueueGroup:
		r = m.updateQueueGroup(&im, now, k.UpdateQueueGroup)
	case *metapb.Command_DeleteQueueGroup:
		r = m.deleteQueueGroup(&im, now, k.DeleteQueueGroup)
	case *metapb.Command_PauseQueueGroup:
		r = m.pauseQueueGroup(&im, now, k.PauseQueueGroup)
	case *metapb.Command_NoteQueueRetention:
		r = m.noteQueueRetention(&im, now, k.NoteQueueRetention)
	case *metapb.Command_RecoverMasters:
		r = m.recoverMasters(&im, now, k.RecoverMasters)
	case *metapb.Command_SetLevel:
		r = m.setLevel(&im, now, k.SetLevel)
	case *metapb.Command_AlterGroupConfig:
		r = m.alterGroupConfig(&im, now, k.AlterGroupConfig)
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

func (m *Machine) allocateProducerIDs(c *metapb.AllocateProducerIds) Result {
	if c.GetCount() < 1 || c.GetCount() > maxProducerIDs {
		return Result{Err: fmt.Errorf("%w: %d producer ids", ErrInvalidConfig, c.GetCount())}
	}
	first := m.nextProducerID
	m.nextProducerID += c.GetCount()
	return Result{FirstProducerID: first}
}

// Replaced reports whether a data folder was a node's once and may not come back.
func (m *Machine) Replaced(node record.NodeID, incarnation string) bool {
	return slices.Contains(m.replaced[node], incarnation)
}
