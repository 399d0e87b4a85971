// Package tube is the client of Tube: queues, producers and streams. It is the only
// Go API that the project promises to keep.
//
//	q, err := tube.Queue("billing", tube.OnTopic("orders"))
//	err = q.Run(ctx, func(ctx context.Context, m *tube.Message) error { … })
//
// # Queues
//
// A queue group reads a topic message by message. Each message is handed to one
// member of the group with a lease, and comes again until a member says that it is
// done. [QueueGroup.Run] calls a handler for each message: nil confirms it, an error
// counts as a failure and makes it come again after the group's back-off, and
// [RetryAfter], [RetryAt], [Release] and [Dead] say more. Leases are extended while
// the handler runs, however long it takes (up to the group's max_handling).
// [QueueGroup.Receive] takes messages by hand.
//
// Delivery is at least once: a handler can see a message again if its process, the
// network or a node fails between its end and its confirmation. It should be
// idempotent, or drop repeats by [Message.ID] (see [Dedupe]).
//
// # Producers
//
// A [Producer] makes batches by itself, sends the batches of a topic one after the
// other, so that they stay in order, and repeats what failed with the same message
// ids: a topic with the setting tube.dedupe.window stores each of them once.
//
// # Streams
//
// A [Consumer] reads topics as a stream, with a position for each partition. It is a
// thin layer over the Kafka client franz-go; so any Kafka client does as well.
//
// Queues and producers talk to the HTTP address of any node of a cluster
// ([Servers], TUBE_HTTP, 127.0.0.1:9080), streams to the Kafka address ([Brokers],
// TUBE_KAFKA, 127.0.0.1:9092). They are safe for use by several goroutines.
//
// Who owns what: options, servers, errors are shared. queue, settings, message, verdict:
// what a caller holds and says. run, job, session, frames: the loop of Run; run owns the
// messages in hand, a session one stream, of which there is one at a time. outgoing,
// producer, batch: the sending side. consumer: streams. middleware, dedupe, perkey,
// tracing: what goes around a handler.
package tube
