package commitlog

import (
	"errors"
	"fmt"
	"sort"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// Chunk is what a read returns: whole batches in order, the first of which holds
// the offset asked for. Release gives the memory back; nil if there is nothing.
type Chunk struct {
	Parts     [][]byte // a part may hold several batches, and a batch may be two parts
	SizeBytes int
	Release   func()
}

// Read returns batches from the one that holds offset, up to maxBytes and before
// limit; the first one whole even if larger when minOne. An empty chunk means
// that nothing fits or that offset is at the log's end. Damage is a *CorruptError.
func (l *Log) Read(offset record.Offset, maxBytes int, minOne bool, limit record.Offset) (Chunk, error) {
	for {
		l.mu.RLock()
		if len(l.tail) > 0 && offset >= l.tail[0].base {
			c := readTail(l.tail, offset, maxBytes, minOne, limit)
			l.mu.RUnlock()
			return c, nil
		}
		i := sort.Search(len(l.segments), func(i int) bool { return l.segments[i].base > offset }) - 1
		if i < 0 {
			start, end := l.start, l.end
			l.mu.RUnlock()
			if offset >= end {
				return Chunk{}, nil
			}
			return Chunk{}, &CorruptError{l.dir, 0, fmt.Errorf("no segment holds offset %d of a log from %d to %d", offset, start, end)}
		}
		s := l.segments[i]
		size := s.size.Load()
		next := l.end
		if i+1 < len(l.segments) {
			next = l.segments[i+1].base
		} else if len(l.tail) > 0 {
			next = l.tail[0].base
		}
		l.mu.RUnlock()
		if offset >= next {
			return Chunk{}, nil
		}
		c, err := s.read(offset, maxBytes, minOne, min(limit, next), size)
		if errors.Is(err, errGone) {
			continue // dropped meanwhile: look again
		}
		return c, err
	}
}

// readTail takes batches from memory, without a copy. The caller holds a lock.
func readTail(tail []tailBatch, offset record.Offset, maxBytes int, minOne bool, limit record.Offset) Chunk {
	i := sort.Search(len(tail), func(i int) bool { return tail[i].next > offset })
	var c Chunk
	var held []*record.Buffer
	for ; i < len(tail); i++ {
		t := &tail[i]
		if t.next > limit || c.SizeBytes+t.sizeBytes > maxBytes && !(minOne && c.SizeBytes == 0) {
			break
		}
		c.Parts = append(c.Parts, t.head[:], t.body)
		c.SizeBytes += t.sizeBytes
		if t.buf != nil {
			held = append(held, t.buf.Retain())
		}
	}
	if c.SizeBytes > 0 {
		c.Release = func() {
			for _, b := range held {
				b.Release()
			}
		}
	}
	return c
}

// read serves from the file: locate by the index, read a stretch, find the
// batch, check all that is returned.
func (s *segment) read(offset record.Offset, maxBytes int, minOne bool, limit record.Offset, size int64) (Chunk, error) {
	f, err := s.acquire()
	if err != nil {
		return Chunk{}, err
	}
	defer s.release()
	rows, err := s.lookup(f)
	if err != nil {
		return Chunk{}, err
	}
	from := floorOffset(rows, s.base, offset)
	if h, ok := s.hint(offset); ok && h.position > from.position {
		from = h
	}
	pos, h, err := s.find(f, from, offset, size)
	if err != nil {
		return Chunk{}, err
	}
	want := int64(maxBytes)
	if first := int64(h.SizeBytes()); first > want {
		if !minOne {
			return Chunk{}, nil
		}
		want = first
	}
	want = min(want, size-pos)
	buf := record.NewBuffer(int(want))
	if n, err := f.ReadAt(buf.B, pos); n < len(buf.B) {
		buf.Release()
		return Chunk{}, fmt.Errorf("read %s at %d: %w", s.name(), pos, err)
	}
	n, next, err := s.check(buf.B, pos, h.BaseOffset, limit)
	if err != nil {
		buf.Release()
		return Chunk{}, err
	}
	if n == 0 {
		buf.Release()
		return Chunk{}, nil
	}
	s.setHint(row{offset: next, position: pos + int64(n)})
	return Chunk{Parts: [][]byte{buf.B[:n]}, SizeBytes: n, Release: buf.Release}, nil
}

// find walks headers from a row to the batch that holds offset.
func (s *segment) find(f vfs.File, from row, offset record.Offset, size int64) (int64, record.Header, error) {
	var at int64
	var found record.Header
	next := from.offset
	ok := false
	err := eachHeader(f, s, from.position, size, func(h record.Header, pos int64) bool {
		if h.BaseOffset != next || h.LastOffsetDelta < 0 {
			return false
		}
		next = h.NextOffset()
		if next > offset {
			at, found, ok = pos, h, true
			return false
		}
		return true
	})
	if err == nil && !ok {
		err = &CorruptError{s.name(), from.position, fmt.Errorf("offset %d is not there: offset %d is followed by something else", offset, next-1)}
	}
	return at, found, err
}

// check verifies whole batches from the start of b, which was read at pos and
// must begin with offset next. It returns how many bytes may be served.
func (s *segment) check(b []byte, pos int64, next, limit record.Offset) (int, record.Offset, error) {
	n := 0
	for len(b)-n >= record.HeaderBytes {
		h, err := record.ParseHeader(b[n:])
		if err != nil {
			return 0, 0, &CorruptError{s.name(), pos + int64(n), err}
		}
		if h.BaseOffset != next || h.LastOffsetDelta < 0 {
			return 0, 0, &CorruptError{s.name(), pos + int64(n), fmt.Errorf("base offset %d where %d is expected", h.BaseOffset, next)}
		}
		if h.SizeBytes() > len(b)-n || h.NextOffset() > limit {
			break
		}
		if _, err := record.Verify(b[n : n+h.SizeBytes()]); err != nil {
			if n > 0 {
				break // serve what is sound; the next read names the damage
			}
			return 0, 0, &CorruptError{s.name(), pos + int64(n), err}
		}
		n += h.SizeBytes()
		next = h.NextOffset()
	}
	return n, next, nil
}

// hint and setHint remember where the last reads ended: the next read of the
// same consumer begins there.
func (s *segment) hint(offset record.Offset) (row, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.hints {
		if h.offset == offset && h.position > 0 {
			return h, true
		}
	}
	return row{}, false
}

func (s *segment) setHint(r row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hints[s.nextHint%len(s.hints)] = r
	s.nextHint++
}
