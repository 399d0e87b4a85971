package tube

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"maps"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// Bounds of a message, as the server has them.
const (
	maxIDBytes = 256
	maxHeaders = 1000
	maxDelay   = 365 * 24 * time.Hour
	// maxMessageBytes of key, value and headers: a call has 16 MiB. The topic's
	// max.message.bytes is lower by default.
	maxMessageBytes = 15 << 20
)

// Outgoing is a message to be sent.
type Outgoing struct {
	Topic string // empty: the producer's ToTopic
	Value []byte
	Key   []byte // messages of the same key go to the same partition; nil: anywhere
	// ID given by the business, up to 256 bytes; empty: the producer makes one up. A
	// topic with tube.dedupe.window stores each id once.
	ID         string
	Headers    map[string]string // texts
	RawHeaders []Header          // what is not text, or of which several have one name
	// Delay or At: not handed out before that, up to a year ahead. Both are zero: at once.
	Delay time.Duration
	At    time.Time
}

// Result says where a message is stored.
type Result struct {
	Topic     string
	Partition int32
	Offset    int64
	ID        string
	Duplicate bool // a message of this ID was there already: the place is its
}

// check refuses what the server would refuse, before others wait behind it.
func (o *Outgoing) check() error {
	const op = "send"
	switch {
	case o == nil:
		return refusal(op, ErrInvalid, "the message is nil")
	case o.Topic == "":
		return refusal(op, ErrInvalid, "the message has no topic")
	case len(o.ID) > maxIDBytes:
		return refusal(op, ErrInvalid, "the id has %d bytes, %d are allowed", len(o.ID), maxIDBytes)
	case !utf8.ValidString(o.ID) || !utf8.ValidString(o.Topic):
		return refusal(op, ErrInvalid, "the topic or the id is not UTF-8")
	case len(o.Headers)+len(o.RawHeaders) > maxHeaders:
		return refusal(op, ErrInvalid, "%d headers, %d are allowed", len(o.Headers)+len(o.RawHeaders), maxHeaders)
	case o.size() > maxMessageBytes:
		return refusal(op, ErrMessageTooLarge, "%d bytes, %d are the most that a call can have", o.size(), maxMessageBytes)
	case o.Delay < 0 || o.Delay > maxDelay || o.Delay > 0 && !o.At.IsZero():
		return refusal(op, ErrDelayOutOfRange, "a delay of %v; 0 to a year can be, and no time beside it", o.Delay)
	}
	if d := time.Until(o.At); !o.At.IsZero() && (d > maxDelay || d < -10*time.Second) {
		return refusal(op, ErrDelayOutOfRange, "to be delivered at %s, which has passed or is more than a year ahead", o.At.Format(time.RFC3339))
	}
	for k, v := range o.Headers {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return refusal(op, ErrInvalid, "header %q is not UTF-8; put it into RawHeaders", k)
		}
	}
	for _, h := range o.RawHeaders {
		if !utf8.ValidString(h.Name) {
			return refusal(op, ErrInvalid, "the name of header %q is not UTF-8", h.Name)
		}
	}
	return nil
}

// size in bytes, about.
func (o *Outgoing) size() int {
	n := 64 + len(o.Key) + len(o.Value) + len(o.ID) + len(o.Topic)
	for k, v := range o.Headers {
		n += 8 + len(k) + len(v)
	}
	for _, h := range o.RawHeaders {
		n += 8 + len(h.Name) + len(h.Value)
	}
	return n
}

// wire is the message as a server takes it, of one that was given at a certain time. A
// delay runs from then on, also while the message waits to be sent.
func (o *Outgoing) wire(given, now time.Time) *tubev1.OutgoingMessage {
	m := &tubev1.OutgoingMessage{Value: o.Value, Key: o.Key, Id: o.ID, Headers: o.Headers}
	for _, h := range o.RawHeaders {
		m.RawHeaders = append(m.RawHeaders, &tubev1.RawHeader{Name: h.Name, Value: h.Value})
	}
	switch left := o.Delay - now.Sub(given); {
	case o.Delay > 0 && left > 0:
		m.When = &tubev1.OutgoingMessage_Delay{Delay: durationpb.New(left)}
	case !o.At.IsZero() && o.At.After(now):
		m.When = &tubev1.OutgoingMessage_DeliverAt{DeliverAt: timestamppb.New(o.At)}
	}
	return m
}

// traced puts the traceparent of ctx into o, unless it has one. The map of headers is
// the caller's and stays as it is.
func (o *Outgoing) traced(ctx context.Context) {
	tp := Traceparent(ctx)
	if tp == "" || o.Headers[TraceHeader] != "" {
		return
	}
	headers := maps.Clone(o.Headers)
	if headers == nil {
		headers = map[string]string{}
	}
	headers[TraceHeader] = tp
	o.Headers = headers
}

// ids makes message ids up: 96 random bits for the producer, and a count.
type ids struct {
	prefix string
	last   atomic.Uint64
}

func newIDs() *ids {
	var b [12]byte
	_, _ = rand.Read(b[:]) // it does not fail
	return &ids{prefix: base64.RawURLEncoding.EncodeToString(b[:]) + "-"}
}

func (i *ids) next() string { return i.prefix + strconv.FormatUint(i.last.Add(1), 36) }

// NewID is a new message id, unique for all practical purposes: for messages whose id
// must be known before they are given to a producer.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it does not fail
	return base64.RawURLEncoding.EncodeToString(b[:])
}
