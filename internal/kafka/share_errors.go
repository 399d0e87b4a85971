package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
)

// shareErrors maps what queue groups answer to the codes that share consumers know;
// wireErrors and groupErrors come after it. All texts are about what the client asked for.
var shareErrors = []struct {
	err  error
	code *kerr.Error
}{
	{queue.ErrLeaseExpired, kerr.InvalidRecordState},
	{queue.ErrLeaseUnknown, kerr.InvalidRecordState},
	{queue.ErrAlreadyDone, kerr.InvalidRecordState},
	{queue.ErrHandlingTooLong, kerr.InvalidRecordState},
	{queue.ErrGroupMode, kerr.InvalidRequest},
	{queue.ErrUnknownGroup, kerr.GroupIDNotFound},
	{queue.ErrUnavailable, kerr.CoordinatorNotAvailable},
	{queue.ErrOverloaded, kerr.CoordinatorNotAvailable},
	{queue.ErrOutcomeUnknown, kerr.RequestTimedOut},
	{queue.ErrConflict, kerr.CoordinatorNotAvailable},
	{queue.ErrInvalidSetting, kerr.InvalidConfig},
	{queue.ErrGone, kerr.OffsetOutOfRange},
	{meta.ErrInvalidQueueName, kerr.InvalidGroupID},
	{meta.ErrTooManyQueueGroups, kerr.PolicyViolation},
	{meta.ErrUnknownTopic, kerr.UnknownTopicOrPartition},
	{meta.ErrInvalidConfig, kerr.InvalidConfig},
	{master.ErrUnavailable, kerr.CoordinatorNotAvailable},
}

// shareCode is the wire code and text of an error about a share group; 0 and nil for
// none.
func shareCode(err error) (int16, *string) {
	if err == nil {
		return 0, nil
	}
	var own refusal
	if errors.As(err, &own) {
		return own.code.Code, &own.text
	}
	for _, e := range shareErrors {
		if errors.Is(err, e.err) {
			text := err.Error()
			return e.code.Code, &text
		}
	}
	if known(err) {
		return errorCode(err), errorMessage(err)
	}
	code := groupCode(err)
	if code == kerr.UnknownServerError.Code {
		return code, &kerr.UnknownServerError.Description
	}
	return code, groupMessage(err)
}
