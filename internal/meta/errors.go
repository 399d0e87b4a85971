package meta

import "errors"

// What a command may answer. It then changed nothing.
var (
	ErrTopicExists       = errors.New("topic already exists")
	ErrUnknownTopic      = errors.New("unknown topic")
	ErrInvalidTopicName  = errors.New("invalid topic name")
	ErrInvalidPartitions = errors.New("invalid number of partitions")
	ErrInvalidReplicas   = errors.New("invalid replication factor")
	ErrInvalidPlacement  = errors.New("invalid replica placement")
	ErrInvalidConfig     = errors.New("invalid setting")
	ErrUnknownNode       = errors.New("unknown node")
	ErrInvalidNode       = errors.New("invalid node")
	// ErrLevel: not all nodes know that feature level.
	ErrLevel         = errors.New("not all nodes know the feature level")
	ErrClusterExists = errors.New("the cluster has a name already")
	// ErrNodeInUse: the node id belongs to another data folder, whose node may be alive.
	ErrNodeInUse = errors.New("the node id is in use")
	// ErrOldIncarnation: the data folder was replaced by another, or its node
	// removed. What is in it may be older than what the cluster went on from.
	ErrOldIncarnation = errors.New("the data folder is of the past")
	// ErrOlderCopy: the data folder is an older copy of the one that the node had last. It
	// has forgotten votes and entries that it answered for.
	ErrOlderCopy = errors.New("this is an older copy of the data folder")
	// ErrGivenUp: the data folder is of a part of the cluster's history that an unsafe
	// recovery of the masters has given up.
	ErrGivenUp = errors.New("an unsafe recovery has given this data folder up")
	// ErrNodeNeeded: a node cannot be removed as something depends on it.
	ErrNodeNeeded       = errors.New("the node is needed")
	ErrUnknownPartition = errors.New("unknown partition")
	// ErrNotMoving: there is no change of replicas under way, or not that one.
	ErrNotMoving = errors.New("no such change of replicas is under way")
	// ErrNoSurvivor: that node has no replica to go on from.
	ErrNoSurvivor       = errors.New("the node has no replica of the partition")
	ErrQueueGroupExists = errors.New("queue group already exists")
	ErrInvalidQueueName = errors.New("invalid queue group name")
	// ErrTooManyQueueGroups: MaxQueueGroups are there.
	ErrTooManyQueueGroups = errors.New("too many queue groups")
	// ErrUnknownCommand: written by a newer version. The replica must stop.
	ErrUnknownCommand = errors.New("unknown command")
	// ErrSnapshot: a snapshot that does not decode.
	ErrSnapshot = errors.New("metadata snapshot is not valid")
)
