package queue

import (
	"strconv"
	"strings"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// Outgoing is a message to be sent.
type Outgoing struct {
	Key, Value      []byte
	KeyNull         bool
	ID              string // given by the business; empty: the door makes one up
	Headers         []Header
	DeliverAtMillis int64 // wall clock; 0: at once, or after Delay
	// Delay from when the partition's leader takes it: no clock that jumps meanwhile
	// makes it earlier. At most MaxDelay.
	Delay time.Duration
	// OnceID, if the topic does not look for repeats of ID itself, has this message
	// stored once however often it is sent within OnceWindow. It is not told to anybody.
	OnceID string
}

// OnceWindow is how long a OnceID is remembered at least.
const OnceWindow = 24 * time.Hour

// DedupeID is by which repeats of the message are told, and for how long it has to be
// remembered, given the topic's window; "": not at all.
func (m *Outgoing) DedupeID(window time.Duration) (string, time.Duration) {
	switch {
	case window > 0 && m.ID != "":
		return m.ID, window
	case m.OnceID != "":
		return m.OnceID, max(window, OnceWindow)
	}
	return "", window
}

// Sent answers an Outgoing.
type Sent struct {
	Partition record.Partition
	Offset    record.Offset
	ID        string
	Duplicate bool  // a message of this id was there: Partition and Offset are its
	Err       error // this one message was not stored, or it is not known whether it was
}

// Receiving asks for messages of a group.
type Receiving struct {
	Group    string
	Member   Member
	Max      int           // messages; 1 to 10,000. Between nodes 0 asks for the Holding only
	MaxBytes int           // of keys, values and headers; the first message is given whatever its size
	Wait     time.Duration // for the first one; 0: do not wait
	Held     int           // leases of the group that the member holds from other nodes
}

// Holding is what a session has of a group from one node.
type Holding struct {
	Leases int
	// Alone: one of them is to be alone in its hand (see Delivery.Alone).
	Alone bool
	// Emptied: the node has a message that is to be alone in the session's hand, and
	// gives it nothing until it holds nothing, from other nodes neither.
	Emptied bool
}

// TopicMessages are messages to be sent to one topic.
type TopicMessages struct {
	Topic    string
	Messages []Outgoing
}

// Completed answers acknowledge-and-send. If one of the leases has an error nothing
// was done, and Sent is nil.
type Completed struct {
	Leases []error
	Sent   [][]Sent // by topic and message, as they were asked for
}

// Place is a message's place in its topic.
type Place struct {
	Partition record.Partition
	Offset    record.Offset
}

// String is partition and offset, for example "3-1042": the id of a message that was
// given none.
func (p Place) String() string { return string(p.Append(make([]byte, 0, 32))) }

// Append is String's text behind b: at most 32 bytes.
func (p Place) Append(b []byte) []byte {
	b = append(strconv.AppendInt(b, int64(p.Partition), 10), '-')
	return strconv.AppendInt(b, int64(p.Offset), 10)
}

// ParsePlace reads what String wrote; false: it is something else.
func ParsePlace(s string) (Place, bool) {
	p, o, ok := strings.Cut(s, "-")
	partition, err1 := strconv.ParseUint(p, 10, 31)
	offset, err2 := strconv.ParseUint(o, 10, 63)
	at := Place{record.Partition(partition), record.Offset(offset)}
	return at, ok && err1 == nil && err2 == nil && at.String() == s
}

// Ref names a message of a topic: by ID, or if that is empty by Place.
type Ref struct {
	Place
	ID string
}
