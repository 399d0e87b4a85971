package queue

import (
	"testing"
	"time"
)

// A node that becomes a leader has not read its clock for a while, and hears of the
// last leader's: the two agree.
func TestTheClockOfANewLeaderIsNotAheadByTheTimeItWasNotRead(t *testing.T) {
	const wall = 1_800_000_000_000
	var c Clock
	c.Now(wall, 0)
	hour := time.Hour.Milliseconds()
	c.AtLeast(wall+hour-20, wall+hour, time.Hour)
	if now := c.Now(wall+hour+10, time.Hour+10*time.Millisecond); now < wall+hour || now > wall+hour+20 {
		t.Errorf("the clock is %d ms off", now-wall-hour-10)
	}
	c.AtLeast(wall+hour+5000, wall+hour+10, time.Hour+10*time.Millisecond)
	if now := c.Now(wall+hour+10, time.Hour+10*time.Millisecond); now != wall+hour+5000 {
		t.Errorf("the clock is %d ms behind what was told", wall+hour+5000-now)
	}
}
