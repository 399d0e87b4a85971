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
	ErrClusterExists     = errors.New("the cluster has a name already")
	// ErrUnknownCommand: written by a newer version. The replica must stop.
	ErrUnknownCommand = errors.New("unknown command")
	// ErrSnapshot: a snapshot that does not decode.
	ErrSnapshot = errors.New("metadata snapshot is not valid")
)
