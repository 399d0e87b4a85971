package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tube-mq/tube/internal/filter"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/rpc"
	peerv1 "github.com/tube-mq/tube/proto/tube/peer/v1"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// Dead letters are messages of a topic. Which of them are still to be looked after is
// what the queue group of the topic's own name is not done with: redriving and dropping
// acknowledge them there, and whoever likes may take them as from any other queue.

// deadList is a group's dead letters, as its dead-letter topic has them.
type deadList struct {
	group string // whose
	topic *meta.Topic
	keep  *meta.QueueGroup
	wants *filter.Filter // nil: all
}

func (q queueViews) dead(group, expr string) (*deadList, error) {
	g, _, err := q.courier.Group(group)
	if err != nil {
		return nil, err
	}
	name := g.Settings.DeadLetter
	if name == "" {
		return nil, fmt.Errorf("%w: group %s has no dead-letter topic", queue.ErrGroupMode, group)
	}
	im := q.n.meta.Image()
	d := &deadList{group: group, topic: im.Topic(name), keep: im.QueueGroup(name)}
	if d.topic == nil || d.keep == nil || d.keep.Topic != d.topic.ID {
		return nil, fmt.Errorf("%w: the dead-letter topic %s of group %s needs a queue group of its own name: tube queue create %s --topic %s --from start", queue.ErrUnknownGroup, name, group, name, name)
	}
	if expr != "" {
		if d.wants, err = filter.Compile(expr); err != nil {
			return nil, fmt.Errorf("%w: %w", queue.ErrInvalidFilter, err)
		}
	}
	return d, nil
}

// deadMessage is a dead letter, and what its headers say.
type deadMessage struct {
	partition record.Partition
	m         *peerv1.QueueMessage
	dead      map[string]string // of the headers that begin with tube-dead-
	own       []queue.Header    // the message's
}

// is reports whether a message is a dead letter of the group that is wanted.
func (d *deadList) is(p record.Partition, m *peerv1.QueueMessage) (*deadMessage, bool) {
	out := &deadMessage{partition: p, m: m, dead: map[string]string{}}
	for _, h := range m.GetHeaders() {
		switch {
		case strings.HasPrefix(h.GetKey(), "tube-dead-"):
			out.dead[h.GetKey()] = string(h.GetValue())
		case h.GetKey() != queue.HeaderMessageID && h.GetKey() != queue.HeaderDeliverAt:
			out.own = append(out.own, queue.Header{Key: h.GetKey(), Value: h.GetValue()})
		}
	}
	if out.dead[headerDeadGroup] != d.group {
		return nil, false
	}
	if d.wants == nil {
		return out, true
	}
	size := len(m.GetKey()) + len(m.GetValue())
	for _, h := range out.own {
		size += len(h.Key) + len(h.Value)
	}
	ok, err := d.wants.Match(&filter.Message{
		Key: m.GetKey(), TimestampMillis: out.number(headerDeadTime), Size: size, Topic: out.dead[headerDeadTopic],
		Partition: int32(out.number(headerDeadPartition)), Offset: out.number(headerDeadOffset),
		Headers: func() map[string]string {
			all := map[string]string{}
			for _, h := range m.GetHeaders() {
				all[h.GetKey()] = string(h.GetValue())
			}
			return all
		},
	})
	return out, ok && err == nil
}

// place is where it is among the dead letters.
func (m *deadMessage) place() queue.Place {
	return queue.Place{Partition: m.partition, Offset: record.Offset(m.m.GetOffset())}
}

func (m *deadMessage) number(header string) int64 {
	n, _ := strconv.ParseInt(m.dead[header], 10, 64) // 0 if somebody else wrote it
	return n
}

// messages asks for whole messages, so fewer of them at a time.
const deadPage = 100

// walk calls f with each dead letter from a token on until f has enough. It answers
// where to go on; "" at the end.
func (q queueViews) walk(ctx context.Context, d *deadList, from string, f func(*deadMessage) (enough bool, err error)) (string, error) {
	req := &peerv1.QueueListRequest{What: peerv1.QueueListRequest_MESSAGES, Group: uint64(d.keep.ID)}
	for {
		stopped, stopErr := "", error(nil)
		next, err := q.pages(ctx, d.topic, from, req, deadPage, func(p record.Partition, r *peerv1.QueueListResponse) int {
			for _, m := range r.GetMessages() {
				l, ok := d.is(p, m)
				if !ok || stopped != "" {
					continue
				}
				enough, err := f(l)
				if err != nil {
					stopped, stopErr = token(p, m.GetOffset()), err
				} else if enough {
					stopped = token(p, m.GetOffset()+1)
				}
			}
			if stopped != "" {
				return deadPage // no more
			}
			return len(r.GetMessages())
		})
		switch {
		case stopErr != nil:
			return stopped, stopErr
		case err != nil:
			return "", err
		case stopped != "":
			return stopped, nil
		case next == "":
			return "", nil
		}
		from = next
	}
}

// ListDead implements rpc.QueueViews.
func (q queueViews) ListDead(ctx context.Context, group string, want rpc.DeadQuery, p rpc.Page) (*tubev1.ListDeadResponse, error) {
	d, err := q.dead(group, want.Filter)
	if err != nil {
		return nil, err
	}
	out := &tubev1.ListDeadResponse{}
	named := map[queue.Place]bool{}
	for _, at := range want.Places {
		named[at] = true
	}
	size := 0
	out.NextPageToken, err = q.walk(ctx, d, p.Token, func(m *deadMessage) (bool, error) {
		if len(named) > 0 && !named[m.place()] {
			return false, nil
		}
		l := m.toPB(want.Values)
		out.Messages = append(out.Messages, l)
		size += len(l.GetValue()) + len(l.GetKey())
		return len(out.Messages) >= p.Limit || size > maxListedBytes, nil
	})
	return out, err
}

func (m *deadMessage) toPB(values bool) *tubev1.DeadMessage {
	out := &tubev1.DeadMessage{
		Partition: int32(m.partition), Offset: m.m.GetOffset(), Topic: m.dead[headerDeadTopic], SourcePartition: int32(m.number(headerDeadPartition)),
		SourceOffset: m.number(headerDeadOffset), Time: stamp(m.number(headerDeadTime)), Died: stamp(m.m.GetTimestampMillis()), Id: m.dead[headerDeadID],
		ValueSize: int64(len(m.m.GetValue())), Reason: m.dead[headerDeadReason], Headers: map[string]string{},
		Attempts: attemptsOf([]byte(m.dead[headerDeadAttempts])),
	}
	if !m.m.GetKeyNull() {
		out.Key = m.m.GetKey()
	}
	if values {
		out.Value = m.m.GetValue()
	}
	for _, h := range m.own {
		if utf8.Valid(h.Value) && utf8.ValidString(h.Key) {
			out.Headers[h.Key] = string(h.Value)
		} else {
			out.RawHeaders = append(out.RawHeaders, &tubev1.RawHeader{Name: h.Key, Value: h.Value})
		}
	}
	return out
}

// attemptsOf reads a dead letter's record.
func attemptsOf(text []byte) []*tubev1.DeliveryAttempt {
	var list []deadAttempt
	if json.Unmarshal(text, &list) != nil {
		return nil // somebody else wrote it
	}
	out := make([]*tubev1.DeliveryAttempt, len(list))
	for i, a := range list {
		out[i] = &tubev1.DeliveryAttempt{Time: timestamppb.New(a.Time), ConsumerId: a.Consumer, Address: a.Address, Error: a.Error}
	}
	return out
}

// RedriveDead implements rpc.QueueChanges.
func (q queueViews) RedriveDead(ctx context.Context, group string, r rpc.Redrive) (rpc.Redriven, error) {
	return q.each(ctx, group, r, func(ctx context.Context, m *deadMessage) error {
		to := r.To
		if to == "" {
			to = m.dead[headerDeadTopic]
		}
		out := queue.Outgoing{Key: m.m.GetKey(), KeyNull: m.m.GetKeyNull(), Value: m.m.GetValue(), Headers: m.own}
		if r.Edited != nil {
			out = *r.Edited
		}
		// The same however often it is tried, and not the message's own id, which the
		// topic may remember.
		out.ID, out.DeliverAtMillis = fmt.Sprintf("redriven-%s-%d-%d", m.dead[headerDeadGroup], m.partition, m.m.GetOffset()), 0
		sent, err := q.courier.Send(ctx, to, []queue.Outgoing{out})
		if err == nil {
			err = sent[0].Err
		}
		return err
	})
}

// DropDead implements rpc.QueueChanges.
func (q queueViews) DropDead(ctx context.Context, group string, r rpc.Redrive) (rpc.Redriven, error) {
	return q.each(ctx, group, r, func(context.Context, *deadMessage) error { return nil })
}

// each does something with the dead letters that are wanted, and lists them no more.
func (q queueViews) each(ctx context.Context, group string, r rpc.Redrive, do func(context.Context, *deadMessage) error) (done rpc.Redriven, err error) {
	d, err := q.dead(group, r.Filter)
	if err != nil {
		return done, err
	}
	wanted := map[queue.Place]bool{}
	for _, p := range r.Places {
		wanted[p] = true
	}
	begin := time.Now()
	done.Next, err = q.walk(ctx, d, r.Token, func(m *deadMessage) (bool, error) {
		at := m.place()
		if len(wanted) > 0 && !wanted[at] {
			return false, nil
		}
		done.Matched++
		if !r.DryRun {
			if r.Rate > 0 {
				pauseUntil(ctx, begin.Add(time.Duration(float64(done.Done)/r.Rate*float64(time.Second))))
			}
			if err := do(ctx, m); err != nil {
				return true, err
			}
			if err := q.finish(ctx, d, at); err != nil {
				return true, err
			}
			done.Done++
		}
		if len(wanted) > 0 && done.Matched == int64(len(wanted)) {
			return true, errAll
		}
		return done.Matched >= int64(r.Max) || r.Duration > 0 && time.Since(begin) > r.Duration, ctx.Err()
	})
	if errors.Is(err, errAll) {
		done.Next, err = "", nil
	}
	return done, err
}

// errAll: all that was named is done.
var errAll = errors.New("all done")

func pauseUntil(ctx context.Context, t time.Time) {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// finish makes the dead letters' group be done with one, though nobody holds it.
func (q queueViews) finish(ctx context.Context, d *deadList, at queue.Place) error {
	errs, err := q.courier.Settle(ctx, d.keep.Name, []queue.Settlement{{Lease: queue.Lease{Partition: at.Partition, Offset: at.Offset, Attempt: 1}, Verdict: queue.Acknowledge}})
	if err == nil {
		err = errs[0]
	}
	return err
}
