package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/pulse"
	"github.com/tube-mq/tube/internal/vfs"
	"github.com/tube-mq/tube/internal/wal"
)

// lookAtDisk is how often the watchdog looks at a disk that has something to do.
const lookAtDisk = 200 * time.Millisecond

const (
	// A look that comes more than lateLook too late: this process did not run, or
	// hardly: it was stopped, or its processors have too much to do. What the disk did
	// meanwhile is not known, and nothing is held against it.
	lateLook = 50 * time.Millisecond
	// A node is well again after probation times slow of quick flushes, at least
	// enoughFlushes of them. Each relapse within relapseWithin doubles that, up to
	// maxProbation times slow, so that a disk which is slow now and then does not
	// move leaders to and fro.
	probation     = 5
	maxProbation  = 150
	enoughFlushes = 5
	relapseWithin = 10 * time.Minute
)

// diskHealth decides from what is seen of the disk whether this node is sick, and
// whether the disk hangs. Pure: look is told the time.
type diskHealth struct {
	// slow is how long a flush of the log may take, hung how long anything may; 0:
	// any time.
	slow, hung time.Duration

	looked time.Time     // zero: never
	next   time.Duration // from then to the next look
	late   lateLooks
	// sick is why the node is; empty: it is well.
	sick string
	// bad is when a flush was last not quick, and flushes how many had come back.
	bad     time.Time
	flushes uint64
	count   uint64 // of the flushes that had come back at the last look
	// recovered is when the node was last well again; zero: it was never sick.
	recovered time.Time
	wait      time.Duration // the present probation
}

// diskSeen is what one look finds.
type diskSeen struct {
	now     time.Time
	flushes wal.Flushes
	oldest  vfs.Flight // of all operations; Began zero: there is none
}

// hungError says that the disk hangs: it is the node's last word.
type hungError struct {
	op    vfs.Flight
	took  time.Duration
	limit time.Duration
}

func (e *hungError) Error() string {
	return fmt.Sprintf("the disk hangs: %s of %s has not come back for %s (disk-hung-after is %s); look at the disk (dmesg), then start the node: what was acknowledged is recovered",
		e.op.Op, e.op.Path, e.took.Round(lookAtDisk), e.limit)
}

// look takes what is seen. It returns an error if the disk hangs; sick is then as
// it was.
func (d *diskHealth) look(s diskSeen) error {
	if late := s.now.Sub(d.looked) - d.next; !d.looked.IsZero() && late > lateLook {
		d.late.add(s.now, late)
	}
	d.looked, d.next = s.now, d.lookAgain(s)
	d.late.forget(s.now.Add(-max(d.hung, 2*d.slow)))
	if took := d.age(s.oldest.Began, s.now); d.hung > 0 && took >= d.hung {
		return &hungError{s.oldest, took, d.hung}
	}
	if d.slow > 0 {
		slowest := s.flushes.Slowest
		d.judge(s, d.age(s.flushes.Began, s.now), slowest-d.late.since(s.now.Add(-slowest)))
	}
	return nil
}

// lookAgain is when to look at the disk next: seldom as long as it has nothing to do, but
// within half of what may take so long, as a pause of this process is noticed only then.
func (d *diskHealth) lookAgain(s diskSeen) time.Duration {
	calm := d.sick == "" && s.oldest.Began.IsZero() && s.flushes.Began.IsZero() && s.flushes.Count == d.count
	d.count = s.flushes.Count
	if !calm {
		return lookAtDisk
	}
	next := pulse.Calm
	for _, limit := range []time.Duration{d.slow, d.hung} {
		if limit > 0 {
			next = min(next, max(lookAtDisk, limit/2))
		}
	}
	return next
}

// age is how long an operation has been under way, without the time in which this
// process did not look; 0 if it has not begun.
func (d *diskHealth) age(began, now time.Time) time.Duration {
	if began.IsZero() {
		return 0
	}
	return now.Sub(began) - min(d.late.since(began), now.Sub(began))
}

// judge changes sick: running is how long the present flush takes, slowest how
// long the slowest took since the last look.
func (d *diskHealth) judge(s diskSeen, running, slowest time.Duration) {
	if max(running, slowest) >= d.slow/2 {
		d.bad, d.flushes = s.now, s.flushes.Count
	}
	switch {
	case d.sick == "" && running >= d.slow:
		d.fallSick(s.now, fmt.Sprintf("its disk is slow: a flush of wal/%s takes longer than %s", s.flushes.File, d.slow))
	case d.sick == "" && slowest >= d.slow:
		d.fallSick(s.now, fmt.Sprintf("its disk is slow: a flush of wal/%s took %s", s.flushes.File, slowest.Round(lookAtDisk)))
	case d.sick != "" && s.now.Sub(d.bad) >= d.wait && s.flushes.Count >= d.flushes+enoughFlushes:
		d.sick, d.recovered = "", s.now
	}
}

func (d *diskHealth) fallSick(now time.Time, why string) {
	d.sick = why
	if d.recovered.IsZero() || now.Sub(d.recovered) > relapseWithin {
		d.wait = probation * d.slow
	} else {
		d.wait = min(2*d.wait, maxProbation*d.slow)
	}
}

// lateLooks are the looks that came late, the oldest first, and by how much.
type lateLooks []lateOne

type lateOne struct {
	at   time.Time
	late time.Duration
}

func (l *lateLooks) add(at time.Time, late time.Duration) { *l = append(*l, lateOne{at, late}) }

// since is by how much looks were late after a moment.
func (l lateLooks) since(t time.Time) (sum time.Duration) {
	for _, x := range l {
		if x.at.After(t) {
			sum += min(x.late, x.at.Sub(t))
		}
	}
	return sum
}

// forget leaves out what was before.
func (l *lateLooks) forget(before time.Time) {
	n := 0
	for n < len(*l) && (*l)[n].at.Before(before) {
		n++
	}
	*l = slices.Delete(*l, 0, n)
}
