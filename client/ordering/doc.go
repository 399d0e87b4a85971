// Package ordering helps a consumer that minds in which order it sees messages, where
// the queue promises none:
//
//   - Newest: only what is newer than what was handled of its key.
//   - Sequence: exactly the next version of a key; what comes early is held back.
//   - Machine: what fits the present state; what does not is taken later.
//
// All three are decisions in memory of this process, bounded, and know no clock; they
// are no storage. Where it must hold over restarts and several processes, the version or
// state is the application's to keep in its own database, and these say what to do with
// it. NewestWins and ExactlyNext are middleware for tube.QueueGroup.Run around the first
// two. Have messages of a key come to one process at a time: a queue group with
// OrderByKey does that.
//
// Where strict order of a key is all that is wanted, a group with OrderByKey is enough
// and this package is not needed.
package ordering

import tube "github.com/tube-mq/tube/client"

// VersionOf reads a message's key and version; an error fails the message.
type VersionOf func(m *tube.Message) (key string, version int64, err error)
