package node

import (
	"testing"
	"time"
)

// Planning takes a half per cent of a processor at most, until it takes so long that the
// cluster would not be looked at for more than five seconds.
func TestPlanningTakesItsShareOfAProcessor(t *testing.T) {
	began := time.Unix(1000, 0)
	for took, pause := range map[time.Duration]time.Duration{
		0:                      0,
		time.Millisecond:       200 * time.Millisecond,
		10 * time.Millisecond:  2 * time.Second,
		25 * time.Millisecond:  5 * time.Second,
		500 * time.Millisecond: 5 * time.Second,
	} {
		if got := planAgain(began, took).Sub(began); got != pause {
			t.Errorf("after planning for %v the next is %v after it began, want %v", took, got, pause)
		}
	}
}
