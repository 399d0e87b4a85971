package tube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// Header of a message whose value is not text, or one of several of a name.
type Header struct {
	Name  string
	Value []byte
}

// Message is one that a queue handed out.
type Message struct {
	ID         string // given by who sent it; may be empty
	Key        []byte // nil: none
	Value      []byte
	Headers    map[string]string // those that are text; the last one of a name
	RawHeaders []Header          // the others, and all of a name that occurs more than once
	Topic      string
	Partition  int32
	Offset     int64
	Attempt    int       // 1 for the first delivery; it counts failures
	Time       time.Time // when it was sent
	LeaseUntil time.Time // by the server's clock, when it was handed out; zero: the group confirms by itself

	hand hand
}

// hand is who holds a message: what was received by hand, or Run.
type hand interface {
	queue() *QueueGroup
	leaseID() string
	settled() // by the caller
}

// byHand holds what Receive returned.
type byHand struct {
	q     *QueueGroup
	lease string
}

func (h *byHand) queue() *QueueGroup { return h.q }
func (h *byHand) leaseID() string    { return h.lease }
func (h *byHand) settled()           {}

func newMessage(m *tubev1.QueueMessage) *Message {
	out := &Message{
		ID: m.Id, Key: m.Key, Value: m.Value, Headers: m.Headers, Topic: m.Topic, Partition: m.Partition, Offset: m.Offset,
		Attempt: int(m.Attempt), Time: m.Time.AsTime(),
	}
	if m.LeaseUntil != nil {
		out.LeaseUntil = m.LeaseUntil.AsTime()
	}
	for _, h := range m.RawHeaders {
		out.RawHeaders = append(out.RawHeaders, Header{h.Name, h.Value})
	}
	return out
}

// place says which message it is.
func (m *Message) place() place { return place{m.Topic, m.Partition, m.Offset, m.Time.UnixMilli()} }

// place of a message. The time tells it from another one at the same offset of a topic
// that was deleted and made anew.
type place struct {
	topic     string
	partition int32
	offset    int64
	millis    int64
}

// String names the message for errors and logs.
func (m *Message) String() string {
	if m.ID != "" {
		return fmt.Sprintf("%s/%d at %d (id %s)", m.Topic, m.Partition, m.Offset, m.ID)
	}
	return fmt.Sprintf("%s/%d at %d", m.Topic, m.Partition, m.Offset)
}

// Ack says that the message is done with. Saying it twice is a success. In a handler
// of Run it is for what must be confirmed before the handler returns; what it returns
// does not count then. Errors: ErrLeaseExpired, if the message was handed out again
// meanwhile; what Retriable is true for, after the CallTimeout.
func (m *Message) Ack(ctx context.Context) error { return m.settle(ctx, verdict{kind: acked}) }

// Nack says that handling failed, as a handler's error does: RetryAfter, RetryAt and
// Dead in it count, and any other error (or nil) means the group's back-off.
func (m *Message) Nack(ctx context.Context, why error) error {
	v := verdict{kind: failed}
	if why != nil {
		v = verdictOf(why)
	}
	return m.settle(ctx, v)
}

// Release gives the message back: it comes again at once, to any member, uncounted.
func (m *Message) Release(ctx context.Context) error { return m.settle(ctx, verdict{kind: released}) }

// Extend keeps the message in hand for d from now on; 0: for the group's lease. Run
// does so by itself. Errors: ErrHandlingTooLong beyond the group's max_handling,
// ErrLeaseExpired.
func (m *Message) Extend(ctx context.Context, d time.Duration) error {
	if m.hand == nil {
		return errNotReceived
	}
	q, lease := m.hand.queue(), m.hand.leaseID()
	if lease == "" {
		return nil
	}
	req := &tubev1.ExtendRequest{Group: q.group, LeaseIds: []string{lease}}
	if d > 0 {
		req.Duration = durationpb.New(d)
	}
	return q.tell(ctx, "extend "+m.String(), func(ctx context.Context, s *server) ([]*tubev1.LeaseResult, error) {
		resp, err := s.queue.Extend(ctx, connect.NewRequest(req))
		return resultsOf(resp, err)
	})
}

// Complete acknowledges the message and sends others as one step: all of it or
// nothing. Errors: those of Ack and of Producer.Send. If the outcome is not known
// (ErrOutcomeUnknown) it may have been done.
func (m *Message) Complete(ctx context.Context, send ...*Outgoing) error {
	if m.hand == nil {
		return errNotReceived
	}
	q, op := m.hand.queue(), "complete "+m.String()
	req := &tubev1.CompleteRequest{Group: q.group, LeaseIds: []string{m.hand.leaseID()}}
	for i, o := range send {
		if err := o.check(); err != nil {
			return fmt.Errorf("message %d to be sent: %w", i, err)
		}
		// One request each keeps their order, whatever the topics.
		req.Send = append(req.Send, &tubev1.SendRequest{Topic: o.Topic, Messages: []*tubev1.OutgoingMessage{o.wire(time.Now(), time.Now())}})
	}
	ctx, cancel := context.WithTimeout(ctx, q.cfg.timeout)
	defer cancel()
	srv, at := q.servers.now()
	resp, err := srv.queue.Complete(ctx, connect.NewRequest(req))
	if err != nil { // not repeated: the first one may have been done
		if err = failure(op, err); Retriable(err) {
			q.servers.failed(at)
		}
		return err
	}
	for _, r := range resp.Msg.Results {
		if err := itemFailure(op, r.Error); err != nil {
			return err
		}
	}
	m.hand.settled()
	for _, s := range resp.Msg.Sent {
		for _, r := range s.Results {
			if err := itemFailure(op, r.Error); err != nil {
				return err
			}
		}
	}
	return nil
}

var errNotReceived = errors.New("the message was not received from a queue")

// settle says by a call of its own what becomes of the message.
func (m *Message) settle(ctx context.Context, v verdict) error {
	if m.hand == nil {
		return errNotReceived
	}
	q, lease := m.hand.queue(), m.hand.leaseID()
	if lease == "" { // the group confirms by itself
		m.hand.settled()
		return nil
	}
	err := q.tell(ctx, v.verb()+" "+m.String(), func(ctx context.Context, s *server) ([]*tubev1.LeaseResult, error) {
		return q.settleCall(ctx, s, lease, v)
	})
	if err == nil {
		m.hand.settled()
	}
	return err
}

func (v verdict) verb() string {
	return [...]string{acked: "acknowledge", failed: "nack", released: "release", dead: "set aside"}[v.kind]
}

// settleCall is one try.
func (q *QueueGroup) settleCall(ctx context.Context, s *server, lease string, v verdict) ([]*tubev1.LeaseResult, error) {
	leases := []string{lease}
	switch v.kind {
	case acked:
		resp, err := s.queue.Acknowledge(ctx, connect.NewRequest(&tubev1.AcknowledgeRequest{Group: q.group, LeaseIds: leases}))
		return resultsOf(resp, err)
	case released:
		req := &tubev1.ReleaseRequest{Group: q.group, LeaseIds: leases}
		if v.delay > 0 {
			req.Delay = durationpb.New(min(v.delay, maxDelay))
		}
		resp, err := s.queue.Release(ctx, connect.NewRequest(req))
		return resultsOf(resp, err)
	}
	resp, err := s.queue.Nack(ctx, connect.NewRequest(&tubev1.NackRequest{Group: q.group, Entries: []*tubev1.NackEntry{nackEntry(lease, v, time.Now())}}))
	return resultsOf(resp, err)
}

// maxReason bytes of a failure's text are sent; the server keeps no more.
const maxReason = 1024

// nackEntry says it of a failed or dead message. A time goes as a delay from now on, so
// that it does not matter whether the server's clock is ours.
func nackEntry(lease string, v verdict, now time.Time) *tubev1.NackEntry {
	e := &tubev1.NackEntry{LeaseId: lease, Reason: cut(v.text, maxReason), Dead: v.kind == dead}
	if v.timed && v.kind == failed {
		delay := v.delay
		if !v.at.IsZero() {
			delay = v.at.Sub(now)
		}
		e.When = &tubev1.NackEntry_Delay{Delay: durationpb.New(min(max(delay, 0), maxDelay))}
	}
	return e
}

func resultsOf[T any](resp *connect.Response[T], err error) ([]*tubev1.LeaseResult, error) {
	if err != nil {
		return nil, err
	}
	return any(resp.Msg).(interface{ GetResults() []*tubev1.LeaseResult }).GetResults(), nil
}

// tell says something of one lease, and again while that fails for a reason that passes.
func (q *QueueGroup) tell(ctx context.Context, op string, f func(context.Context, *server) ([]*tubev1.LeaseResult, error)) error {
	ctx, cancel := context.WithTimeout(ctx, q.cfg.timeout)
	defer cancel()
	for wait := (backoff{}); ; {
		results, err := ask(ctx, q.servers, op, f)
		if err != nil {
			return err
		}
		if len(results) != 1 {
			return &Error{Op: op, Code: "internal", Message: fmt.Sprintf("one lease has %d answers", len(results))}
		}
		err = itemFailure(op, results[0].Error)
		if err == nil || !Retriable(err) || wait.sleep(ctx) != nil {
			return err
		}
	}
}
