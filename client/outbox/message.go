package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	tube "github.com/tube-mq/tube/client"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// Sender sends messages; *tube.Producer is one.
type Sender interface {
	SendAsync(ctx context.Context, m *tube.Outgoing, done func(tube.Result, error))
}

// maxPayload bytes of one message in an outbox: more than a node takes.
const maxPayload = 16 << 20

// encode is a message as it is kept. One without an id is given one. A delay is turned
// into a time, as it runs while the message is kept.
func encode(m *tube.Outgoing, now time.Time) ([]byte, error) {
	if m == nil || m.Topic == "" {
		return nil, errors.New("outbox: the message has no topic")
	}
	if m.ID == "" {
		m.ID = tube.NewID()
	}
	o := &tubev1.OutgoingMessage{Value: m.Value, Key: m.Key, Id: m.ID, Headers: m.Headers}
	for _, h := range m.RawHeaders {
		o.RawHeaders = append(o.RawHeaders, &tubev1.RawHeader{Name: h.Name, Value: h.Value})
	}
	at := m.At
	if m.Delay > 0 {
		at = now.Add(m.Delay)
	}
	if !at.IsZero() {
		o.When = &tubev1.OutgoingMessage_DeliverAt{DeliverAt: timestamppb.New(at)}
	}
	b, err := proto.Marshal(&tubev1.SendRequest{Topic: m.Topic, Messages: []*tubev1.OutgoingMessage{o}})
	if err != nil {
		return nil, fmt.Errorf("outbox: encode message %s: %w", m.ID, err)
	}
	if len(b) > maxPayload {
		return nil, fmt.Errorf("outbox: message %s has %d bytes; %d can be", m.ID, len(b), maxPayload)
	}
	return b, nil
}

// decode is the reverse. A time that has passed means at once.
func decode(b []byte, now time.Time) (*tube.Outgoing, error) {
	var r tubev1.SendRequest
	if err := proto.Unmarshal(b, &r); err != nil {
		return nil, err
	}
	if len(r.Messages) != 1 {
		return nil, fmt.Errorf("%d messages in one record", len(r.Messages))
	}
	o := r.Messages[0]
	m := &tube.Outgoing{Topic: r.Topic, Value: o.Value, Key: o.Key, ID: o.Id, Headers: o.Headers}
	for _, h := range o.RawHeaders {
		m.RawHeaders = append(m.RawHeaders, tube.Header{Name: h.Name, Value: h.Value})
	}
	if at := o.GetDeliverAt(); at != nil && at.AsTime().After(now) {
		m.At = at.AsTime()
	}
	return m, nil
}

// isRefused says whether Tube refused a message for good. Whatever else goes wrong may
// pass: better held up than set aside.
func isRefused(err error) bool {
	return errors.Is(err, tube.ErrInvalid) || errors.Is(err, tube.ErrMessageTooLarge) || errors.Is(err, tube.ErrUnknownTopic)
}

// pause waits; longer after each failure in a row, up to a limit.
func pause(ctx context.Context, failures int) error {
	t := time.NewTimer(min(50*time.Millisecond<<min(failures, 10), 10*time.Second))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
