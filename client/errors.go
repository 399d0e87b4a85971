package tube

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// sentinel is a reason that errors are compared with.
type sentinel struct {
	reason tubev1.QueueErrorDetail_Reason
	text   string
}

func (s *sentinel) Error() string { return s.text }

// What a server may answer; for errors.Is. Those that pass are repeated before they
// are returned.
var (
	ErrInvalid         error = &sentinel{tubev1.QueueErrorDetail_INVALID_FIELD, "invalid request"}
	ErrUnknownTopic    error = &sentinel{tubev1.QueueErrorDetail_UNKNOWN_TOPIC, "unknown topic"}
	ErrUnknownGroup    error = &sentinel{tubev1.QueueErrorDetail_UNKNOWN_GROUP, "unknown queue group"}
	ErrGroupExists     error = &sentinel{tubev1.QueueErrorDetail_GROUP_EXISTS, "queue group exists"}
	ErrGroupMode       error = &sentinel{tubev1.QueueErrorDetail_GROUP_MODE, "not in a group of this mode"}
	ErrLeaseUnknown    error = &sentinel{tubev1.QueueErrorDetail_LEASE_UNKNOWN, "lease unknown"}
	ErrLeaseExpired    error = &sentinel{tubev1.QueueErrorDetail_LEASE_EXPIRED, "lease expired"} // it ended and the message went on without it
	ErrAlreadyDone     error = &sentinel{tubev1.QueueErrorDetail_ALREADY_DONE, "message is done with already"}
	ErrHandlingTooLong error = &sentinel{tubev1.QueueErrorDetail_HANDLING_TOO_LONG, "longest handling time exceeded"}
	ErrMessageTooLarge error = &sentinel{tubev1.QueueErrorDetail_MESSAGE_TOO_LARGE, "message too large"}
	ErrDelayOutOfRange error = &sentinel{tubev1.QueueErrorDetail_DELAY_OUT_OF_RANGE, "time has passed or is too far ahead"}
	ErrUnavailable     error = &sentinel{tubev1.QueueErrorDetail_UNAVAILABLE, "no leader, or it does not answer"}
	ErrOverloaded      error = &sentinel{tubev1.QueueErrorDetail_OVERLOADED, "overloaded"}
	ErrOutcomeUnknown  error = &sentinel{tubev1.QueueErrorDetail_OUTCOME_UNKNOWN, "it is not known whether it was done"}
)

// ErrClosed: the queue, producer or consumer is closed.
var ErrClosed = errors.New("closed")

// Error is what a server refused, or that it could not be reached.
type Error struct {
	Op      string // what was being done, for example `send to "orders"`
	Code    string // Connect's name, for example "not_found"
	Reason  string // the contract's name, for example "UNKNOWN_TOPIC"; empty: none was given
	Field   string // of the request, for example "messages[3].delay"
	Message string

	reason tubev1.QueueErrorDetail_Reason
	known  bool // the server gave a reason
	cause  error
}

func (e *Error) Error() string { return e.Op + ": " + e.Message }

// Unwrap gives what the transport said.
func (e *Error) Unwrap() error { return e.cause }

// Is compares with the sentinels of this package.
func (e *Error) Is(target error) bool {
	s, ok := target.(*sentinel)
	return ok && e.known && s.reason == e.reason
}

// failure makes an Error of what a call returned.
func failure(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: op, Code: connect.CodeOf(err).String(), Message: err.Error(), cause: err}
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return e
	}
	for _, d := range ce.Details() {
		if m, err := d.Value(); err == nil {
			if q, ok := m.(*tubev1.QueueErrorDetail); ok {
				e.reason, e.known, e.Field, e.Message = q.Reason, true, q.Field, ce.Message()
				e.Reason = named(q.Reason)
			}
		}
	}
	return e
}

// itemFailure makes an Error of what was said of one of several; nil for none.
func itemFailure(op string, m *tubev1.ItemError) error {
	if m == nil {
		return nil
	}
	return &Error{Op: op, Code: m.Code, Reason: named(m.Reason), Message: m.Message, reason: m.Reason, known: true}
}

func named(r tubev1.QueueErrorDetail_Reason) string {
	if r == tubev1.QueueErrorDetail_REASON_UNSPECIFIED {
		return ""
	}
	return r.String()
}

// Retriable says whether the same may well succeed later: no leader at present, a node
// that is overloaded or cannot be reached, an outcome that is not known.
func Retriable(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return errors.Is(err, context.DeadlineExceeded)
	}
	switch e.reason {
	case tubev1.QueueErrorDetail_UNAVAILABLE, tubev1.QueueErrorDetail_OVERLOADED, tubev1.QueueErrorDetail_OUTCOME_UNKNOWN,
		tubev1.QueueErrorDetail_CONFLICT, tubev1.QueueErrorDetail_SLOW_CONSUMER:
		return true
	case tubev1.QueueErrorDetail_REASON_UNSPECIFIED: // the transport's, or a mistake of the server's
	default:
		return false
	}
	switch e.Code {
	case "invalid_argument", "not_found", "already_exists", "permission_denied", "unauthenticated", "failed_precondition", "out_of_range", "unimplemented":
		return false
	}
	return true
}

// refusal is a local check that failed, as the server would have said it.
func refusal(op string, reason error, format string, args ...any) error {
	s, ok := reason.(*sentinel)
	if !ok {
		panic("refusal needs a sentinel")
	}
	return &Error{Op: op, Code: "invalid_argument", Reason: named(s.reason), Message: fmt.Sprintf(format, args...), reason: s.reason, known: true}
}

// cut shortens a text to at most n bytes of valid UTF-8, which protobuf demands.
func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}
