package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/tube-mq/tube/internal/queue"
)

// Headers of a dead letter, beside those that the message had.
const (
	headerDeadGroup     = "tube-dead-group"
	headerDeadTopic     = "tube-dead-topic"
	headerDeadPartition = "tube-dead-partition"
	headerDeadOffset    = "tube-dead-offset"
	headerDeadTime      = "tube-dead-time"     // when the message was sent, ms since 1970
	headerDeadID        = "tube-dead-id"       // the message's own id
	headerDeadAttempts  = "tube-dead-attempts" // JSON, oldest first
	headerDeadReason    = "tube-dead-reason"
)

// deadAttempt is one delivery in a dead letter's record.
type deadAttempt struct {
	Time     time.Time `json:"time"`
	Consumer string    `json:"consumer,omitempty"`
	Address  string    `json:"address,omitempty"`
	Error    string    `json:"error,omitempty"`
}

// deadLetters writes dead letters by the courier, as any other message. It
// implements broker.DeadLetters.
type deadLetters struct{ n *Node }

// Write implements broker.DeadLetters. It blocks.
func (d deadLetters) Write(ctx context.Context, l queue.DeadLetter, done func(error)) {
	done(d.write(ctx, l))
}

func (d deadLetters) write(ctx context.Context, l queue.DeadLetter) error {
	q := d.n.queues.Load()
	if q == nil {
		return errStarting
	}
	if l.To == "" {
		return fmt.Errorf("queue group %s has no dead-letter topic: give it one, or skip the message", l.Name)
	}
	sent, err := q.courier.Send(ctx, l.To, []queue.Outgoing{deadLetter(&l)})
	if err == nil {
		err = sent[0].Err
	}
	return err
}

func deadLetter(l *queue.DeadLetter) queue.Outgoing {
	m := l.Message
	out := queue.Outgoing{Key: m.Key, KeyNull: m.KeyNull, Value: m.Value, ID: l.ID()}
	for _, h := range m.Headers {
		switch h.Key {
		case queue.HeaderMessageID, queue.HeaderDeliverAt: // they are the dead letter's own, or past
		default:
			out.Headers = append(out.Headers, h)
		}
	}
	add := func(key, value string) {
		out.Headers = append(out.Headers, queue.Header{Key: key, Value: []byte(value)})
	}
	add(headerDeadGroup, l.Name)
	add(headerDeadTopic, l.Topic)
	add(headerDeadPartition, strconv.Itoa(int(l.Source.Partition)))
	add(headerDeadOffset, strconv.FormatInt(int64(m.Offset), 10))
	add(headerDeadTime, strconv.FormatInt(m.TimestampMillis, 10))
	if m.ID != "" {
		add(headerDeadID, m.ID)
	}
	attempts := make([]deadAttempt, len(l.Records))
	for i, a := range l.Records {
		attempts[i] = deadAttempt{time.UnixMilli(a.Millis).UTC(), a.Member, a.Address, a.Reason}
	}
	if b, err := json.Marshal(attempts); err == nil { // it always does
		add(headerDeadAttempts, string(b))
	}
	if n := len(l.Records); n > 0 && l.Records[n-1].Reason != "" {
		add(headerDeadReason, l.Records[n-1].Reason)
	}
	return out
}
