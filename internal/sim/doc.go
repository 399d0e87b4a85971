// Package sim runs a whole cluster in one goroutine from one seed: replica hosts
// (the real ones: recovery, raft, the write-ahead log's format, checkpoints,
// copies, membership changes) on disks in memory, a network, clients and
// everything that can go wrong, in virtual time. The same seed gives the same
// run, event for event.
//
//	cluster   virtual time and the queue of events
//	node      a disk and, while it is up, a replica.Single that the events drive
//	network   delays, drops, repeats, reorders, cuts
//	team      one replica group: which replicas it should have, on which nodes
//	client    produces with sequences until acknowledged; reads behind a barrier
//	traveller reads from leaders and followers as it comes by
//	fault     what goes wrong, and how often it did
//	sick      what follows from a disk that is slow
//	checker   what must hold, looked at while it happens and at the end
//	queues    teams whose partition has queue groups, in two runs of three: queue_team
//	          (groups and how a node drives its broker's queues), queue_modes (groups that
//	          are broadcast, filter, trust, park keys or have a rate), queue_sender,
//	          queue_consumer, queue_complete (acknowledge and send), queue_operator (seeks,
//	          purges, pauses, retries, lets the log begin later), queue_faults (windows in
//	          which a leader ends), queue_history (what the log says) and queue_checker
//	          (what was handed out and answered against that)
//
// # How a crash falls between two steps
//
// The write-ahead log's writes and syncs are events of their own, so a crash can
// come after the one and before the other. Within an event a node can also be
// made to crash before or after its n-th change of the disk (a fuse): what the
// disk would hold is taken at that moment, and nothing that the node says
// afterwards is heard.
//
// # What a minority may lose
//
// Whatever was synced survives any number of crashes; whole disks are lost, or
// rot, on one node at a time, and not again until every replica that was there
// has been replaced under a new id.
package sim
