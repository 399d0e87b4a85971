package node

import (
	"fmt"
	"time"

	"github.com/tube-mq/tube/internal/vfs"
	"github.com/tube-mq/tube/internal/wal"
)

// lookAtDisk is how often the watchdog looks at the disk.
const lookAtDisk = 100 * time.Millisecond

const (
	// lateLook is a gap between two looks in which this process did not run, or
	// hardly: what the disk did meanwhile is not known, and nothing is held against
	// it.
	lateLook = 5 * lookAtDisk
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

	looked        time.Time // zero: never
	flush, oldest underWay
	// sick is why the node is; empty: it is well.
	sick string
	// bad is when a flush was last not quick, and flushes how many had come back.
	bad     time.Time
	flushes uint64
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
	lost := time.Duration(0)
	if gap := s.now.Sub(d.looked); !d.looked.IsZero() && gap > lateLook {
		lost = gap - lookAtDisk
	}
	d.looked = s.now
	if took := d.oldest.age(s.oldest.Began, s.now, lost); d.hung > 0 && took >= d.hung {
		return &hungError{s.oldest, took, d.hung}
	}
	if d.slow > 0 {
		d.judge(s, d.flush.age(s.flushes.Began, s.now, lost), s.flushes.Slowest-lost)
	}
	return nil
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

// underWay is how long one operation has been, without the time in which this
// process did not look.
type underWay struct {
	began time.Time
	lost  time.Duration
}

func (u *underWay) age(began, now time.Time, lost time.Duration) time.Duration {
	if began.IsZero() {
		*u = underWay{}
		return 0
	}
	if !began.Equal(u.began) {
		*u = underWay{began: began}
	}
	u.lost += min(lost, now.Sub(began))
	return now.Sub(began) - u.lost
}
