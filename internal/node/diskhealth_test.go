package node

import (
	"strings"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/pulse"
	"github.com/tube-mq/tube/internal/vfs"
)

// ailing is a disk as the watchdog sees it, on a clock of its own.
type ailing struct {
	t *testing.T
	d diskHealth
	s diskSeen
}

func newAiling(t *testing.T) *ailing {
	return &ailing{t, diskHealth{slow: 2 * time.Second, hung: time.Minute}, diskSeen{now: time.UnixMilli(1e12)}}
}

// pass lets time pass, with a look every so often; it reports what the last said.
func (a *ailing) pass(d, every time.Duration) (err error) {
	for end := a.s.now.Add(d); a.s.now.Before(end) && err == nil; {
		a.s.now = a.s.now.Add(every)
		err = a.d.look(a.s)
		a.s.flushes.Slowest = 0 // told once
	}
	return err
}

// flush has a flush come back that took so long.
func (a *ailing) flush(took time.Duration) {
	a.s.flushes.Count++
	a.s.flushes.Slowest = max(took, a.s.flushes.Slowest)
}

// quick lets time pass with quick flushes.
func (a *ailing) quick(d time.Duration) {
	for range int(d / time.Second) {
		a.flush(3 * time.Millisecond)
		if err := a.pass(time.Second, lookAtDisk); err != nil {
			a.t.Fatal(err)
		}
	}
}

func (a *ailing) want(sick bool) {
	a.t.Helper()
	if (a.d.sick != "") != sick {
		a.t.Fatalf("sick: %q, want %v", a.d.sick, sick)
	}
}

func TestANodeIsSickWhileAFlushTakesTooLong(t *testing.T) {
	a := newAiling(t)
	a.quick(time.Second)
	a.want(false)
	a.s.flushes.Began, a.s.flushes.File = a.s.now, "7.wal"
	_ = a.pass(1800*time.Millisecond, lookAtDisk)
	a.want(false)
	_ = a.pass(200*time.Millisecond, lookAtDisk)
	a.want(true) // while it hangs
	if !strings.Contains(a.d.sick, "wal/7.wal") || !strings.Contains(a.d.sick, "2s") {
		t.Errorf("it says %q", a.d.sick)
	}
	a.s.flushes.Began = time.Time{}
	a.flush(30 * time.Second)
	a.quick(9 * time.Second)
	a.want(true) // quick, but not for long enough
	a.quick(3 * time.Second)
	a.want(false)

	b := newAiling(t)
	b.quick(time.Second)
	b.flush(2 * time.Second) // it began and ended between two looks
	_ = b.pass(time.Second, lookAtDisk)
	b.want(true)
	_ = b.pass(time.Hour, time.Second/5)
	b.want(true) // nothing was flushed, so nothing is known
}

// A disk that is neither quick nor slow changes nothing, and one that relapses has
// to be quick for longer each time.
func TestASickNodeIsNotWellTooSoon(t *testing.T) {
	a := newAiling(t)
	takes := func() (probation time.Duration) {
		a.flush(3 * time.Second)
		_ = a.pass(lookAtDisk, lookAtDisk)
		a.want(true)
		for range 20 {
			a.flush(1200 * time.Millisecond)
			_ = a.pass(time.Second, lookAtDisk)
			a.want(true)
		}
		at := a.s.now
		for a.d.sick != "" && a.s.now.Sub(at) < time.Hour {
			a.quick(time.Second)
		}
		return a.s.now.Sub(at).Round(5 * time.Second)
	}
	for i, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		if got := takes(); got != want*time.Second {
			t.Fatalf("sick for the %d. time: well after %v of quick flushes, want %v", i+1, got, want*time.Second)
		}
	}
	a.quick(relapseWithin + time.Minute)
	if got := takes(); got != 10*time.Second {
		t.Fatalf("after a long time: well after %v, want 10s", got)
	}
	for range 10 { // neither
		a.flush(1500 * time.Millisecond)
		_ = a.pass(time.Second, lookAtDisk)
		a.want(false)
	}
}

// Whatever hangs beyond the limit ends the node, with a word that says what, for how
// long, and what to do.
func TestADiskThatHangsIsTheEnd(t *testing.T) {
	a := newAiling(t)
	a.quick(time.Second)
	a.s.oldest = vfs.Flight{Op: vfs.OpSync, Path: "data/checkpoint/3.ckpt", Began: a.s.now}
	if err := a.pass(59*time.Second, lookAtDisk); err != nil {
		t.Fatalf("before the limit: %v", err)
	}
	err := a.pass(2*time.Second, lookAtDisk)
	if err == nil {
		t.Fatal("it goes on")
	}
	for _, want := range []string{"sync of data/checkpoint/3.ckpt", "1m0s", "disk-hung-after", "dmesg", "start the node"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	a = newAiling(t)
	a.d.hung, a.d.slow = 0, 0
	a.s.oldest, a.s.flushes.Began = vfs.Flight{Began: a.s.now}, a.s.now
	if err := a.pass(time.Hour, time.Second/5); err != nil || a.d.sick != "" {
		t.Fatalf("switched off, and yet: %v, %q", err, a.d.sick)
	}
}

// A process that was stopped, or starved, has not waited for its disk meanwhile.
func TestAPauseIsNotTheDisks(t *testing.T) {
	for name, before := range map[string]time.Duration{"in flight for a while": time.Second, "begun unseen": 0} {
		t.Run(name, func(t *testing.T) {
			a := newAiling(t)
			a.quick(time.Second)
			a.s.flushes.Began, a.s.flushes.File = a.s.now.Add(time.Millisecond), "7.wal"
			a.s.oldest = vfs.Flight{Op: vfs.OpSyncData, Path: "wal/7.wal", Began: a.s.flushes.Began}
			_ = a.pass(before, lookAtDisk)
			if err := a.pass(time.Hour, time.Hour); err != nil { // one look, an hour later
				t.Fatalf("after a pause: %v", err)
			}
			a.want(false)
			if err := a.pass(500*time.Millisecond, lookAtDisk); err != nil {
				t.Fatal(err)
			}
			a.want(false)
			a.s.flushes.Began, a.s.oldest = time.Time{}, vfs.Flight{}
			a.s.flushes.Slowest = time.Hour // it has come back in another pause
			_ = a.pass(time.Hour, time.Hour)
			a.want(false)
			// Time that is looked at counts as ever.
			a.s.flushes.Began = a.s.now
			_ = a.pass(2*time.Second, lookAtDisk)
			a.want(true)
		})
	}
}

// Processors that have too much to do let everything come late, the word of a flush as
// well as the watchdog's looks: the disk is not to blame for that. A cluster that
// moved its leaders about then would have even more to do.
func TestABusyProcessorIsNotTheDisk(t *testing.T) {
	a := newAiling(t)
	a.quick(time.Second)
	a.s.flushes.Began, a.s.flushes.File = a.s.now, "7.wal"
	_ = a.pass(4*time.Second, 3*lookAtDisk) // a third of it counts
	a.want(false)
	a.s.flushes.Began = time.Time{}
	a.flush(4 * time.Second)
	_ = a.pass(3*lookAtDisk, 3*lookAtDisk)
	a.want(false)
	a.flush(3 * time.Millisecond)
	_ = a.pass(time.Minute, lookAtDisk)
	// What was late before it began does not count.
	a.s.flushes.Began = a.s.now
	_ = a.pass(2*time.Second, lookAtDisk)
	a.want(true)

	b := newAiling(t)
	b.quick(time.Second)
	b.s.flushes.Began, b.s.flushes.File = b.s.now, "7.wal"
	_ = b.pass(7*time.Second, 3*lookAtDisk) // busy, and the disk is slow as well
	b.want(true)
	if n := len(b.d.late); n == 0 {
		t.Error("no look was late")
	}
	_ = b.pass(2*time.Minute, lookAtDisk)
	if n := len(b.d.late); n != 0 {
		t.Errorf("%d late looks are kept", n)
	}
}

// A disk that has nothing to do is looked at once a second, and that is not late; as soon
// as something is seen under way, more often.
func TestADiskAtRestIsLookedAtSeldom(t *testing.T) {
	a := newAiling(t)
	a.flush(3 * time.Millisecond)
	_ = a.pass(lookAtDisk, lookAtDisk)
	if a.d.next != lookAtDisk {
		t.Fatalf("after a flush the next look is in %v", a.d.next)
	}
	_ = a.pass(lookAtDisk, lookAtDisk)
	if a.d.next != pulse.Calm {
		t.Fatalf("at rest the next look is in %v", a.d.next)
	}
	_ = a.pass(10*pulse.Calm, pulse.Calm)
	if len(a.d.late) != 0 {
		t.Fatalf("looks that were in time count as late: %v", a.d.late)
	}
	a.s.flushes.Began, a.s.flushes.File = a.s.now, "7.wal"
	_ = a.pass(pulse.Calm, pulse.Calm)
	if a.d.next != lookAtDisk {
		t.Fatalf("while a flush is under way the next look is in %v", a.d.next)
	}
	_ = a.pass(time.Second, lookAtDisk)
	a.want(true)
	a.d.slow, a.d.sick, a.s.flushes.Began = time.Second, "", time.Time{}
	_ = a.pass(lookAtDisk, lookAtDisk)
	if a.d.next != time.Second/2 {
		t.Errorf("where a second is slow the next look is in %v", a.d.next)
	}
	b := newAiling(t)
	_ = b.pass(pulse.Calm, pulse.Calm)
	_ = b.pass(pulse.Calm+300*time.Millisecond, pulse.Calm+300*time.Millisecond)
	if got := b.d.late.since(time.Time{}); got != 300*time.Millisecond {
		t.Errorf("a look that was 300 ms late counts %v", got)
	}
}
