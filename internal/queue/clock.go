package queue

import "time"

// Clock is the time that queues go by, in ms since 1970. It begins with the wall
// clock when the process starts, advances with the time that passes (monotonic), and
// comes closer to the wall clock by at most a thousandth of that: a wall clock that
// jumps fires nothing early, ends no lease, and in the long run they agree. It never
// goes back.
//
// The price: who finds that the wall clock was wrong and sets it has queues go by the
// old time until the node is restarted, and a machine that was suspended is late by as long.
type Clock struct {
	millis  float64
	running time.Duration
	begun   bool
}

// slew is how much of the time that passes goes into correcting.
const slew = 1.0 / 1000

// Now is the clock, given the wall clock and how long the process has been running.
func (c *Clock) Now(wallMillis int64, running time.Duration) int64 {
	if !c.begun {
		c.begun, c.millis, c.running = true, float64(wallMillis), running
		return wallMillis
	}
	passed := float64(max(0, running-c.running)) / float64(time.Millisecond)
	c.running = max(c.running, running)
	c.millis += passed
	off := float64(wallMillis) - c.millis
	most := passed * slew
	c.millis += min(max(off, -most), most)
	return int64(c.millis)
}

// AtLeast moves the clock up to a time that was told to others. It goes on to the
// present first: the time since it was read last, added to what is up to date
// already, would put it as much ahead.
func (c *Clock) AtLeast(millis, wallMillis int64, running time.Duration) {
	c.Now(wallMillis, running)
	c.millis = max(c.millis, float64(millis))
}
