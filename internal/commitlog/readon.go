package commitlog

import (
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// ReadOn is Read, of at least one batch, for who goes through the log in sequence, once,
// and keeps what he is given: it is in one piece, and nobody else's.
//
// While he deals with a piece the next one is read, past the page cache. Filling that
// was half of what a queue's reader cost the node (1.2 µs a KiB on memory that the
// kernel had not used before, against 0.1), and he waited for the disk. Who comes
// later does not find it there: readers of the same history are few, and those
// that keep pace share what is decoded.
func (l *Log) ReadOn(offset record.Offset, maxBytes int, limit record.Offset) ([]byte, error) {
	c, err := l.read(offset, maxBytes, true, limit, true)
	if err != nil || c.Release == nil {
		return c.join(), err
	}
	defer c.Release()
	return c.join(), nil
}

// join is the chunk's bytes: those of one that is to be released, and so of somebody
// else, copied.
func (c *Chunk) join() []byte {
	if c.Release == nil && len(c.Parts) == 1 {
		return c.Parts[0]
	}
	return slices.Concat(c.Parts...)
}

const (
	// maxOnwardBytes are read ahead of all logs' readers together and not asked for
	// yet; with more, readers read for themselves.
	maxOnwardBytes = 32 << 20
	// minOnwardBytes are worth a read of their own.
	minOnwardBytes = 64 << 10
	// keepOnward is how long what was read ahead waits for its reader.
	keepOnward = 10 * time.Second
)

// onward is a part of a segment that is being read, or was, for a reader who is
// expected there.
type onward struct {
	pos   int64 // in the file, where the batch begins
	from  int64 // where bytes begin: the page of pos
	size  int64
	began time.Time

	done  chan struct{} // closed when the two below are there
	bytes []byte        // from the page's beginning
	err   error
}

// onwards are what is read ahead, by where its reader is expected. Guarded by
// OpenFiles.mu.
type onwards struct {
	at    map[place]*onward
	bytes int64
}

// take is what was read ahead for a reader at a place; nil: nothing, or it failed, and
// the reader's own read will say why.
func (o *OpenFiles) take(at place) *onward {
	o.mu.Lock()
	a := o.onward.at[at]
	o.onward.drop(at)
	o.mu.Unlock()
	if a == nil {
		return nil
	}
	if <-a.done; a.err != nil {
		return nil
	}
	return a
}

func (s *onwards) drop(at place) {
	if a := s.at[at]; a != nil {
		delete(s.at, at)
		s.bytes -= a.size
	}
}

// expect makes room for what is to be read ahead and has the file stay open, for
// read; nil: somebody else is expected there already, or there is no room.
func (o *OpenFiles) expect(of *openFile, at place, pos, sizeBytes int64) *onward {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for other, a := range o.onward.at {
		if now.Sub(a.began) > keepOnward {
			o.onward.drop(other)
		}
	}
	if o.onward.at[at] != nil || o.onward.bytes+sizeBytes > maxOnwardBytes {
		return nil
	}
	a := &onward{pos: pos, from: pos &^ (pageBytes - 1), size: sizeBytes, began: now, done: make(chan struct{})}
	o.onward.at[at] = a
	o.onward.bytes += sizeBytes
	of.users++
	return a
}

// read reads from the file past the page cache. Behind the last page that is full, up
// to the file's end, there may be less than whole pages.
func (a *onward) read(of *openFile) {
	defer close(a.done)
	f, err := of.pastCache()
	if err != nil {
		a.err = err
		return
	}
	end := a.pos + a.size
	size := int((end - a.from + pageBytes - 1) &^ (pageBytes - 1))
	b := record.Kept(size)
	if !vfs.Aligned(b) {
		b = vfs.AlignedBytes(size)
	}
	if n, err := f.ReadAt(b, a.from); int64(n) < end-a.from {
		a.err = err
		return
	}
	a.bytes = b[:end-a.from]
}

// readOnward begins to read where the reader of r, who got sizeBytes and comes to offset
// at pos, will go on.
func (l *Log) readOnward(of *openFile, r *fileRead, offset record.Offset, pos int64, sizeBytes int) {
	// Whole pages, for buffers of whole powers of two.
	end := pos&^(pageBytes-1) + min(int64(max(r.maxBytes, sizeBytes))+pageBytes-1, maxReadBytes)&^(pageBytes-1)
	n := min(end, r.sizeBytes) - pos
	if n < minOnwardBytes {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ready || r.seg.dropped {
		return
	}
	if a := l.shared.expect(of, place{r.seg, offset}, pos, n); a != nil {
		l.reading.Go(func() {
			defer l.shared.release(of)
			a.read(of)
		})
	}
}
