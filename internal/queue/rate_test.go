package queue

import (
	"fmt"
	"testing"
	"time"
)

// The partitions that a node leads have their rates together, and a desk that begins
// again has no more than there was.
func TestDesksOfANodeShareTheRate(t *testing.T) {
	const partitions, led = 16, 4
	s := NewState()
	if _, err := s.Apply(AppendCommand(nil, 1, []Op{{Kind: OpOpen, Group: 7}}), 1000); err != nil {
		t.Fatal(err)
	}
	rates, now := NewRates(), int64(1)
	begin := func(rate float64) *Desk {
		return NewDesk(DeskConfig{
			Group: 7, Partitions: partitions, Settings: Settings{MaxAttempts: 5, Lease: time.Minute, MaxInFlight: 1000, MaxHandling: time.Hour, Rate: rate},
			Read: func(f func(*State)) { f(s) }, Source: manyMessages{1000}, Hands: NewHands(), Rates: rates,
		}, now)
	}
	take := func(d *Desk) int {
		got, _, err := d.Take(now, Taking{Member: Member{ID: "x", Session: fmt.Sprint(now)}, Max: 1000, MaxBytes: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		return len(got)
	}
	var desks []*Desk
	for range led {
		desks = append(desks, begin(32))
	}
	if n := take(desks[0]); n != 32/partitions {
		t.Errorf("%d at first, want one partition's share", n)
	}
	now += 1000
	if n := take(desks[0]); n != 32*led/partitions {
		t.Errorf("%d after a second, want what all the node's partitions may have", n)
	}
	if n := take(desks[1]); n != 0 {
		t.Errorf("%d more from another partition", n)
	}
	for range 10 {
		desks[0].Close(now)
		desks[0] = begin(32)
		desks[1].Configure(desks[1].cfg.Settings, nil, now)
	}
	if n := take(desks[0]); n != 0 {
		t.Errorf("%d more from a desk that began again", n)
	}
	for _, d := range desks[1:] {
		d.Close(now)
	}
	now += 1000
	if n := take(desks[0]); n != 32/partitions {
		t.Errorf("%d after the others are led elsewhere", n)
	}
	desks[0].Close(now)
	if n := take(begin(32)); n != 0 {
		t.Errorf("%d from a desk that began when none was left", n)
	}
}
