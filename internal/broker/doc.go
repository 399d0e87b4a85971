// Package broker hosts the partitions that are placed on this node: it checks
// and proposes what producers send, serves readers, keeps topics' retention and
// tells watchers when there is something new. It owns the partition machine,
// which the replica layer feeds with committed entries.
package broker
