package wal

import "time"

// Flushes tells how the disk keeps up with the log. A flush is one block's write
// and its fsync, or the step to the next file: what acknowledgements wait for.
type Flushes struct {
	// Began is when the flush that is under way began; zero: none is.
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
	if began := l.flushing.Load(); began != 0 {
		f.Began = l.opened.Add(time.Duration(began - 1))
	}
	if file := l.flushFile.Load(); file != 0 {
		f.File = fileName(file)
	}
	return f
}

// flushBegins notes that a flush of a file is under way, until the returned
// function is called. There is one at a time: whoever flushes has the turn.
func (l *Log) flushBegins(file uint64) (ends func()) {
	l.flushFile.Store(file)
	began := int64(time.Since(l.opened))
	l.flushing.Store(began + 1)
	return func() {
		took := int64(time.Since(l.opened)) - began
		for old := l.slowest.Load(); took > old && !l.slowest.CompareAndSwap(old, took); {
			old = l.slowest.Load()
		}
		l.flushes.Add(1)
		l.flushing.Store(0)
	}
}
