// Package outbox keeps messages on this side until Tube has them: for programs that
// must not lose a message though no node can be reached, or that send a message if and
// only if their database transaction commits.
//
//   - Spool keeps them in files. Put returns when the message is on this machine's disk.
//   - Table keeps them in a table of the application's own database (PostgreSQL, MySQL,
//     SQLite). Enqueue is part of the application's transaction.
//
// Both have a Relay, which sends what is kept with a tube.Producer, again and again
// until it is confirmed, and then forgets it. A message keeps its id over all of that:
// after a crash it may be sent a second time, and a topic with the setting
// tube.dedupe.window stores it once. The order is kept, per topic, as long as one relay
// runs and nothing is refused for good; for a table over a crash too if the relay has a
// name, see TableConfig.Owner.
//
// What Tube refuses for good, such as a message that is too large or for a topic that is
// not there, must not hold up the rest. It is set aside, with the reason, never dropped:
// a spool writes it to the file refused.jsonl, a table keeps it with refused filled in.
//
// A file of a spool is a sequence of records, little endian:
//
//	magic "TSP1" │ CRC-32C of all that follows │ length of the payload u32 │ file's number u32 │ durable u64 │ payload
//
// durable is how much of the file was fsynced when the record was written. So a record
// that cannot be read is told apart: if a later one says that its place was durable the
// disk has lost data, and opening fails; else it is the torn end of what nobody was
// told to be safe, and is cut off. The payload is a tube.v1.SendRequest of one message.
package outbox
