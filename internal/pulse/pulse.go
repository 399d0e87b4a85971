// Package pulse has loops come round at the same moments: a process that has nothing to
// do then wakes up once for all of them, and not once for each. Waking up is most of what
// such a process costs.
package pulse

import (
	"context"
	"time"
)

// began is what moments are counted from: processes on one machine need not meet.
var began = time.Now()

// Ticker ticks when a multiple of its interval has passed since the process began: those
// whose intervals are multiples of one another tick together.
type Ticker struct {
	C     <-chan time.Time
	timer *time.Timer
}

// NewTicker makes a ticker whose first tick comes after an interval at most. It must be
// more than 0.
func NewTicker(interval time.Duration) *Ticker {
	timer := time.NewTimer(untilNext(interval))
	return &Ticker{timer.C, timer}
}

// Next has to be called after each tick: it makes the next one come, within an interval
// from now. Moments that have passed meanwhile are left out.
func (t *Ticker) Next(interval time.Duration) { t.timer.Reset(untilNext(interval)) }

// Stop ends it; there is no tick afterwards.
func (t *Ticker) Stop() { t.timer.Stop() }

// untilNext is more than 0 and at most an interval, also on a clock that says that the
// process has not begun yet, as a test's may.
func untilNext(interval time.Duration) time.Duration {
	past := time.Since(began) % interval
	if past < 0 {
		past += interval
	}
	return interval - past
}

// Calm is how often a loop comes round that has nothing to look at.
const Calm = time.Second

// Every calls f at each tick until ctx ends.
func Every(ctx context.Context, interval time.Duration, f func()) {
	Vary(ctx, interval, func() time.Duration {
		f()
		return interval
	})
}

// Vary calls f within an interval, and then each time within what the last call returned,
// until ctx ends.
func Vary(ctx context.Context, first time.Duration, f func() (next time.Duration)) {
	tick := NewTicker(first)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tick.Next(f())
		}
	}
}
