package commitlog

import (
	"sync"

	"github.com/tube-mq/tube/internal/record"
)

// A reader far behind the tail asks for what follows as soon as it has digested what
// it got. In that time the processors may be idle, and reading and checking the next
// bytes is most of what the answer will take. So whoever served a reader in sequence
// may read on for it (Chunk.Ahead), and its next Read finds them checked, in memory.

// aheadBytes bounds what all readers of an OpenFiles have waiting for them. When
// there is no room a reader reads when it asks, as does every reader out of sequence.
const aheadBytes = 32 << 20

// aheads are chunks that wait for their readers, each for one.
type aheads struct {
	mu      sync.Mutex
	waiting map[place]*aheadChunk
	// sizeBytes is what is waiting and what is being read. Invariant: ≤ aheadBytes.
	sizeBytes int
}

// place is where a chunk begins. The segment is part of it, so that what is put in
// another's place at the same offset is never taken for it.
type place struct {
	seg    *segment
	offset record.Offset
}

type aheadChunk struct {
	Chunk
	next      record.Offset // where it ends
	roomBytes int           // what was reserved
	old       bool          // it was there at the last trim
}

// reserve takes room for a chunk that is about to be read; false if there is none.
func (a *aheads) reserve(roomBytes int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sizeBytes+roomBytes > aheadBytes {
		return false
	}
	a.sizeBytes += roomBytes
	return true
}

// put keeps a chunk for its reader. An empty one, or one that is there already,
// gives back its room.
func (a *aheads) put(at place, c *aheadChunk) {
	a.mu.Lock()
	if a.waiting[at] == nil && c.SizeBytes > 0 {
		if a.waiting == nil {
			a.waiting = map[place]*aheadChunk{}
		}
		a.waiting[at] = c
		a.mu.Unlock()
		return
	}
	a.sizeBytes -= c.roomBytes
	a.mu.Unlock()
	c.drop()
}

// take returns the chunk that begins there, if it is whole within the limits of a
// read. Whoever takes it releases it.
func (a *aheads) take(at place, maxBytes int, limit record.Offset) (Chunk, bool) {
	a.mu.Lock()
	c := a.waiting[at]
	if c == nil {
		a.mu.Unlock()
		return Chunk{}, false
	}
	delete(a.waiting, at)
	a.sizeBytes -= c.roomBytes
	a.mu.Unlock()
	if c.SizeBytes > maxBytes || c.next > limit {
		c.drop()
		return Chunk{}, false
	}
	return c.Chunk, true
}

// trim drops what was there at the call before: its reader went elsewhere.
func (a *aheads) trim() {
	a.dropWhere(func(_ place, c *aheadChunk) bool {
		if c.old {
			return true
		}
		c.old = true
		return false
	})
}

// forget drops what is of a segment.
func (a *aheads) forget(s *segment) {
	a.dropWhere(func(at place, _ *aheadChunk) bool { return at.seg == s })
}

func (a *aheads) dropWhere(doomed func(place, *aheadChunk) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for at, c := range a.waiting {
		if doomed(at, c) {
			delete(a.waiting, at)
			a.sizeBytes -= c.roomBytes
			c.drop()
		}
	}
}

func (c *aheadChunk) drop() {
	if c.Release != nil {
		c.Release()
	}
}

// readAhead reads what follows a chunk that ended at offset, for the reader who got
// that one with the same limits. What it cannot read is left to that reader, damage
// too. It does nothing if no read ended there lately, as when the segment is gone.
func (l *Log) readAhead(offset record.Offset, maxBytes int, limit record.Offset) {
	l.mu.Lock()
	if !l.ready || offset >= min(limit, l.end) || len(l.tail.pieces) > 0 && offset >= l.tail.pieces[0].first {
		l.mu.Unlock()
		return
	}
	r, err := l.locate(offset)
	l.mu.Unlock()
	if err != nil || r.hintPos == 0 {
		return
	}
	roomBytes := min(maxBytes, maxReadBytes)
	if !l.shared.ahead.reserve(roomBytes) {
		return
	}
	r.maxBytes, r.limit = maxBytes, limit
	ahead := &aheadChunk{roomBytes: roomBytes}
	if c, next, err := l.readFile(&r); err == nil {
		ahead.Chunk, ahead.next = c, next
	}
	l.shared.ahead.put(place{r.seg, offset}, ahead)
}
