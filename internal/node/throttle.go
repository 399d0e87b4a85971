package node

import (
	"context"
	"sync"
	"time"
)

// throttle bounds how fast copies come in: all of them together, if they have the same
// rate.
type throttle struct {
	mu sync.Mutex
	// free is when what was let through so far would have come.
	free time.Time
}

// wait returns once n more bytes may be taken at a rate in bytes per second; 0: at once.
func (t *throttle) wait(ctx context.Context, n int, bytesPerSecond int64) error {
	if t == nil || bytesPerSecond <= 0 {
		return nil
	}
	t.mu.Lock()
	now := time.Now()
	if t.free.Before(now) {
		t.free = now
	}
	until := t.free
	t.free = t.free.Add(time.Duration(int64(n) * int64(time.Second) / bytesPerSecond))
	t.mu.Unlock()
	if d := time.Until(until); d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
