package queue

import (
	"fmt"
	"math"
	"time"
)

// Bounds of what can be asked for.
const (
	MaxDelay         = 365 * 24 * time.Hour // of a delayed message, and of a Nack
	MaxIDBytes       = 256                  // of a message's or consumer's id
	MaxReasonBytes   = 1 << 10              // of a failure's reason; more is cut off
	MaxFilterBytes   = 4 << 10
	MaxBackoffSteps  = 32
	MaxBackoff       = 30 * 24 * time.Hour
	MaxMessages      = 10_000 // in one call
	MinLease         = time.Second
	MaxLease         = 12 * time.Hour
	MaxHandlingTime  = 24 * time.Hour
	maxAttempts      = 1_000
	maxInFlight      = 1_000_000
	MinIdleMember    = time.Minute
	MaxIdleMember    = 365 * 24 * time.Hour
	maxRate          = 1e9  // messages/s
	maxRateBytes     = 1e12 // bytes/s
	maxTopicNameSize = 249
)

// DefaultSettings are those of a group whose creator says nothing: it begins at the
// end. DeadLetter depends on the group's name and is empty.
func DefaultSettings() Settings {
	return Settings{
		MaxAttempts: 5, Lease: 30 * time.Second, MaxHandling: 12 * time.Hour,
		Backoff:     []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute},
		MaxInFlight: 10_000, IdleMember: 7 * 24 * time.Hour, StartAtMillis: StartAtEnd,
	}
}

// Check tells whether the settings can be. Error: ErrInvalidSetting, with the field's
// name as the API has it, its bounds and what was given. Whether the filter compiles
// and the dead-letter topic is there others look at.
func (s *Settings) Check() error {
	bad := func(field, bounds string, given any) error {
		return fmt.Errorf("%w: %s can be %s, not %v", ErrInvalidSetting, field, bounds, given)
	}
	switch {
	case s.MaxAttempts < 1 || s.MaxAttempts > maxAttempts:
		return bad("max_attempts", "1 to 1000", s.MaxAttempts)
	case s.Lease < MinLease || s.Lease > MaxLease:
		return bad("lease", "1s to 12h", s.Lease)
	case s.MaxHandling < s.Lease || s.MaxHandling > MaxHandlingTime:
		return bad("max_handling", fmt.Sprintf("the lease (%v) to 24h", s.Lease), s.MaxHandling)
	case len(s.Backoff) > MaxBackoffSteps:
		return bad("backoff", "at most 32 steps", len(s.Backoff))
	case !(s.Rate >= 0 && s.Rate <= maxRate): // NaN is neither
		return bad("messages_per_second", "0 (no limit) to 1e9", s.Rate)
	case !(s.RateBytes >= 0 && s.RateBytes <= maxRateBytes):
		return bad("bytes_per_second", "0 (no limit) to 1e12", s.RateBytes)
	case s.MaxInFlight < 1 || s.MaxInFlight > maxInFlight:
		return bad("max_in_flight", "1 to 1000000", s.MaxInFlight)
	case len(s.Filter) > MaxFilterBytes:
		return bad("filter", "at most 4096 bytes long", len(s.Filter))
	case len(s.DeadLetter) > maxTopicNameSize:
		return bad("dead_letter", "at most 249 bytes long", len(s.DeadLetter))
	case s.IdleMember < MinIdleMember || s.IdleMember > MaxIdleMember:
		return bad("idle_consumer", "1m to 8760h", s.IdleMember)
	case s.StartAtMillis < StartAtStart || s.StartAtMillis > math.MaxInt64/2:
		return bad("from", "the start, the end or a time since 1970", s.StartAtMillis)
	case s.ParkKey && !s.OrderByKey:
		return bad("after_dead", "park with order key only", "park with order none")
	case s.OrderByKey && s.AutoAck:
		return bad("order", "key with ack manual only", "key with ack auto")
	}
	for i, d := range s.Backoff {
		if d < 0 || d > MaxBackoff {
			return bad(fmt.Sprintf("backoff[%d]", i), "0s to 720h", d)
		}
	}
	return nil
}
