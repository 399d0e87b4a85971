package node

import (
	"errors"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	peerv1 "github.com/tube-mq/tube/proto/tube/peer/v1"
)

// queueFailures are the errors that nodes tell each other about queues, by number from
// 1. Numbers are never given again. An error that is several of them goes by the first
// in this order: what was done or not comes before why.
var queueFailures = []error{
	queue.ErrUnavailable, queue.ErrOutcomeUnknown, queue.ErrOverloaded, queue.ErrUnknownGroup,
	queue.ErrLeaseExpired, queue.ErrLeaseUnknown, queue.ErrAlreadyDone, queue.ErrHandlingTooLong,
	queue.ErrMessageTooLarge, queue.ErrGroupMode, queue.ErrUnknownMessage, queue.ErrConflict, queue.ErrInvalidSetting,
	queue.ErrNotDelayed, queue.ErrDelayTooLong, queue.ErrTooManyDelayed, queue.ErrTooManyMembers, queue.ErrTooManyIntents,
}

// queueFailureOther is the number of an error that the other side does not know.
const queueFailureOther = 100

func failureToPB(err error) *peerv1.QueueFailure {
	if err == nil {
		return nil
	}
	kind := queueFailureOther
	if i := slices.IndexFunc(queueFailures, func(s error) bool { return errors.Is(err, s) }); i >= 0 {
		kind = i + 1
	}
	return &peerv1.QueueFailure{Kind: int32(kind), Text: err.Error()}
}

// told is an error in another node's words.
type told struct {
	text string
	kind error
}

func (t *told) Error() string { return t.text }
func (t *told) Unwrap() error { return t.kind }

func failureFromPB(f *peerv1.QueueFailure) error {
	if f.GetKind() == 0 {
		return nil
	}
	kind := queue.ErrOutcomeUnknown // whatever it was
	if i := int(f.GetKind()) - 1; i >= 0 && i < len(queueFailures) {
		kind = queueFailures[i]
	}
	return &told{f.GetText(), kind}
}

func queuePartitionToPB(tp record.TopicPartition) *peerv1.QueuePartition {
	return &peerv1.QueuePartition{Topic: tp.Topic[:], Partition: int32(tp.Partition)}
}

func queuePartitionFromPB(p *peerv1.QueuePartition) record.TopicPartition {
	tp := record.TopicPartition{Partition: record.Partition(p.GetPartition())}
	copy(tp.Topic[:], p.GetTopic())
	return tp
}

func headersToPB(hs []queue.Header) []*peerv1.QueueHeader {
	out := make([]*peerv1.QueueHeader, len(hs))
	for i := range hs {
		out[i] = &peerv1.QueueHeader{Key: hs[i].Key, Value: hs[i].Value}
	}
	return out
}

func headersFromPB(hs []*peerv1.QueueHeader) []queue.Header {
	out := make([]queue.Header, len(hs))
	for i, h := range hs {
		out[i] = queue.Header{Key: h.GetKey(), Value: h.GetValue()}
	}
	return out
}

func outgoingToPB(ms []queue.Outgoing) []*peerv1.QueueOutgoing {
	out := make([]*peerv1.QueueOutgoing, len(ms))
	for i := range ms {
		m := &ms[i]
		out[i] = &peerv1.QueueOutgoing{Key: m.Key, KeyNull: m.KeyNull, Value: m.Value, Id: m.ID, Headers: headersToPB(m.Headers), DeliverAtMillis: m.DeliverAtMillis, OnceId: m.OnceID, DelayMillis: m.Delay.Milliseconds()}
	}
	return out
}

func outgoingFromPB(ms []*peerv1.QueueOutgoing) []queue.Outgoing {
	out := make([]queue.Outgoing, len(ms))
	for i, m := range ms {
		out[i] = queue.Outgoing{Key: m.GetKey(), KeyNull: m.GetKeyNull(), Value: m.GetValue(), ID: m.GetId(), Headers: headersFromPB(m.GetHeaders()), DeliverAtMillis: m.GetDeliverAtMillis(), OnceID: m.GetOnceId(), Delay: time.Duration(m.GetDelayMillis()) * time.Millisecond}
	}
	return out
}

func leaseToPB(l queue.Lease) *peerv1.QueueLease {
	return &peerv1.QueueLease{Partition: int32(l.Partition), Offset: int64(l.Offset), Attempt: int32(l.Attempt), Nonce: l.Nonce, Cursor: l.Cursor, Generation: l.Generation}
}

func leaseFromPB(l *peerv1.QueueLease) queue.Lease {
	return queue.Lease{Partition: record.Partition(l.GetPartition()), Offset: record.Offset(l.GetOffset()), Attempt: int(l.GetAttempt()), Nonce: l.GetNonce(), Cursor: l.GetCursor(), Generation: l.GetGeneration()}
}

func memberToPB(m queue.Member) *peerv1.QueueMember {
	return &peerv1.QueueMember{Id: m.ID, Session: m.Session, Node: int32(m.Node), Address: m.Address, CanBeAsked: m.CanBeAsked}
}

func memberFromPB(m *peerv1.QueueMember) queue.Member {
	return queue.Member{ID: m.GetId(), Session: m.GetSession(), Node: record.NodeID(m.GetNode()), Address: m.GetAddress(), CanBeAsked: m.GetCanBeAsked()}
}

func deliveriesToPB(ds []queue.Delivery) []*peerv1.QueueDelivery {
	out := make([]*peerv1.QueueDelivery, len(ds))
	for i := range ds {
		d := &ds[i]
		out[i] = &peerv1.QueueDelivery{
			Lease: leaseToPB(d.Lease), Id: d.ID, Key: d.Key, KeyNull: d.KeyNull, Value: d.Value, Headers: headersToPB(d.Headers),
			TimestampMillis: d.TimestampMillis, UntilMillis: d.UntilMillis, Alone: d.Alone,
		}
	}
	return out
}

func deliveriesFromPB(topic string, ds []*peerv1.QueueDelivery) []queue.Delivery {
	out := make([]queue.Delivery, len(ds))
	for i, d := range ds {
		out[i] = queue.Delivery{
			Lease: leaseFromPB(d.GetLease()), Topic: topic, ID: d.GetId(), Key: d.GetKey(), KeyNull: d.GetKeyNull(), Value: d.GetValue(),
			Headers: headersFromPB(d.GetHeaders()), TimestampMillis: d.GetTimestampMillis(), UntilMillis: d.GetUntilMillis(), Alone: d.GetAlone(),
		}
	}
	return out
}

func settlementsToPB(ss []queue.Settlement) []*peerv1.QueueSettlement {
	out := make([]*peerv1.QueueSettlement, len(ss))
	for i, s := range ss {
		delay := s.Delay.Milliseconds()
		if s.Delay < 0 {
			delay = -1
		}
		out[i] = &peerv1.QueueSettlement{Lease: leaseToPB(s.Lease), Verdict: uint32(s.Verdict), DelayMillis: delay, Reason: s.Reason}
	}
	return out
}

func settlementsFromPB(ss []*peerv1.QueueSettlement) []queue.Settlement {
	out := make([]queue.Settlement, len(ss))
	for i, s := range ss {
		out[i] = queue.Settlement{Lease: leaseFromPB(s.GetLease()), Verdict: queue.Verdict(s.GetVerdict()), Delay: -1, Reason: s.GetReason()}
		if ms := s.GetDelayMillis(); ms >= 0 {
			out[i].Delay = time.Duration(ms) * time.Millisecond
		}
	}
	return out
}

// sentToPB and sentFromPB leave the partition out: the caller knows it.
func sentToPB(ss []queue.Sent) []*peerv1.QueueSent {
	out := make([]*peerv1.QueueSent, len(ss))
	for i := range ss {
		out[i] = &peerv1.QueueSent{Offset: int64(ss[i].Offset), Duplicate: ss[i].Duplicate, Failure: failureToPB(ss[i].Err), Id: ss[i].ID}
	}
	return out
}

func sentFromPB(p record.Partition, ss []*peerv1.QueueSent) []queue.Sent {
	out := make([]queue.Sent, len(ss))
	for i, s := range ss {
		out[i] = queue.Sent{Partition: p, Offset: record.Offset(s.GetOffset()), Duplicate: s.GetDuplicate(), Err: failureFromPB(s.GetFailure()), ID: s.GetId()}
	}
	return out
}

// resultsToPB is empty if all succeeded.
func resultsToPB(errs []error) []*peerv1.QueueFailure {
	some := false
	out := make([]*peerv1.QueueFailure, len(errs))
	for i, err := range errs {
		if out[i] = failureToPB(err); err == nil {
			out[i] = &peerv1.QueueFailure{}
		}
		some = some || err != nil
	}
	if !some {
		return nil
	}
	return out
}

func resultsFromPB(n int, fs []*peerv1.QueueFailure) []error {
	errs := make([]error, n)
	for i, f := range fs {
		if i < n {
			errs[i] = failureFromPB(f)
		}
	}
	return errs
}
