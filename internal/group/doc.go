// Package group is the pure part of stream (consumer) groups, sharded by group
// name. It does no I/O, reads no clock and starts no goroutine.
//
//	           Join, Sync, Heartbeat, Leave, Commit …, Tick
//	                             │
//	                      ┌──────▼──────┐  replies
//	on the shard's leader │ Coordinator ├──────────►
//	                      └──────┬──────┘
//	                   proposals │ ▲ results
//	                      ┌──────▼─┴────┐
//	on every replica      │   Machine   │
//	                      └─────────────┘
//
// The Machine holds what must survive: each group's last generation (members,
// assignment) and the committed offsets. It changes by committed commands only.
//
// The Coordinator holds what may be lost with the leader: who is connected, who
// waits for whom, timers. A reply that promises something leaves only after the
// command behind the promise was applied.
//
// # Generations
//
// Each rebalance writes twice: PutGeneration before the members hear of the new
// generation, Assign before they hear their assignments. So a generation number
// is never given out twice, and from PutGeneration on every commit of an older
// generation is refused in Apply, on all replicas alike, whatever the leader of
// the moment believed when it proposed it. Commands that change a group name the
// version they were built on and are refused if it is no longer there: a
// proposal of unknown outcome that lands late does no harm.
//
// # Groups whose partitions the coordinator assigns
//
// In groups of the consumer protocol (KIP-848) there is one call, the heartbeat.
// The Machine holds each member with what it is assigned and must give up, and
// each member's target; the coordinator only adds signs of life. Whatever changes
// who is in or what is read begins an epoch with new targets (assign*.go). A member
// is brought to its target by its own heartbeats (draft.reconcile): it gives up
// first, and what it gets is nobody else's. So no two read one partition, whoever
// leads; an old epoch cannot commit.
//
//	heartbeats ──► Beat: nothing new, answered at once, no entry
//	      └──────► queue ──► draft: all that waits ──► one ChangeConsumers
//
// While one change is on its way, what comes becomes the next one together: a
// thousand members that start at once cost a few entries. Groups become of this
// kind, and classic again, while they have members (consumer_classic.go).
//
// # Retention's clock
//
// Offsets expire by a clock that the Machine keeps itself. It advances by the
// elapsed time that the leader measures, at most MaxClockStep an entry. A jump of the
// wall clock deletes nothing; time in which the shard had no leader does not count.
package group
