package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/record"
)

// wireErrors maps what partitions answer to the codes that clients know (see
// groupErrors for groups). The client is told the text of the error itself only
// where it is about the client's own bytes; else it could say what files the
// node has.
var wireErrors = []struct {
	err  error
	code *kerr.Error
	tell bool
}{
	{broker.ErrNotLeader, kerr.NotLeaderForPartition, false},
	{broker.ErrUnknownPartition, kerr.UnknownTopicOrPartition, false},
	{broker.ErrUnknownOutcome, kerr.RequestTimedOut, false},
	{broker.ErrOutOfRange, kerr.OffsetOutOfRange, true},
	{broker.ErrFencedEpoch, kerr.FencedLeaderEpoch, false},
	{broker.ErrUnknownEpoch, kerr.UnknownLeaderEpoch, false},
	{broker.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber, true},
	{broker.ErrProducerFenced, kerr.InvalidProducerEpoch, true},
	{broker.ErrUnknownProducer, kerr.UnknownProducerID, true},
	{broker.ErrDuplicateSequence, kerr.DuplicateSequenceNumber, true},
	// Both retriable: what the client sent may be right later.
	{broker.ErrDiskFull, kerr.KafkaStorageError, false},
	{broker.ErrStorage, kerr.KafkaStorageError, false},
	{broker.ErrBusy, kerr.RequestTimedOut, false},
	{broker.ErrTimestamp, kerr.InvalidTimestamp, true},
	{broker.ErrStopping, kerr.NotLeaderForPartition, false}, // look elsewhere
	{record.ErrCorrupt, kerr.CorruptMessage, true},
	{record.ErrInvalid, kerr.InvalidRecord, true},
	{record.ErrTooLarge, kerr.MessageTooLarge, true},
	{record.ErrOldMagic, kerr.UnsupportedForMessageFormat, true},
}

// wireError is an error of the door's own that is a code already.
type wireError struct{ code int16 }

func (e wireError) Error() string { return errorName(e.code) }

// errorCode is the wire code of a partition's error; 0 for nil.
func errorCode(err error) int16 {
	if err == nil {
		return 0
	}
	var wire wireError
	if errors.As(err, &wire) {
		return wire.code
	}
	for _, e := range wireErrors {
		if errors.Is(err, e.err) {
			return e.code.Code
		}
	}
	return kerr.UnknownServerError.Code
}

// errorMessage is the text for the client beside a code; nil for none.
func errorMessage(err error) *string {
	if err == nil {
		return nil
	}
	text := kerr.UnknownServerError.Message
	for _, e := range wireErrors {
		if errors.Is(err, e.err) {
			if text = e.err.Error(); e.tell {
				text = err.Error()
			}
			break
		}
	}
	return &text
}

// known reports whether the table has the error. One that it has not is a
// mistake of ours and is logged by who meets it.
func known(err error) bool {
	return err == nil || errorCode(err) != kerr.UnknownServerError.Code
}

// errorName is Kafka's name of a code, for metrics.
func errorName(code int16) string {
	if e := kerr.TypedErrorForCode(code); e != nil {
		return e.Message
	}
	return "NONE"
}
