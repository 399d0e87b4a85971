package broker

import (
	"testing"
	"time"
)

func TestRetentionClock(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	t.Run("follows a wall clock that runs", func(t *testing.T) {
		var c retentionClock
		for s := range 10 {
			d := time.Duration(s) * time.Minute
			if got := c.observe(noon.Add(d), d); !got.Equal(noon.Add(d)) {
				t.Fatalf("after %v: %v", d, got)
			}
		}
	})
	t.Run("a jump forward is believed only as time passes", func(t *testing.T) {
		var c retentionClock
		c.observe(noon, time.Minute)
		if got := c.observe(noon.Add(30*day), 2*time.Minute); got.After(noon.Add(2 * time.Minute)) {
			t.Fatalf("one minute after a jump of 30 days it is %v", got)
		}
		if got := c.observe(noon, 3*time.Minute); got.After(noon.Add(time.Minute)) {
			t.Fatalf("after the jump was taken back it is %v", got)
		}
	})
	t.Run("a clock that is wrong at the start", func(t *testing.T) {
		var c retentionClock
		c.atLeast(noon)
		if got := c.observe(noon.Add(365*day), time.Second); got.After(noon.Add(2 * time.Second)) {
			t.Fatalf("the logs' newest entry is of %v and it is %v", noon, got)
		}
	})
	t.Run("after a day off it catches up in a day", func(t *testing.T) {
		var c retentionClock
		c.atLeast(noon)
		wall := noon.Add(day)
		c.observe(wall, time.Second)
		if got := c.observe(wall.Add(day), day+time.Second); !got.Equal(wall.Add(day)) {
			t.Fatalf("after a day of running it is %v, want %v", got, wall.Add(day))
		}
	})
	t.Run("a jump backward is believed at once", func(t *testing.T) {
		var c retentionClock
		c.observe(noon, time.Minute)
		if got := c.observe(noon.Add(-day), 2*time.Minute); !got.Equal(noon.Add(-day)) {
			t.Fatalf("got %v", got)
		}
	})
}
