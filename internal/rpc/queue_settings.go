package rpc

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// changeSettings puts what is given in m over s. Bounds are queue.Settings.Check's;
// what is looked at here cannot be said in s at all.
func changeSettings(s *queue.Settings, m *tubev1.QueueSettings) error {
	if m == nil {
		return nil
	}
	for _, w := range []struct {
		field, value string
		given        bool
		no, yes      string
		to           *bool
	}{
		{"order", m.GetOrder(), m.Order != nil, "none", "key", &s.OrderByKey},
		{"after_dead", m.GetAfterDead(), m.AfterDead != nil, "continue", "park", &s.ParkKey},
		{"mode", m.GetMode(), m.Mode != nil, "share", "broadcast", &s.Broadcast},
		{"ack", m.GetAck(), m.Ack != nil, "manual", "auto", &s.AutoAck},
	} {
		if !w.given {
			continue
		}
		if w.value != w.no && w.value != w.yes {
			return badField("settings."+w.field, "%.100q; it can be %q or %q", w.value, w.no, w.yes)
		}
		*w.to = w.value == w.yes
	}
	for _, d := range []struct {
		field       string
		value       *durationpb.Duration
		least, most time.Duration
		to          *time.Duration
	}{
		{"lease", m.Lease, queue.MinLease, queue.MaxLease, &s.Lease},
		{"max_handling", m.MaxHandling, queue.MinLease, queue.MaxHandlingTime, &s.MaxHandling},
		{"idle_consumer", m.IdleConsumer, queue.MinIdleMember, queue.MaxIdleMember, &s.IdleMember},
	} {
		var err error
		if *d.to, err = durationOf(d.value, "settings."+d.field, d.least, d.most, *d.to); err != nil {
			return err
		}
	}
	if len(m.Backoff) > 0 {
		if len(m.Backoff) > queue.MaxBackoffSteps {
			return badField("settings.backoff", "%d steps, %d are allowed", len(m.Backoff), queue.MaxBackoffSteps)
		}
		s.Backoff = nil
		for i, d := range m.Backoff {
			step, err := durationOf(d, fieldAt("settings.backoff", i), 0, queue.MaxBackoff, 0)
			if err != nil {
				return err
			}
			s.Backoff = append(s.Backoff, step)
		}
	}
	set(&s.Rate, m.MessagesPerSecond)
	set(&s.RateBytes, m.BytesPerSecond)
	set(&s.Filter, m.Filter)
	set(&s.DeadLetter, m.DeadLetter)
	set(&s.Retain, m.RetainUntilConsumed)
	if m.MaxAttempts != nil {
		s.MaxAttempts = int(*m.MaxAttempts)
	}
	if m.MaxInFlight != nil {
		s.MaxInFlight = int(*m.MaxInFlight)
	}
	return nil
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func toGroup(im *meta.Image, g *meta.QueueGroup) *tubev1.QueueGroup {
	out := &tubev1.QueueGroup{Group: g.Name, Id: uint64(g.ID), Settings: toSettings(&g.Settings), Paused: g.Settings.Paused, Created: timestamppb.New(g.Created)}
	if t := im.Topics[g.Topic]; t != nil {
		out.Topic = t.Name
	}
	return out
}

func toSettings(s *queue.Settings) *tubev1.QueueSettings {
	word := func(on bool, no, yes string) *string {
		if on {
			return &yes
		}
		return &no
	}
	attempts, inFlight := int32(s.MaxAttempts), int32(s.MaxInFlight)
	out := &tubev1.QueueSettings{
		MaxAttempts: &attempts, Lease: durationpb.New(s.Lease), MaxHandling: durationpb.New(s.MaxHandling), IdleConsumer: durationpb.New(s.IdleMember),
		Order: word(s.OrderByKey, "none", "key"), AfterDead: word(s.ParkKey, "continue", "park"), Mode: word(s.Broadcast, "share", "broadcast"),
		Ack: word(s.AutoAck, "manual", "auto"), MessagesPerSecond: new(s.Rate), BytesPerSecond: new(s.RateBytes), MaxInFlight: &inFlight,
		Filter: new(s.Filter), DeadLetter: new(s.DeadLetter), RetainUntilConsumed: new(s.Retain),
	}
	for _, d := range s.Backoff {
		out.Backoff = append(out.Backoff, durationpb.New(d))
	}
	return out
}

// positionMillis is a place in time: queue.StartAtStart, queue.StartAtEnd or ms since
// 1970. An offset is none.
func positionMillis(p *tubev1.Position, field string) (int64, error) {
	switch at := p.GetAt().(type) {
	case nil:
		return queue.StartAtEnd, nil
	case *tubev1.Position_Start:
		if at.Start {
			return queue.StartAtStart, nil
		}
	case *tubev1.Position_End:
		if at.End {
			return queue.StartAtEnd, nil
		}
	case *tubev1.Position_Time:
		if err := at.Time.CheckValid(); err != nil {
			return 0, badField(field+".time", "%v", err)
		}
		if ms := at.Time.AsTime().UnixMilli(); ms >= 0 {
			return ms, nil
		}
		return 0, badField(field+".time", "it is before 1970")
	}
	return 0, badField(field, `it can be {"start":true}, {"end":true} or {"time":"…"}`)
}
