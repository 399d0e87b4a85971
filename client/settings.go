package tube

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// wire is what was set, as the server takes it.
func (s *GroupSettings) wire() *tubev1.QueueSettings {
	m := &tubev1.QueueSettings{
		MaxAttempts: given(int32(s.MaxAttempts)), MaxInFlight: given(int32(s.MaxInFlight)),
		MessagesPerSecond: given(s.MessagesPerSecond), BytesPerSecond: given(s.BytesPerSecond),
		Filter: given(s.Filter), DeadLetter: given(s.DeadLetter), RetainUntilConsumed: given(s.RetainUntilConsumed),
		Order: when(s.OrderByKey, "key"), AfterDead: when(s.ParkKey, "park"), Mode: when(s.Broadcast, "broadcast"), Ack: when(s.AutoAck, "auto"),
		Lease: lasting(s.Lease), MaxHandling: lasting(s.MaxHandling), IdleConsumer: lasting(s.IdleConsumer),
	}
	for _, d := range s.Backoff {
		m.Backoff = append(m.Backoff, durationpb.New(d))
	}
	return m
}

// given is nil for what was not set.
func given[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func when(yes bool, word string) *string {
	if !yes {
		return nil
	}
	return &word
}

func lasting(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func positionAt(t time.Time) *tubev1.Position {
	return &tubev1.Position{At: &tubev1.Position_Time{Time: timestamppb.New(t)}}
}
