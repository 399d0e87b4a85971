package bench

import (
	"context"
	"runtime"
	"time"
)

// pace calls send with 0, 1, 2, … perSecond times a second for d, or as often as
// it can when perSecond is 0, until the context ends or send says no. What is
// late is sent at once. It returns how late the latest was.
func pace(ctx context.Context, perSecond float64, d time.Duration, send func(i int64) bool) (late time.Duration) {
	start := time.Now()
	if perSecond <= 0 {
		for i := int64(0); ctx.Err() == nil; i++ {
			if i%64 == 0 && time.Since(start) >= d || !send(i) {
				return 0
			}
		}
		return 0
	}
	runtime.LockOSThread() // shortSleep holds the thread
	defer runtime.UnlockOSThread()
	for i := int64(0); ctx.Err() == nil; i++ {
		due := time.Duration(float64(i) / perSecond * float64(time.Second))
		if due >= d {
			return late
		}
		now := time.Since(start)
		// Finer steps than this would keep a core busy with waking up.
		for due-now > 20*time.Microsecond && ctx.Err() == nil {
			shortSleep(min(due-now, 10*time.Millisecond))
			now = time.Since(start)
		}
		late = max(late, now-due)
		if !send(i) {
			return late
		}
	}
	return late
}
