// Package replica runs replica groups: one Raft log (etcd-io/raft, RawNode with
// asynchronous storage writes) feeding one deterministic machine. A Host runs
// all groups of a node on a few loops, writes their entries to the node's one
// write-ahead log, and makes checkpoints. A cluster of one is a group of one
// voter on this same path.
//
// Who owns what:
//
//	core      pure: raft and the group's log; events in, effects out; no I/O, no clock
//	Group     the inbox that others fill, and the core and machine that only its loop touches
//	loop      one goroutine for many groups (loop.go); carries out the effects
//	Host      the loops, the WAL's writer, the ticker, the checkpoints
//
// # Payloads travel beside raft
//
// Raft's leader clones every proposed entry, data included, which for batches
// of a megabyte costs more than anything else on the path. So raft is given
// thin entries: eight bytes naming a payload. The payload itself lies in the
// group's log (entryLog), goes to the WAL from there, once, and to the machine
// when the entry is committed. Configuration changes are not thinned: raft
// reads them.
package replica
