package meta

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// Image is the cluster's metadata at one index of the meta log. It is
// immutable: Apply makes a new one, so readers hold one without a lock for as
// long as they like.
type Image struct {
	Index     record.Index
	ClusterID string
	Topics    map[record.TopicID]*Topic
	ByName    map[string]*Topic
	Nodes     map[record.NodeID]*Node
	// Defaults are settings that hold for every topic that does not override them.
	Defaults map[string]string
	// QueueGroups by name.
	QueueGroups   map[string]*QueueGroup
	queuesByTopic map[record.TopicID][]*QueueGroup // by id
	// LastQueueGroup is the id that was given last. What has an id up to this one and
	// is not in QueueGroups was deleted.
	LastQueueGroup queue.GroupID
	// GroupConfigs are the settings that were given to groups by name, whether the
	// groups are there or not.
	GroupConfigs map[string]map[string]string
	// Founders are the masters that the cluster began with: the first voters.
	Founders []Founder
	// Level is the feature level that the cluster uses: nothing of a later one is written.
	Level Level
	// Recovered names the last unsafe recovery of the masters; empty: there was none.
	Recovered string
	// Controller is the node whose master is active, −1 if none is known. It is
	// not part of the replicated state: the role fills it in.
	Controller record.NodeID
}

// Topic is one class of message.
type Topic struct {
	ID         record.TopicID
	Name       string
	Overrides  map[string]string // settings given by users, by Kafka's names
	Config     TopicConfig       // resolved: overrides over defaults
	Partitions []Placement       // by partition number, no holes
	Created    time.Time
}

// Placement says where one partition lives, and where it shall live. The
// members of its replica group are driven by the group's own leader, so that
// they lie somewhere between Replicas and Target while that is under way.
//
// Invariant: of one node there is at most one replica that is not lost in all
// of Replicas, Target and Leaving.
type Placement struct {
	Group    record.Group // its replica group; never used again
	Replicas []Replica    // in preference order, first is the preferred leader
	// Founders are the replicas that the group began with: its first members. Who
	// came later learns from them who the members are.
	Founders []record.ReplicaID
	// Target is what the members shall be; nil: nothing is under way.
	Target []Replica
	// Leaving are of a Target that was given up: they may be members still, so
	// their data stays until the present Target is reached.
	Leaving []Replica
	// Throttle bounds the copying to new replicas, bytes per second; 0: no bound.
	Throttle int64
	// Cause of Target: one of the Cause constants.
	Cause string
	// Recovery counts unsafe recoveries: when it goes up, the one replica that
	// Replicas names makes itself the group's only member.
	Recovery uint32
	// Leader as last reported to the masters; −1 none. Brokers know better.
	Leader record.NodeID
	Epoch  record.Epoch
}

// Why replicas move.
const (
	CauseRequest   = "request"   // somebody asked for it
	CauseRebalance = "rebalance" // somebody asked for an even spread
	CauseReplace   = "replace"   // a node has been down for too long, or is no more
	CauseNewDisk   = "new disk"  // a node came back with an empty data folder
	CauseDrain     = "drain"     // a node is draining
	CauseFactor    = "factor"    // the replication factor changes
	CauseCancel    = "cancel"    // back to where it was
	CauseDamage    = "damage"    // a replica's data was found damaged
	CauseRecovery  = "recovery"  // after an unsafe recovery
)

// Replica is one copy of a partition.
type Replica struct {
	ID   record.ReplicaID
	Node record.NodeID
	// Lost: its data is gone, as its node came back with another data folder or
	// was removed. It never serves or votes again.
	Lost bool
}

// Wanted are the replicas that there shall be in the end.
func (p *Placement) Wanted() []Replica {
	if p.Target != nil {
		return p.Target
	}
	return p.Replicas
}

// Hosted is the replica of this partition that a node keeps data of, whether it
// stays or not.
func (p *Placement) Hosted(node record.NodeID) (Replica, bool) {
	for _, list := range [][]Replica{p.Target, p.Replicas, p.Leaving} {
		for _, r := range list {
			if r.Node == node && !r.Lost {
				return r, true
			}
		}
	}
	return Replica{}, false
}

// names reports whether any of its lists names the node.
func (p *Placement) names(node record.NodeID) bool {
	has := func(r Replica) bool { return r.Node == node }
	return slices.ContainsFunc(p.Replicas, has) || slices.ContainsFunc(p.Target, has) || slices.ContainsFunc(p.Leaving, has)
}

// Founder is a master that the cluster began with, and its replica of the
// masters' own groups.
type Founder struct {
	Node    record.NodeID
	Replica record.ReplicaID
	// Taken: a node of this id has registered. A replica id is used once.
	Taken bool
}

// Node is a member of the cluster.
type Node struct {
	ID          record.NodeID
	Incarnation string // of its data folder
	// MetaReplica is its replica of the masters' own groups.
	MetaReplica record.ReplicaID
	Roles       []string
	Zone        string
	Kafka       string // advertised host:port of each door
	HTTP        string
	Peer        string
	Version     string
	// Level is the feature level that its program knows.
	Level Level
	State NodeState
	Since time.Time // of State
	// Drain: everything shall move away from it, also while it is down.
	Drain bool
	// Sick is why it should not lead, for example as its disk is slow, as it said
	// last; empty: it is well.
	Sick string
	// Starts counts the starts of its data folder that were registered, as the folder says.
	// Run names the last one: the folder chooses it with the count.
	Starts uint64
	Run    string
}

// OlderCopy is why a data folder of this node is one that was put back, from a backup or
// an image of its disk: the cluster has seen a later start of it, or another that was the
// same by count. nil: it is not known to be. Error: ErrOlderCopy.
func (n *Node) OlderCopy(incarnation string, starts uint64, run string) error {
	if n.Incarnation != incarnation || starts > n.Starts || starts == n.Starts && run == n.Run {
		return nil
	}
	return fmt.Errorf("%w of node %d: this would be its start %d, and the cluster has seen start %d; what the node answered for since is not in it: start the node with an empty data folder, and what it had is copied to it from the other nodes",
		ErrOlderCopy, n.ID, starts, n.Starts)
}

// The roles of a node.
const (
	RoleMaster = "master"
	RoleBroker = "broker"
)

// Has reports whether the node has a role.
func (n *Node) Has(role string) bool { return slices.Contains(n.Roles, role) }

// NodeState says what the masters think of a node.
type NodeState string

// The states of a node.
const (
	NodeUp       NodeState = "up"
	NodeDown     NodeState = "down"
	NodeDraining NodeState = "draining"
)

// Topic finds a topic by name; nil if there is none.
func (im *Image) Topic(name string) *Topic { return im.ByName[name] }

// Masters are the nodes with that role, by id.
func (im *Image) Masters() []*Node { return im.with(RoleMaster) }

// Brokers are the nodes with that role, by id.
func (im *Image) Brokers() []*Node { return im.with(RoleBroker) }

func (im *Image) with(role string) []*Node {
	var out []*Node
	for _, n := range im.Nodes {
		if n.Has(role) {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *Node) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// MetaNode finds the node whose replica of the masters' groups this is; nil if
// none is known. A founder that has not registered yet is not known.
func (im *Image) MetaNode(id record.ReplicaID) *Node {
	for _, n := range im.Nodes {
		if n.MetaReplica == id {
			return n
		}
	}
	return nil
}

// Partition finds one partition; nil if there is none.
func (im *Image) Partition(id record.TopicPartition) *Placement {
	t := im.Topics[id.Topic]
	if t == nil || id.Partition < 0 || int(id.Partition) >= len(t.Partitions) {
		return nil
	}
	return &t.Partitions[id.Partition]
}

// ReplicaNode finds the node of a partition's replica, lost ones included.
func (p *Placement) ReplicaNode(id record.ReplicaID) (record.NodeID, bool) {
	for _, list := range [][]Replica{p.Replicas, p.Target, p.Leaving} {
		for _, r := range list {
			if r.ID == id {
				return r.Node, true
			}
		}
	}
	return -1, false
}

// editor changes placements of an image that is being made. It clones each map
// and each topic it touches once, whatever the number of changes.
type editor struct {
	im     *Image
	edited map[record.TopicID]*Topic
}

func edit(im *Image) *editor { return &editor{im: im} }

// placement is one to be changed. The partition must be there.
func (e *editor) placement(id record.TopicPartition) *Placement {
	t := e.edited[id.Topic]
	if t == nil {
		if e.edited == nil {
			e.edited = map[record.TopicID]*Topic{}
			e.im.Topics, e.im.ByName = maps.Clone(e.im.Topics), maps.Clone(e.im.ByName)
		}
		c := *e.im.Topics[id.Topic]
		c.Partitions = slices.Clone(c.Partitions)
		t = &c
		e.edited[id.Topic], e.im.Topics[id.Topic], e.im.ByName[t.Name] = t, t, t
	}
	return &t.Partitions[id.Partition]
}
