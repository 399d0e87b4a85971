package node

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	peerv1 "github.com/tube-mq/tube/proto/tube/peer/v1"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// What the leader of a partition tells of its queues, in the contract's words.

// QueueProgress implements peerv1connect.QueuePeerServiceHandler.
func (s queueService) QueueProgress(_ context.Context, req *connect.Request[peerv1.QueueProgressRequest]) (*connect.Response[peerv1.QueueProgressResponse], error) {
	r := &peerv1.QueueProgressResponse{}
	g := s.group(req.Msg.GetGroup(), req.Msg.GetTopic())
	if g == nil {
		r.Failure = failureToPB(queue.ErrUnavailable)
		return connect.NewResponse(r), nil
	}
	t := s.image().Topics[g.Topic]
	for i := range t.Partitions {
		tp := record.TopicPartition{Topic: g.Topic, Partition: record.Partition(i)}
		p, err := s.local.partition(tp)
		if err != nil {
			continue
		}
		es, err := p.QueueExplain(g.ID)
		if err != nil {
			continue // it does not lead
		}
		b, err := p.Bounds()
		if err != nil {
			continue
		}
		sum := &tubev1.QueueProgress{Partition: int32(i), Leader: int32(s.self), Known: true, Floor: int64(b.HighWatermark), End: int64(b.HighWatermark)}
		for _, e := range es {
			addProgress(sum, &e)
			c := causeOf(&e)
			if m, err := p.QueueMessage(e.BlockedBy); err == nil { // not of −1
				c.Key = m.Key
			}
			r.Causes = append(r.Causes, c)
		}
		for _, risk := range p.QueueRisks() {
			if risk.Group == g.ID {
				sum.RetentionUsedPercent = int32(risk.UsedPercent)
				r.Causes = append(r.Causes, riskCause(risk))
			}
		}
		sum.Oldest = oldestOf(p, g)
		r.Partitions = append(r.Partitions, sum)
	}
	return connect.NewResponse(r), nil
}

// oldestOf is when the first message that a group is not done with, and that is due,
// was sent; nil: there is none, or the group is a broadcast group.
func oldestOf(p *broker.Partition, g *meta.QueueGroup) *timestamppb.Timestamp {
	first, ok := p.QueueOldest(g.ID)
	if !ok {
		return nil
	}
	m, err := p.QueueMessage(first)
	if err != nil {
		return nil
	}
	return stamp(m.TimestampMillis)
}

// addProgress adds a cursor's numbers; a broadcast group has one for each member.
func addProgress(sum *tubev1.QueueProgress, e *queue.Explanation) {
	sum.Floor = min(sum.Floor, int64(e.Floor))
	sum.Backlog += e.Backlog
	sum.Ready += e.Ready
	sum.InFlight += e.Leased
	sum.BackingOff += e.Waiting
	sum.Delayed += e.Delayed
	sum.Blocked += e.HeldBack + e.Parked
	sum.Dying += e.Dying
	sum.Lost += e.Lost
	sum.Consumers = max(sum.Consumers, int32(e.Consumers))
	sum.Credit = max(sum.Credit, int64(e.Receivers))
}

var causeKinds = map[string]tubev1.QueueCause_Kind{
	queue.ReasonMoving: tubev1.QueueCause_MOVING, queue.ReasonNothing: tubev1.QueueCause_NOTHING_NEW, queue.ReasonPaused: tubev1.QueueCause_PAUSED,
	queue.ReasonNoConsumer: tubev1.QueueCause_NO_CONSUMER, queue.ReasonNoCredit: tubev1.QueueCause_NO_CREDIT, queue.ReasonLeased: tubev1.QueueCause_ALL_LEASED,
	queue.ReasonInFlight: tubev1.QueueCause_IN_FLIGHT_LIMIT, queue.ReasonRate: tubev1.QueueCause_RATE, queue.ReasonWaiting: tubev1.QueueCause_BACKING_OFF,
	queue.ReasonKey: tubev1.QueueCause_KEY_BLOCKED, queue.ReasonParked: tubev1.QueueCause_KEY_PARKED, queue.ReasonSuspects: tubev1.QueueCause_SUSPECTS, queue.ReasonDeadLetters: tubev1.QueueCause_DEAD_LETTER_STUCK,
	queue.ReasonFilter: tubev1.QueueCause_FILTERED, queue.ReasonFailures: tubev1.QueueCause_DEAD_LETTER_STUCK, queue.ReasonNoCursor: tubev1.QueueCause_NO_LEADER,
	queue.ReasonStorage: tubev1.QueueCause_NO_LEADER,
}

func causeOf(e *queue.Explanation) *tubev1.QueueCause {
	c := &tubev1.QueueCause{Kind: causeKinds[e.Reason], Text: e.Sentence, Partition: int32(e.Partition), Messages: e.Backlog, Offset: int64(e.BlockedBy)}
	if e.Reason == queue.ReasonWaiting && e.Delayed > 0 && e.Waiting == 0 {
		c.Kind = tubev1.QueueCause_DELAYED
	}
	if p := e.OldestLease; p != nil {
		c.ConsumerId, c.Address, c.Until = p.Member, p.Address, stamp(p.UntilMillis)
	} else if e.NextMillis > 0 {
		c.Until = stamp(e.NextMillis)
	}
	return c
}

// riskCause tells of messages that retention takes soon.
func riskCause(r broker.QueueRisk) *tubev1.QueueCause {
	return &tubev1.QueueCause{Kind: tubev1.QueueCause_RETENTION, Text: riskSentence(r), Partition: int32(r.Partition.Partition), Messages: r.Goes, Offset: -1}
}

// stamp is a time; nil for none.
func stamp(millis int64) *timestamppb.Timestamp {
	if millis <= 0 {
		return nil
	}
	return timestamppb.New(time.UnixMilli(millis))
}

// QueueList implements peerv1connect.QueuePeerServiceHandler.
func (s queueService) QueueList(ctx context.Context, req *connect.Request[peerv1.QueueListRequest]) (*connect.Response[peerv1.QueueListResponse], error) {
	r := &peerv1.QueueListResponse{Next: -1}
	if err := s.list(ctx, req.Msg, r); err != nil {
		r = &peerv1.QueueListResponse{Failure: failureToPB(queueError(err))}
	}
	return connect.NewResponse(r), nil
}

// maxListed is how many of one partition are listed at a time.
const maxListed = 10_000

func (s queueService) list(ctx context.Context, m *peerv1.QueueListRequest, r *peerv1.QueueListResponse) error {
	p, err := s.local.partition(queuePartitionFromPB(m.GetOf()))
	if err != nil {
		return err
	}
	from, limit := record.Offset(m.GetFrom()), min(int(m.GetMax()), maxListed)
	switch m.GetWhat() {
	case peerv1.QueueListRequest_PENDING:
		return listPending(p, queue.GroupID(m.GetGroup()), from, limit, m.GetState(), r)
	case peerv1.QueueListRequest_DELAYED:
		return listDelayed(p, from, limit, r)
	case peerv1.QueueListRequest_MESSAGES:
		return listMessages(ctx, p, queue.GroupID(m.GetGroup()), from, limit, r)
	}
	return fmt.Errorf("%w: what is to be listed", queue.ErrInvalidSetting)
}

// pendingStates are what the contract calls a desk's states that it has other words for.
var pendingStates = map[string]string{"asked": "leased", "settling": "leased", "waiting": "backing-off"}

func listPending(p *broker.Partition, g queue.GroupID, from record.Offset, limit int, state string, r *peerv1.QueueListResponse) error {
	for {
		list, err := p.QueuePending(g, from, limit)
		if err != nil {
			return err
		}
		for i := range list {
			m := pendingToPB(&list[i])
			if state == "" && m.State != "ready" || state == m.State {
				r.Pending = append(r.Pending, m)
			}
			from = list[i].Offset + 1
			if len(r.Pending) == limit {
				r.Next = int64(from)
				return nil
			}
		}
		if len(list) < limit {
			return nil
		}
	}
}

func pendingToPB(p *queue.Pending) *tubev1.PendingMessage {
	state := p.Status
	if word := pendingStates[state]; word != "" {
		state = word
	}
	m := &tubev1.PendingMessage{
		Partition: int32(p.Partition), Offset: int64(p.Offset), State: state, Attempts: int32(p.Attempts), LeaseId: p.LeaseID,
		ConsumerId: p.Member, Address: p.Address, Until: stamp(max(p.UntilMillis, p.DueMillis)), BlockedBy: int64(p.BlockedBy),
	}
	if n := len(p.Records); n > 0 {
		m.LastReason = p.Records[n-1].Reason
	}
	return m
}

func listDelayed(p *broker.Partition, from record.Offset, limit int, r *peerv1.QueueListResponse) error {
	list, err := p.QueueDelayed(from, limit)
	if err != nil {
		return err
	}
	r.Total = int64(p.QueueDelayedCount())
	for _, d := range list {
		m := &tubev1.DelayedMessage{Partition: int32(p.ID().Partition), Offset: int64(d.Offset), DeliverAt: stamp(d.DueMillis)}
		if msg, err := p.QueueMessage(d.Offset); err == nil {
			m.Id = msg.ID
			if !msg.KeyNull {
				m.Key = msg.Key
			}
		}
		r.Delayed = append(r.Delayed, m)
	}
	if len(list) == limit {
		r.Next = int64(list[len(list)-1].Offset) + 1
	}
	return nil
}

// maxListedBytes is how much of messages is listed at a time.
const maxListedBytes = 8 << 20

func listMessages(ctx context.Context, p *broker.Partition, g queue.GroupID, from record.Offset, limit int, r *peerv1.QueueListResponse) error {
	size := 0
	offsets, err := p.QueueUndone(g, from, limit)
	if err != nil {
		return err
	}
	for i, o := range offsets {
		m, err := p.QueueMessage(o)
		if err != nil || ctx.Err() != nil {
			return err
		}
		r.Messages = append(r.Messages, &peerv1.QueueMessage{
			Offset: int64(o), Id: m.ID, Key: m.Key, KeyNull: m.KeyNull, Value: m.Value, Headers: headersToPB(m.Headers), TimestampMillis: m.TimestampMillis,
		})
		if size += m.SizeBytes(); size > maxListedBytes && i+1 < len(offsets) {
			r.Next = int64(o) + 1
			return nil
		}
	}
	if len(offsets) == limit && limit > 0 {
		r.Next = int64(offsets[limit-1]) + 1
	}
	return nil
}

// QueueTrace implements peerv1connect.QueuePeerServiceHandler.
func (s queueService) QueueTrace(ctx context.Context, req *connect.Request[peerv1.QueueTraceRequest]) (*connect.Response[peerv1.QueueTraceResponse], error) {
	tr, err := s.trace(ctx, queuePartitionFromPB(req.Msg.GetOf()), record.Offset(req.Msg.GetOffset()), req.Msg.GetId())
	r := &peerv1.QueueTraceResponse{Trace: tr}
	if err != nil {
		r.Failure = failureToPB(queueError(err))
	}
	return connect.NewResponse(r), nil
}

func (s queueService) trace(ctx context.Context, tp record.TopicPartition, o record.Offset, id string) (*tubev1.TraceMessageResponse, error) {
	p, err := s.local.partition(tp)
	if err != nil {
		return nil, err
	}
	if id != "" {
		found, err := p.QueueFind(ctx, id)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%w: partition %d has none of id %q", queue.ErrUnknownMessage, tp.Partition, id)
		}
		o = found[0]
	}
	if b, err := p.Bounds(); err != nil {
		return nil, err
	} else if o < 0 || o >= b.HighWatermark {
		return nil, fmt.Errorf("%w: partition %d has offsets up to %d", queue.ErrUnknownMessage, tp.Partition, b.HighWatermark-1)
	}
	groups, err := p.QueueTrace(o)
	if err != nil {
		return nil, err
	}
	tr := &tubev1.TraceMessageResponse{Partition: int32(tp.Partition), Offset: int64(o)}
	if m, err := p.QueueMessage(o); err == nil {
		tr.Stored, tr.Id, tr.Size, tr.Time = true, m.ID, int64(m.SizeBytes()), stamp(m.TimestampMillis)
		if !m.KeyNull {
			tr.Key = m.Key
		}
	}
	im := s.image()
	names := map[queue.GroupID]string{}
	for _, g := range im.QueueGroupsOf(tp.Topic) {
		names[g.ID] = g.Name
	}
	for i := range groups {
		g := traceToPB(&groups[i])
		if g.Group = names[groups[i].Group]; g.Group == "" {
			continue
		}
		if groups[i].Status == "delayed" {
			tr.DeliverAt = stamp(groups[i].Trace.DueMillis)
		}
		tr.Cancelled = tr.Cancelled || groups[i].Trace.Cancelled
		tr.Groups = append(tr.Groups, g)
	}
	return tr, nil
}

func traceToPB(t *broker.QueueTraced) *tubev1.GroupTrace {
	g := &tubev1.GroupTrace{State: t.Status, ConsumerId: t.Member, Attempts: int32(t.Trace.Attempts), Until: stamp(t.Trace.DueMillis)}
	if word := pendingStates[g.State]; word != "" {
		g.State = word
	}
	if n := len(t.Trace.Records); n > 0 {
		g.LastReason = t.Trace.Records[n-1].Reason
	}
	if p := t.Pending; p != nil {
		g.ConsumerId, g.Address, g.Until = p.Member, p.Address, stamp(max(p.UntilMillis, p.DueMillis))
	}
	g.Text = traceText(g, t.Pending)
	return g
}

func traceText(g *tubev1.GroupTrace, p *queue.Pending) string {
	at := func() string { return g.GetUntil().AsTime().Format(time.RFC3339) }
	switch g.State {
	case "leased":
		return fmt.Sprintf("delivery %d is with %s at %s until %s", g.Attempts+1, orUnnamed(g.ConsumerId), g.Address, at())
	case "delayed":
		return "is due at " + at()
	case "backing-off":
		if g.Attempts == 0 {
			return "was given back, comes again at " + at()
		}
		return fmt.Sprintf("failed, attempt %d (%s), comes again at %s", g.Attempts, g.LastReason, at())
	case "blocked":
		return fmt.Sprintf("waits until offset %d, of the same key, is done with", p.BlockedBy)
	case "parked":
		return fmt.Sprintf("failed %d times and holds its key back, until it is retried or skipped", g.Attempts)
	case "suspect":
		return "was lost together with others, and waits for a consumer that holds nothing else"
	case "dying":
		return fmt.Sprintf("failed %d times, and is being written to the dead letters", g.Attempts)
	case "dead":
		return "was set aside; among the dead letters that are listed it is not (any more)"
	case "done":
		return "is done with: acknowledged, left out by the filter, or before where the group began or was set"
	case "cancelled":
		return "was cancelled before it was due"
	case "ready":
		return "waits for a consumer"
	}
	return "is " + g.State
}

func orUnnamed(id string) string {
	if id == "" {
		return "a consumer without a name"
	}
	return strconv.Quote(id)
}

// QueueChange implements peerv1connect.QueuePeerServiceHandler.
func (s queueService) QueueChange(ctx context.Context, req *connect.Request[peerv1.QueueChangeRequest]) (*connect.Response[peerv1.QueueChangeResponse], error) {
	r := &peerv1.QueueChangeResponse{}
	if err := s.change(ctx, req.Msg, r); err != nil {
		r = &peerv1.QueueChangeResponse{Failure: failureToPB(queueError(err))}
	}
	return connect.NewResponse(r), nil
}

func (s queueService) change(ctx context.Context, m *peerv1.QueueChangeRequest, r *peerv1.QueueChangeResponse) (err error) {
	p, err := s.local.partition(queuePartitionFromPB(m.GetOf()))
	if err != nil {
		return err
	}
	g := queue.GroupID(m.GetGroup())
	switch c := m.GetChange().(type) {
	case *peerv1.QueueChangeRequest_Seek:
		err := p.QueueSeek(ctx, g, broker.QueueTo{Offset: record.Offset(c.Seek.GetOffset()), TimeMillis: c.Seek.GetAtMillis()})
		r.Offset = int64(p.QueueCounts(g).Floor)
		return err
	case *peerv1.QueueChangeRequest_Purge:
		r.Count = p.QueueCounts(g).Backlog
		return p.QueuePurge(ctx, g)
	case *peerv1.QueueChangeRequest_Reschedule:
		r.Results = failuresToPB(reschedule(ctx, p, offsetsFromPB(c.Reschedule.GetOffsets()), c.Reschedule.GetAtMillis()))
		return nil
	case *peerv1.QueueChangeRequest_Retry:
		offsets := offsetsFromPB(c.Retry.GetOffsets())
		errs := make([]error, len(offsets))
		for i, o := range offsets {
			if err := p.QueueRetry(ctx, g, o, c.Retry.GetSkip()); err != nil {
				errs[i] = queueError(err)
			}
		}
		r.Results = failuresToPB(errs)
		return nil
	}
	return fmt.Errorf("%w: what is to be changed", queue.ErrInvalidSetting)
}

func offsetsFromPB(list []int64) []record.Offset {
	out := make([]record.Offset, len(list))
	for i, o := range list {
		out[i] = record.Offset(o)
	}
	return out
}

// failuresToPB is one for each, also of those that succeeded.
func failuresToPB(errs []error) []*peerv1.QueueFailure {
	out := make([]*peerv1.QueueFailure, len(errs))
	for i, err := range errs {
		if out[i] = failureToPB(err); err == nil {
			out[i] = &peerv1.QueueFailure{}
		}
	}
	return out
}

// reschedule cancels at 0.
func reschedule(ctx context.Context, p *broker.Partition, offsets []record.Offset, atMillis int64) []error {
	if atMillis == 0 {
		return queueErrors(p.QueueCancel(ctx, offsets))
	}
	errs := make([]error, len(offsets))
	for i, o := range offsets {
		if err := p.QueueReschedule(ctx, o, atMillis); err != nil {
			errs[i] = queueError(err)
		}
	}
	return errs
}
