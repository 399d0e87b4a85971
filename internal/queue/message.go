package queue

import (
	"errors"

	"github.com/tube-mq/tube/internal/record"
)

// Message is what a desk hands out.
type Message struct {
	Partition       record.Partition
	Offset          record.Offset
	TimestampMillis int64
	ID              string // of its header; empty if it has none
	Key, Value      []byte
	KeyNull         bool
	Headers         []Header
}

// SizeBytes is what the message counts for in limits of bytes.
func (m *Message) SizeBytes() int {
	n := len(m.Key) + len(m.Value)
	for i := range m.Headers {
		n += len(m.Headers[i].Key) + len(m.Headers[i].Value)
	}
	return n
}

// ErrGone: the message is not in the log any more.
var ErrGone = errors.New("message is below the log's start")

// Source has a partition's messages.
type Source interface {
	// Messages returns committed messages in a row of which the first is at o: it, and
	// those that were read along with it. They are the caller's to keep, not to change.
	// Errors: ErrGone; others mean that nothing can be read now.
	Messages(o record.Offset) ([]Message, error)
	// End is the offset behind the last committed message.
	End() record.Offset
}

// Filter says whether a group wants a message. An error means that the filter does
// not fit the message: it counts as a no, and Explain tells.
type Filter func(*Message) (bool, error)

// DeadLetter is a message that is to be set aside.
type DeadLetter struct {
	Group    GroupID
	Name     string // of the group
	Member   string // of a broadcast group: whose cursor
	Topic    string // where the message comes from
	To       string // the dead-letter topic
	Source   record.TopicPartition
	Message  *Message
	Attempts int       // counted deliveries
	Records  []Attempt // of the last of them
}

// ID is the dead letter's message id: the same however often it is written.
func (d *DeadLetter) ID() string {
	return "dead-" + d.Source.String() + "-" + itoa(int64(d.Message.Offset)) + "-" + itoa(int64(d.Group)) + suffix(d.Member)
}

func suffix(member string) string {
	if member == "" {
		return ""
	}
	return "-" + member
}
