package record

import (
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// keepFromBytes is the size from which on buffers are kept for use again
	// whatever the garbage collector does. A sync.Pool alone is emptied by every
	// second collection, and a buffer made anew costs a page fault for each 4 KiB of
	// it: a fifth of the node's processor time with 1,000 partitions.
	keepFromBytes = 4 << 10
	// keepBytes bounds what is kept of all sizes together. It is about what one
	// round of flushing gives back at once.
	keepBytes = 64 << 20
)

// kept is what all lists hold, in bytes.
var kept atomic.Int64

// freeList has the buffers of one class that nobody uses, the last one used on
// top.
type freeList struct {
	mu   sync.Mutex
	bufs []*Buffer
	// unused is how many of bufs, from the bottom, nobody has needed since the last
	// TrimBuffers. Invariant: unused ≤ len(bufs).
	unused int
}

// get takes a buffer; nil if there is none.
func (l *freeList) get() *Buffer {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.bufs) - 1
	if n < 0 {
		return nil
	}
	b := l.bufs[n]
	l.bufs[n] = nil
	l.bufs = l.bufs[:n]
	l.unused = min(l.unused, n)
	kept.Add(-int64(cap(b.B)))
	return b
}

// put keeps a buffer; it reports false if it is too small for that or there is
// enough already.
func (l *freeList) put(b *Buffer) bool {
	size := int64(cap(b.B))
	if size < keepFromBytes {
		return false
	}
	if kept.Add(size) > keepBytes {
		kept.Add(-size)
		return false
	}
	l.mu.Lock()
	l.bufs = append(l.bufs, b)
	l.mu.Unlock()
	return true
}

// TrimBuffers leaves to the garbage collector those released buffers that nobody
// has needed since the call before, so that memory goes back after a time of load.
// To be called now and then.
func TrimBuffers() {
	for i := range free {
		free[i].trim()
	}
}

func (l *freeList) trim() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.bufs[:l.unused] {
		kept.Add(-int64(cap(b.B)))
	}
	l.bufs = slices.Delete(l.bufs, 0, l.unused)
	l.unused = len(l.bufs)
}
