package queue

import (
	"errors"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// GroupID numbers a queue group. Metadata gives it and never gives it twice, also
// not to a group of the same name that is made anew.
type GroupID uint64

// Settings of a queue group as metadata has them, with the defaults filled in.
type Settings struct {
	MaxAttempts   int             // deliveries that count before a message is dead; 1 to 1,000
	Lease         time.Duration   // how long a delivery is held; 1 s to 12 h
	MaxHandling   time.Duration   // how long a lease may be extended in all; Lease to 24 h
	Backoff       []time.Duration // before the next delivery, by attempt; the last one repeats; at most 32
	OrderByKey    bool            // one message of a key at a time, in the order of offsets
	ParkKey       bool            // a dead message of an ordered key keeps the key back; else the key goes on
	Broadcast     bool            // each member has a cursor of its own
	AutoAck       bool            // handed out counts as acknowledged
	Rate          float64         // messages/s of the whole group, over all partitions; 0: no limit
	RateBytes     float64         // bytes/s, likewise
	MaxInFlight   int             // leases at a time, in each partition; 1 to 1,000,000
	Filter        string          // CEL; empty: everything
	DeadLetter    string          // topic that dead messages are written to
	Retain        bool            // the log is kept until this group is done with it, up to the topic's hard limit
	Paused        bool            // nothing is handed out
	IdleMember    time.Duration   // a broadcast member that was not seen for so long loses its cursor
	StartAtMillis int64           // where the group begins: StartAtStart, StartAtEnd or a time in ms since 1970
}

// Where a group begins that is given no time.
const (
	StartAtStart = -2
	StartAtEnd   = -1
)

// Member is who receives: a client's session as some node sees it.
type Member struct {
	ID         string        // the consumer's id, given by the client or made up by the door
	Session    string        // the door's name of the connection or stream; unique in the cluster
	Node       record.NodeID // whose door it came to: where it can be asked
	Address    string        // host:port of the client, for the record of attempts
	CanBeAsked bool          // it has a stream that inquiries can go down
}

// Lease is the right to handle a message for a while.
type Lease struct {
	Partition record.Partition
	Offset    record.Offset
	Attempt   int    // 1 for the first delivery
	Nonce     uint64 // tells this lease from any other of the message
	Cursor    uint32 // of which group, and of which broadcast member; see CursorOf
	// Generation of the cursor when the lease was given: a seek or a purge begins
	// another, and leases of an earlier one are void.
	Generation uint32
}

// Delivery is a message handed out.
type Delivery struct {
	Lease           Lease
	Topic           string
	ID              string // message id; empty if it has none
	Key, Value      []byte
	KeyNull         bool
	Headers         []Header
	TimestampMillis int64
	UntilMillis     int64 // queue clock of the leader: when the lease ends; 0: acknowledged by itself, there is no lease
	// Alone: the message was lost together with others before. Its consumer is to get
	// nothing else of the group until this one is settled; nodes that know of more
	// leases than the leader see to it with Receiving.Held.
	Alone bool
}

// Header of a message.
type Header struct {
	Key   string
	Value []byte
}

// Verdict is what a consumer says of a lease.
type Verdict uint8

// What can be said of a lease.
const (
	Acknowledge Verdict = iota + 1 // done
	Nack                           // failed: again later, counted
	Release                        // not now: again at once, to anybody, not counted
	Extend                         // still at it
	Dead                           // never again: to the dead letters
)

// Settlement says what becomes of a lease.
type Settlement struct {
	Lease   Lease
	Verdict Verdict
	// Delay before the next delivery, of a Nack or Release; −1: what the group's
	// back-off says. Of an Extend: how much longer from now on; 0: the group's lease, or what is left if
	// that is more.
	Delay  time.Duration
	Reason string // of a Nack or Dead; at most 1 KiB of it is kept
}

// What a settlement may be answered. Nothing was changed then.
var (
	// ErrLeaseExpired: the lease ended, and the message was handed out again since or
	// is being set aside.
	ErrLeaseExpired = errors.New("lease expired")
	// ErrLeaseUnknown: there is no such message, or this lease was never given.
	ErrLeaseUnknown = errors.New("lease unknown")
	// ErrAlreadyDone: the message is done with; a failure comes too late. (An
	// acknowledgement of what is acknowledged already is a success.)
	ErrAlreadyDone = errors.New("message is done with already")
	// ErrHandlingTooLong: a lease may not be extended beyond the group's longest handling time.
	ErrHandlingTooLong = errors.New("longest handling time exceeded")
	// ErrUnknownGroup: the partition has no such group.
	ErrUnknownGroup = errors.New("unknown queue group")
	// ErrNotDelayed: the message does not wait for its time: it is due already, was
	// cancelled, or was sent without a delay.
	ErrNotDelayed = errors.New("message does not wait for its time")
	// ErrDelayTooLong: a message may wait for at most MaxDelay.
	ErrDelayTooLong = errors.New("delay too long")
	// ErrTooManyDelayed: MaxDelayed messages of the partition wait for their time, or the node
	// has no room for the index of more.
	ErrTooManyDelayed = errors.New("too many delayed messages")
	// ErrTooManyMembers: the partition has MaxCursors cursors.
	ErrTooManyMembers = errors.New("too many groups and broadcast members")
)

// HeaderMessageID and HeaderDeliverAt are the record headers in which a message's id
// and due time (decimal, ms since 1970) are written, for whoever reads it as a stream.
const (
	HeaderMessageID = "tube-message-id"
	HeaderDeliverAt = "tube-deliver-at"
)
