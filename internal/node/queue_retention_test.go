package node

import (
	"errors"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/broker"
)

// A group has an event of each kind now and then; what went meanwhile is in the next one.
func TestEventsOfRetentionAreFew(t *testing.T) {
	var x retentionNotes
	now := time.Unix(1_800_000_000, 0)
	look := func(group, percent int, goes, want int64, due bool) {
		t.Helper()
		r := broker.QueueRisk{UsedPercent: percent, Goes: goes}
		r.Group += 1
		if group == 2 {
			r.Group += 1
		}
		n, ok := x.due(now, r)
		if ok != due || ok && n != want {
			t.Fatalf("group %d at %d %% with %d that go: %d, %v, want %d, %v", group, percent, goes, n, ok, want, due)
		}
		if ok {
			x.made(now, r, n, nil)
		}
	}
	look(1, 70, 0, 0, false)
	look(1, 80, 0, 0, true)
	look(1, 95, 0, 0, false)
	look(2, 80, 0, 0, true)
	look(1, 100, 5, 5, true)
	look(1, 100, 7, 0, false)
	look(2, 100, 1, 1, true)
	now = now.Add(lostEvery)
	look(1, 100, 1, 8, true)
	now = now.Add(nearEvery)
	look(1, 90, 0, 0, true)

	// After one that failed none is tried for a while, and nothing is forgotten.
	r := broker.QueueRisk{UsedPercent: 100, Goes: 2, Group: 1}
	if n, ok := x.due(now, r); n != 2 || !ok {
		t.Fatal(n, ok)
	}
	x.made(now, r, 2, errors.New("no master"))
	look(2, 100, 3, 0, false)
	now = now.Add(noteRest)
	look(1, 100, 1, 3, true)
	look(2, 100, 1, 4, true)
}
