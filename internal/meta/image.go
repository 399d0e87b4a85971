package meta

import (
	"time"

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

// Placement says where one partition lives.
type Placement struct {
	Group    record.Group // its replica group; never used again
	Replicas []Replica    // in preference order, first is the preferred leader
	// Leader as last reported to the masters; −1 none. Brokers know better.
	Leader record.NodeID
	Epoch  record.Epoch
}

// Replica is one copy of a partition.
type Replica struct {
	ID   record.ReplicaID
	Node record.NodeID
}

// Node is a member of the cluster.
type Node struct {
	ID          record.NodeID
	Incarnation string // of its data folder
	Roles       []string
	Zone        string
	Kafka       string // advertised host:port of each door
	HTTP        string
	Peer        string
	Version     string
	State       NodeState
}

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
