package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"connectrpc.com/connect"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// Exit codes. They are part of the command line's contract.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2 // the command line or the configuration is wrong
	exitNotFound    = 3 // what was named does not exist
	exitUnavailable = 4 // no node answers, or not in time: trying again may help
	exitConflict    = 5 // it exists already, is in use, or things are not such that it can be done
	exitUnhealthy   = 6 // the question was answered, and the answer is that help is needed
)

// failure is an error as the user is told: what happened, what to do, exit code.
type failure struct {
	code int
	text string
	hint string
}

func (f *failure) Error() string { return f.text }

func (f *failure) message() string {
	var b strings.Builder
	fmt.Fprintf(&b, "tube: %s\n", f.text)
	if f.hint != "" {
		fmt.Fprintf(&b, "      %s\n", strings.ReplaceAll(f.hint, "\n", "\n      "))
	}
	return b.String()
}

func usage(hint, format string, args ...any) error {
	return &failure{exitUsage, fmt.Sprintf(format, args...), hint}
}

func notFound(hint, format string, args ...any) error {
	return &failure{exitNotFound, fmt.Sprintf(format, args...), hint}
}

func unavailable(hint, format string, args ...any) error {
	return &failure{exitUnavailable, fmt.Sprintf(format, args...), hint}
}

func conflict(hint, format string, args ...any) error {
	return &failure{exitConflict, fmt.Sprintf(format, args...), hint}
}

// kafkaCodes gives errors of the Kafka protocol their exit code and a way on.
// What is not here is exitFailed, or exitUnavailable if it is retriable.
var kafkaCodes = map[int16]struct {
	code int
	hint string
}{
	kerr.UnknownTopicOrPartition.Code: {exitNotFound, "see: tube topic list"},
	kerr.UnknownTopicID.Code:          {exitNotFound, "see: tube topic list"},
	kerr.GroupIDNotFound.Code:         {exitNotFound, "see: tube group list"},
	kerr.TopicAlreadyExists.Code:      {exitConflict, "see: tube topic describe"},
	kerr.NonEmptyGroup.Code:           {exitConflict, "stop the group's members first; tube group describe names them"},
	kerr.UnknownMemberID.Code:         {exitConflict, "the group has members: stop them first; tube group describe names them"},
	kerr.RebalanceInProgress.Code:     {exitConflict, "the group has members: stop them first; tube group describe names them"},
	kerr.InvalidTopicException.Code:   {exitUsage, "a topic's name has 1 to 249 of a–z, A–Z, 0–9, '.', '_' and '-'"},
	kerr.InvalidPartitions.Code:       {exitUsage, "partitions can be added, never taken away"},
	kerr.InvalidReplicationFactor.Code: {exitUsage,
		"there must be at least as many brokers as replicas; see: tube cluster nodes"},
	kerr.InvalidConfig.Code:   {exitUsage, "the topic settings are in docs/topic-settings.md"},
	kerr.MessageTooLarge.Code: {exitFailed, "the topic's max.message.bytes is the limit: tube topic alter TOPIC --config max.message.bytes=N"},
	kerr.PolicyViolation.Code: {exitFailed, ""},
}

// queueHints are ways on from what the queue services refuse.
var queueHints = map[tubev1.QueueErrorDetail_Reason]string{
	tubev1.QueueErrorDetail_UNKNOWN_GROUP:      "see: tube queue list",
	tubev1.QueueErrorDetail_UNKNOWN_TOPIC:      "see: tube topic list",
	tubev1.QueueErrorDetail_GROUP_EXISTS:       "see: tube queue describe",
	tubev1.QueueErrorDetail_UNKNOWN_MESSAGE:    "see: tube queue delayed TOPIC, or tube message trace",
	tubev1.QueueErrorDetail_DELAY_OUT_OF_RANGE: "a delay can be from now to a year ahead",
	tubev1.QueueErrorDetail_FILTER_INVALID:     "a filter is CEL over key, headers, timestamp, size, topic, partition and offset; see docs/queues.md",
	tubev1.QueueErrorDetail_UNAVAILABLE:        "this may pass: try again; tube cluster health says what is wrong",
	tubev1.QueueErrorDetail_OVERLOADED:         "this may pass: try again",
	tubev1.QueueErrorDetail_OUTCOME_UNKNOWN:    "it may have been done: look before doing it again, or send with --id to a topic with tube.dedupe.window",
	tubev1.QueueErrorDetail_CONFLICT:           "look at what it is now and try again",
}

// queueReason is what the queue services say to a program.
func queueReason(err *connect.Error) tubev1.QueueErrorDetail_Reason {
	for _, d := range err.Details() {
		if v, err := d.Value(); err == nil {
			if q, ok := v.(*tubev1.QueueErrorDetail); ok {
				return q.Reason
			}
		}
	}
	return tubev1.QueueErrorDetail_REASON_UNSPECIFIED
}

// explain turns any error into what the user is told.
func explain(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		if text := err.Error(); text != f.text {
			return &failure{f.code, text, f.hint}
		}
		return f
	}
	var k *kerr.Error
	var op *net.OpError
	var rpc *connect.Error
	switch {
	case errors.Is(err, context.Canceled):
		return &failure{exitFailed, "interrupted", ""}
	case errors.As(err, &k):
		out := &failure{code: exitFailed, text: plainKafka(err, k)}
		if row, ok := kafkaCodes[k.Code]; ok {
			out.code, out.hint = row.code, row.hint
		} else if k.Retriable {
			out.code, out.hint = exitUnavailable, "this may pass: try again"
		}
		return out
	case errors.As(err, &rpc):
		out := &failure{exitFailed, rpc.Message(), ""}
		switch rpc.Code() {
		case connect.CodeDeadlineExceeded:
			out = &failure{exitUnavailable, "no answer in time: " + rpc.Message(), "--timeout sets how long to wait; --http may name several nodes, of which one that is ready is asked"}
		case connect.CodeUnavailable, connect.CodeResourceExhausted:
			out.code = exitUnavailable
		case connect.CodeNotFound:
			out.code, out.hint = exitNotFound, "see: tube topic list, tube cluster nodes"
		case connect.CodeInvalidArgument:
			out.code = exitUsage
		case connect.CodeFailedPrecondition, connect.CodeAlreadyExists, connect.CodeAborted:
			out.code = exitConflict
		case connect.CodeUnimplemented:
			out.hint = "the node that answers is older than this command"
		}
		if hint := queueHints[queueReason(rpc)]; hint != "" {
			out.hint = hint
		}
		return out
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrRecordTimeout):
		return &failure{exitUnavailable, "no answer in time: " + err.Error(), "--timeout sets how long to wait"}
	case errors.As(err, &op):
		return &failure{exitUnavailable, err.Error(), ""}
	}
	return &failure{exitFailed, err.Error(), ""}
}

// plainKafka says a protocol error in words, with its name for searching.
func plainKafka(err error, k *kerr.Error) string {
	text := strings.Replace(err.Error(), k.Error(), strings.TrimSuffix(k.Description, ".")+" ("+k.Message+")", 1)
	return strings.TrimSpace(text)
}

// serverSays wraps an error with the message that the node sent along.
func serverSays(err error, message string) error {
	if err == nil || message == "" {
		return err
	}
	var k *kerr.Error
	if !errors.As(err, &k) {
		return fmt.Errorf("%s: %w", message, err)
	}
	out := explain(k)
	return &failure{out.code, message + " (" + k.Message + ")", out.hint}
}
