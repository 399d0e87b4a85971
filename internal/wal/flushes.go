package wal

import "time"

// Flushes tells how the disk keeps up with the log. A flush is one block's write
// and its fsync, or the step to the next file: what acknowledgements wait for. Of
// blocks that are written ahead the write is timed, and then the fsync that makes
// them durable; together they are one flush.
type Flushes struct {
	// Began is when the flush that is under way began, the older one if there are two;
	// zero: none is.
	Began time.Time
	// File is the one that it is of, or the last one was; empty: there was none.
	File string
	// Count is how many have come back since Open.
	Count uint64
	// Slowest of those that have come back since the last call.
	Slowest time.Duration
}

// Flushes may be called by one goroutine at any time, while a flush hangs too: it
// takes no lock.
func (l *Log) Flushes() Flushes {
	f := Flushes{Count: l.flushes.Load(), Slowest: time.Duration(l.slowest.Swap(0))}
	oldest := int64(0)
	for i := range l.flushing {
		if began := l.flushing[i].Load(); began != 0 && (oldest == 0 || began < oldest) {
			oldest = began
		}
	}
	if oldest != 0 {
		f.Began = l.opened.Add(time.Duration(oldest - 1))
	}
	if file := l.flushFile.Load(); file != 0 {
		f.File = fileName(file)
	}
	return f
}

// flusher says whose flush it is. Each has one at a time.
type flusher int

const (
	turnFlush   flusher = iota // of whoever has the turn
	syncerFlush                // of the syncer, while others are written
)

// flush is one that is under way; the zero flush is none.
type flush struct {
	log   *Log
	by    flusher
	began int64 // nanoseconds since the log was opened
}

// flushBegins notes that a flush of a file is under way, until it ends or passes.
func (l *Log) flushBegins(by flusher, file uint64) flush {
	l.flushFile.Store(file)
	f := flush{l, by, int64(time.Since(l.opened))}
	l.flushing[by].Store(f.began + 1)
	return f
}

// ends says that it has come back.
func (f flush) ends() {
	if f.log != nil {
		f.log.flushes.Add(1)
		f.passes()
	}
}

// passes says that this part of it is done and the syncer's is to come, which is
// timed by itself: in between it waits for another flush, not for the disk.
func (f flush) passes() {
	if f.log == nil {
		return
	}
	l := f.log
	took := int64(time.Since(l.opened)) - f.began
	for old := l.slowest.Load(); took > old && !l.slowest.CompareAndSwap(old, took); {
		old = l.slowest.Load()
	}
	l.flushing[f.by].Store(0)
}
