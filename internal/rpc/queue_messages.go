package rpc

import (
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/filter"
	"github.com/tube-mq/tube/internal/queue"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

const (
	maxListed     = 1000
	defaultListed = 100
	// maxToken is the length of a page's token.
	maxToken = 1 << 10
	// redriveTime is how long one call redrives; the caller goes on with another.
	redriveTime = 20 * time.Second
)

// pendingStates are what ListPending can be asked for.
var pendingStates = []string{"", "ready", "leased", "backing-off", "blocked", "parked", "suspect", "dying"}

func page(limit int32, token string) (Page, error) {
	n, err := counted(limit, "limit", maxListed, defaultListed)
	if err == nil && len(token) > maxToken {
		err = badField("page_token", "it is not one that was given")
	}
	return Page{Limit: n, Token: token}, err
}

func (s *queueAdmin) ListPending(ctx context.Context, req *connect.Request[tubev1.ListPendingRequest]) (*connect.Response[tubev1.ListPendingResponse], error) {
	g, err := s.group(req.Msg.Group)
	if err != nil {
		return nil, err
	}
	p, err := page(req.Msg.Limit, req.Msg.PageToken)
	if err == nil && !slices.Contains(pendingStates, req.Msg.State) {
		err = badField("state", "%.100q; it can be one of %q, or empty", req.Msg.State, pendingStates[1:])
	}
	if err != nil {
		return nil, err
	}
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	return answer(q.Views.ListPending(ctx, g.Name, req.Msg.State, p))
}

// answer makes a backend's answer the call's.
func answer[T any](m *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(m), nil
}

func (s *queueAdmin) ListDelayed(ctx context.Context, req *connect.Request[tubev1.ListDelayedRequest]) (*connect.Response[tubev1.ListDelayedResponse], error) {
	if err := s.topic(req.Msg.Topic); err != nil {
		return nil, err
	}
	p, err := page(req.Msg.Limit, req.Msg.PageToken)
	if err != nil {
		return nil, err
	}
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	return answer(q.Views.ListDelayed(ctx, req.Msg.Topic, p))
}

// refOf reads what names a message.
func refOf(m *tubev1.MessageRef, field string) (r queue.Ref, err error) {
	switch ref := m.GetRef().(type) {
	case *tubev1.MessageRef_At:
		r.Place, err = placeOf(ref.At, field+".at")
	case *tubev1.MessageRef_Id:
		if r.ID = ref.Id; ref.Id == "" || len(ref.Id) > queue.MaxIDBytes {
			err = badField(field+".id", "%d bytes long; 1 to %d can be", len(ref.Id), queue.MaxIDBytes)
		}
	default:
		err = badField(field, "give at (partition and offset) or id")
	}
	return r, err
}

func refsOf(ms []*tubev1.MessageRef) ([]queue.Ref, error) {
	if err := several(len(ms), "messages"); err != nil {
		return nil, err
	}
	out := make([]queue.Ref, len(ms))
	for i, m := range ms {
		var err error
		if out[i], err = refOf(m, fieldAt("messages", i)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *queueAdmin) RetryPending(ctx context.Context, req *connect.Request[tubev1.RetryPendingRequest]) (*connect.Response[tubev1.RetryPendingResponse], error) {
	if _, err := s.group(req.Msg.Group); err != nil {
		return nil, err
	}
	refs, err := refsOf(req.Msg.Messages)
	if err != nil {
		return nil, err
	}
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	places, errs, err := q.Changes.Retry(ctx, req.Msg.Group, refs, req.Msg.Skip)
	if err != nil {
		return nil, err
	}
	items, err := s.items(refs, places, errs)
	return connect.NewResponse(&tubev1.RetryPendingResponse{Results: items}), err
}

func (s *queueAdmin) CancelDelayed(ctx context.Context, req *connect.Request[tubev1.CancelDelayedRequest]) (*connect.Response[tubev1.CancelDelayedResponse], error) {
	if err := s.topic(req.Msg.Topic); err != nil {
		return nil, err
	}
	refs, err := refsOf(req.Msg.Messages)
	if err != nil {
		return nil, err
	}
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	places, errs, err := q.Changes.CancelDelayed(ctx, req.Msg.Topic, refs)
	if err != nil {
		return nil, err
	}
	items, err := s.items(refs, places, errs)
	return connect.NewResponse(&tubev1.CancelDelayedResponse{Results: items}), err
}

func (s *queueAdmin) RescheduleDelayed(ctx context.Context, req *connect.Request[tubev1.RescheduleDelayedRequest]) (*connect.Response[tubev1.RescheduleDelayedResponse], error) {
	m := req.Msg
	if err := s.topic(m.Topic); err != nil {
		return nil, err
	}
	refs, err := refsOf(m.Messages)
	if err != nil {
		return nil, err
	}
	if m.When == nil {
		return nil, badField("when", "give delay or deliver_at")
	}
	now := time.Now()
	at, err := dueMillis(m.GetDelay(), m.GetDeliverAt(), "when", now)
	if err != nil {
		return nil, err
	}
	if at == 0 {
		at = now.UnixMilli()
	}
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	places, errs, err := q.Changes.RescheduleDelayed(ctx, m.Topic, refs, at)
	if err != nil {
		return nil, err
	}
	items, err := s.items(refs, places, errs)
	return connect.NewResponse(&tubev1.RescheduleDelayedResponse{Results: items}), err
}

func (s *queueAdmin) items(refs []queue.Ref, places []queue.Place, errs []error) ([]*tubev1.ItemResult, error) {
	if len(places) != len(refs) || len(errs) != len(refs) {
		return nil, fmt.Errorf("%d messages have %d places and %d answers", len(refs), len(places), len(errs))
	}
	out := make([]*tubev1.ItemResult, len(refs))
	for i := range refs {
		out[i] = &tubev1.ItemResult{Partition: int32(places[i].Partition), Offset: int64(places[i].Offset), Error: itemError(s.log, errs[i])}
	}
	return out, nil
}

// wanted checks a filter of a call.
func wanted(text string) error {
	if text == "" {
		return nil
	}
	if _, err := filter.Compile(text); err != nil {
		return fmt.Errorf("%w: %w", queue.ErrInvalidFilter, err)
	}
	return nil
}

func (s *queueAdmin) ListDead(ctx context.Context, req *connect.Request[tubev1.ListDeadRequest]) (*connect.Response[tubev1.ListDeadResponse], error) {
	g, err := s.group(req.Msg.Group)
	if err != nil {
		return nil, err
	}
	p, err := page(req.Msg.Limit, req.Msg.PageToken)
	if err != nil {
		return nil, err
	}
	which, err := redrive(req.Msg.Messages, req.Msg.Filter, 0, false, "")
	if err != nil {
		return nil, err
	}
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	return answer(q.Views.ListDead(ctx, g.Name, DeadQuery{which.Places, which.Filter, req.Msg.Values}, p))
}

func (s *queueAdmin) RedriveDead(ctx context.Context, req *connect.Request[tubev1.RedriveDeadRequest]) (*connect.Response[tubev1.RedriveDeadResponse], error) {
	m := req.Msg
	r, err := redrive(m.Messages, m.Filter, m.MaxMessages, m.DryRun, m.PageToken)
	if err != nil {
		return nil, err
	}
	if m.To != "" {
		if err := s.topic(m.To); err != nil {
			return nil, err
		}
	}
	if r.To, r.Rate = m.To, m.MessagesPerSecond; !(r.Rate >= 0 && r.Rate <= 1e9) { // NaN is neither
		return nil, badField("messages_per_second", "%v; 0 (no limit) to 1e9 can be", r.Rate)
	}
	if m.Edited != nil {
		if len(r.Places) != 1 {
			return nil, badField("edited", "messages must name exactly the one that is edited, and names %d", len(r.Places))
		}
		out, err := outgoing(&tubev1.OutgoingMessage{Key: m.Edited.Key, Value: m.Edited.Value, Headers: m.Edited.Headers, RawHeaders: m.Edited.RawHeaders}, "edited", time.Now())
		if err != nil {
			return nil, err
		}
		r.Edited = &out
	}
	done, err := s.redo(ctx, m.Group, r, QueueChanges.RedriveDead)
	return connect.NewResponse(&tubev1.RedriveDeadResponse{Matched: done.Matched, Redriven: done.Done, NextPageToken: done.Next}), err
}

func (s *queueAdmin) DropDead(ctx context.Context, req *connect.Request[tubev1.DropDeadRequest]) (*connect.Response[tubev1.DropDeadResponse], error) {
	m := req.Msg
	r, err := redrive(m.Messages, m.Filter, m.MaxMessages, m.DryRun, m.PageToken)
	if err != nil {
		return nil, err
	}
	done, err := s.redo(ctx, m.Group, r, QueueChanges.DropDead)
	return connect.NewResponse(&tubev1.DropDeadResponse{Matched: done.Matched, Dropped: done.Done, NextPageToken: done.Next}), err
}

// redrive checks what listing, redriving and dropping dead letters have in common.
func redrive(places []*tubev1.PartitionOffset, text string, most int32, dry bool, token string) (r Redrive, err error) {
	r = Redrive{Filter: text, DryRun: dry, Token: token, Duration: redriveTime}
	if len(places) > queue.MaxMessages {
		return r, several(len(places), "messages")
	}
	if len(places) > 0 && text != "" {
		return r, badField("filter", "messages are named as well; give one of both")
	}
	if len(token) > maxToken {
		return r, badField("page_token", "it is not one that was given")
	}
	for i, o := range places {
		p, err := placeOf(o, fieldAt("messages", i))
		if err != nil {
			return r, err
		}
		r.Places = append(r.Places, p)
	}
	if r.Max, err = counted(most, "max_messages", queue.MaxMessages, 1000); err != nil {
		return r, err
	}
	return r, wanted(text)
}

func (s *queueAdmin) redo(ctx context.Context, group string, r Redrive, do func(QueueChanges, context.Context, string, Redrive) (Redriven, error)) (Redriven, error) {
	g, err := s.group(group)
	if err != nil {
		return Redriven{}, err
	}
	q, err := s.queues()
	if err != nil {
		return Redriven{}, err
	}
	return do(q.Changes, ctx, g.Name, r)
}

func (s *queueAdmin) TraceMessage(ctx context.Context, req *connect.Request[tubev1.TraceMessageRequest]) (*connect.Response[tubev1.TraceMessageResponse], error) {
	if err := s.topic(req.Msg.Topic); err != nil {
		return nil, err
	}
	r, err := refOf(req.Msg.Message, "message")
	if err != nil {
		return nil, err
	}
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	return answer(q.Views.TraceMessage(ctx, req.Msg.Topic, r))
}
