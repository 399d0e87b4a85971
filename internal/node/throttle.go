package node

import (
	"context"
	"sync"
	"time"
)

// throttle bounds how fast copies come in, bytes per second: all of them together.
type throttle struct {
	mu             sync.Mutex
	bytesPerSecond int64
	// free is when what was let through so far would have come at that rate.
	free time.Time
}

// wait returns once n more bytes may be taken.
func (t *throttle) wait(ctx context.Context, n int) error {
	if t == nil || t.bytesPerSecond <= 0 {
		return nil
	}
	t.mu.Lock()
	now := time.Now()
	if t.free.Before(now) {
		t.free = now
	}
	until := t.free
	t.free = t.free.Add(time.Duration(int64(n) * int64(time.Second) / t.bytesPerSecond))
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
