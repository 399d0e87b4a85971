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
// # Retention's clock
//
// Offsets expire by a clock that the Machine keeps itself. It advances by the
// elapsed time that the leader measures, at most MaxClockStep an entry. A jump of the
// wall clock deletes nothing; time in which the shard had no leader does not count.
package group
