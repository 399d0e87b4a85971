// Package queue is the second way of reading a topic: per-message delivery to
// groups, with leases, acknowledgement, refusal, redelivery and dead letters.
//
// A queue group's delivery state in one partition has two halves, both pure:
//
//   - State is replicated: it is part of the partition's machine and changes only by
//     commands in the partition's own log. It says what is done with (floor and
//     acknowledged ranges), what failed how often, what is due when. Whoever leads
//     next has it.
//   - Desk belongs to the leader and dies with its leadership: who holds which lease
//     until when, what is to be handed out next, who waits. A new leader starts an
//     empty desk from the State: what is not done with and not due later is there to
//     be handed out.
//
// Neither knows goroutines, clocks or disks: time and messages come in, leases and
// commands to be proposed come out. The broker owns the loop around them.
//
// A message of a group is, in this order of precedence: done (State); in hand, that
// is leased or being settled (Desk); waiting for its time (State's index for what was
// sent with a delay, Desk for what comes again); held back behind its key; ready.
//
// What a Desk decides counts once it is committed: only then is a failed message
// handed out again, a consumer's acknowledgement answered, the next of a key let go.
//
// The files: state, cursors, batches, delays, delayswap, ids, offsets, snapshot: the State.
// op, annexe, codec: what changes it, as bytes. desk, hand, settle, expiry, keys,
// rate, explain: the Desk. clock: the time that both go by.
package queue
