package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/filter"
	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

type reason = tubev1.QueueErrorDetail_Reason

// queueErrors maps what the backend answers to Connect's codes and to the contract's
// reasons. The sentences are about what the caller asked for, and are told as they are.
var queueErrors = []struct {
	err    error
	code   connect.Code
	reason reason
}{
	{queue.ErrLeaseExpired, connect.CodeFailedPrecondition, tubev1.QueueErrorDetail_LEASE_EXPIRED},
	{queue.ErrLeaseUnknown, connect.CodeNotFound, tubev1.QueueErrorDetail_LEASE_UNKNOWN},
	{queue.ErrAlreadyDone, connect.CodeFailedPrecondition, tubev1.QueueErrorDetail_ALREADY_DONE},
	{queue.ErrHandlingTooLong, connect.CodeFailedPrecondition, tubev1.QueueErrorDetail_HANDLING_TOO_LONG},
	{queue.ErrUnknownGroup, connect.CodeNotFound, tubev1.QueueErrorDetail_UNKNOWN_GROUP},
	{queue.ErrGroupMode, connect.CodeFailedPrecondition, tubev1.QueueErrorDetail_GROUP_MODE},
	{queue.ErrInvalidFilter, connect.CodeInvalidArgument, tubev1.QueueErrorDetail_FILTER_INVALID},
	{queue.ErrInvalidSetting, connect.CodeInvalidArgument, tubev1.QueueErrorDetail_INVALID_FIELD},
	{queue.ErrMessageTooLarge, connect.CodeInvalidArgument, tubev1.QueueErrorDetail_MESSAGE_TOO_LARGE},
	{queue.ErrUnknownMessage, connect.CodeNotFound, tubev1.QueueErrorDetail_UNKNOWN_MESSAGE},
	{queue.ErrNotDelayed, connect.CodeNotFound, tubev1.QueueErrorDetail_UNKNOWN_MESSAGE},
	{queue.ErrGone, connect.CodeNotFound, tubev1.QueueErrorDetail_UNKNOWN_MESSAGE},
	{queue.ErrDelayTooLong, connect.CodeInvalidArgument, tubev1.QueueErrorDetail_DELAY_OUT_OF_RANGE},
	{queue.ErrTooManyDelayed, connect.CodeResourceExhausted, tubev1.QueueErrorDetail_TOO_MANY},
	{queue.ErrTooManyMembers, connect.CodeResourceExhausted, tubev1.QueueErrorDetail_TOO_MANY},
	{queue.ErrTooManyIntents, connect.CodeResourceExhausted, tubev1.QueueErrorDetail_OVERLOADED},
	{queue.ErrConflict, connect.CodeAborted, tubev1.QueueErrorDetail_CONFLICT},
	{queue.ErrOverloaded, connect.CodeResourceExhausted, tubev1.QueueErrorDetail_OVERLOADED},
	{queue.ErrOutcomeUnknown, connect.CodeUnknown, tubev1.QueueErrorDetail_OUTCOME_UNKNOWN},
	{queue.ErrSwapDamaged, connect.CodeUnavailable, tubev1.QueueErrorDetail_UNAVAILABLE}, // the replica is being replaced
	{queue.ErrUnavailable, connect.CodeUnavailable, tubev1.QueueErrorDetail_UNAVAILABLE},
	{meta.ErrUnknownTopic, connect.CodeNotFound, tubev1.QueueErrorDetail_UNKNOWN_TOPIC},
	{meta.ErrQueueGroupExists, connect.CodeAlreadyExists, tubev1.QueueErrorDetail_GROUP_EXISTS},
	{meta.ErrInvalidQueueName, connect.CodeInvalidArgument, tubev1.QueueErrorDetail_INVALID_FIELD},
	{meta.ErrTooManyQueueGroups, connect.CodeResourceExhausted, tubev1.QueueErrorDetail_TOO_MANY},
	{meta.ErrInvalidReplicas, connect.CodeUnavailable, tubev1.QueueErrorDetail_UNAVAILABLE}, // too few brokers for a dead-letter topic
	{meta.ErrInvalidTopicName, connect.CodeInvalidArgument, tubev1.QueueErrorDetail_INVALID_FIELD},
	{errSlow, connect.CodeResourceExhausted, tubev1.QueueErrorDetail_SLOW_CONSUMER},
	{master.ErrUnavailable, connect.CodeUnavailable, tubev1.QueueErrorDetail_UNAVAILABLE},
	{context.DeadlineExceeded, connect.CodeDeadlineExceeded, tubev1.QueueErrorDetail_OUTCOME_UNKNOWN},
	{context.Canceled, connect.CodeCanceled, tubev1.QueueErrorDetail_OUTCOME_UNKNOWN},
}

// classify finds an error's row. ok is false for one that is not in the table.
func classify(err error) (code connect.Code, why reason, ok bool) {
	for _, e := range queueErrors {
		if errors.Is(err, e.err) {
			return e.code, e.reason, true
		}
	}
	return connect.CodeInternal, tubev1.QueueErrorDetail_REASON_UNSPECIFIED, false
}

// queueError makes an error with a detail.
func queueError(code connect.Code, d *tubev1.QueueErrorDetail, err error) *connect.Error {
	out := connect.NewError(code, err)
	if detail, err := connect.NewErrorDetail(d); err == nil { // it always encodes
		out.AddDetail(detail)
	}
	return out
}

// badField refuses a field of a request.
func badField(field, format string, args ...any) error {
	return refusedFor(tubev1.QueueErrorDetail_INVALID_FIELD, field, format, args...)
}

func refusedFor(why reason, field, format string, args ...any) error {
	return queueError(connect.CodeInvalidArgument, &tubev1.QueueErrorDetail{Reason: why, Field: field}, fmt.Errorf(field+": "+format, args...))
}

// errHidden is told instead of what is not in the table.
var errHidden = errors.New("this failed for a reason that is in the node's log")

// toldAs turns what a backend answered to req into what the client is told. One that
// is not in the table is a mistake of ours and is logged.
func toldAs(log *slog.Logger, procedure string, req any, err error) *connect.Error {
	var known *connect.Error
	if errors.As(err, &known) {
		return known
	}
	d := &tubev1.QueueErrorDetail{}
	code, why, ok := classify(err)
	if d.Reason = why; !ok {
		log.Error("a request failed", "request", procedure, "err", err)
		err = errHidden
	}
	if r, ok := req.(interface{ GetGroup() string }); ok {
		d.Group = r.GetGroup()
	}
	if r, ok := req.(interface{ GetTopic() string }); ok {
		d.Topic = r.GetTopic()
	}
	var at *filter.SyntaxError
	if errors.As(err, &at) {
		d.Field, d.Line, d.Column = "filter", int32(at.Line), int32(at.Column)
	}
	return queueError(code, d, err)
}

// callTimeout ends a call while its answer can still be written (see writeTimeout).
const callTimeout = 50 * time.Second

// callTime is how long a call may take: one that waits, so much longer.
func callTime(req any) time.Duration {
	if r, ok := req.(*tubev1.ReceiveRequest); ok {
		return min(max(r.Wait.AsDuration(), 0), maxWait) + callTimeout
	}
	return callTimeout
}

// queueRefusals gives the errors of unary calls their codes and details, and refuses
// requests that did not decode.
func queueRefusals(log *slog.Logger) connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if err := undecoded(req.Any()); err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, callTime(req.Any()))
			defer cancel()
			resp, err := next(ctx, req)
			if err != nil {
				return nil, toldAs(log, req.Spec().Procedure, req.Any(), err)
			}
			return resp, nil
		}
	})
}

// itemError is what one of several is told; nil for none.
func itemError(log *slog.Logger, err error) *tubev1.ItemError {
	if err == nil {
		return nil
	}
	code, why, ok := classify(err)
	if !ok {
		log.Error("a part of a request failed", "err", err)
		err = errHidden
	}
	return &tubev1.ItemError{Code: code.String(), Reason: why, Message: err.Error()}
}
