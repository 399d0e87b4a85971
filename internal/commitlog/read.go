package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"sort"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// Chunk is what a read returns: whole batches in order, the first of which holds
// the offset asked for. A part holds several batches, or the beginning of one, its header
// at least, whose rest is the next part. Release gives the memory back; nil if there is nothing.
// Ahead, if it is not nil, reads what follows into memory, so that a next Read with
// the same limits finds it there. It is for when the chunk is on its way: it takes as
// long as that Read would have.
type Chunk struct {
	Parts     [][]byte
	SizeBytes int
	Release   func()
	Ahead     func()
}

// maxReadBytes bounds one read from a file, but for a single larger batch.
const maxReadBytes = 8 << 20

// Read returns batches from the one that holds offset on, up to maxBytes and
// ending at or before limit; the first one even if it is larger when minOne. An
// empty chunk means that there is nothing (yet) at offset, or that nothing fits.
// It may return less than there is: where memory begins, or the next segment.
//
// Errors: ErrOutOfRange below the log start when the data is gone; *CorruptError.
func (l *Log) Read(offset record.Offset, maxBytes int, minOne bool, limit record.Offset) (Chunk, error) {
	return l.read(offset, maxBytes, minOne, limit, false)
}

// read is Read; on says that it is for ReadOn.
func (l *Log) read(offset record.Offset, maxBytes int, minOne bool, limit record.Offset, on bool) (Chunk, error) {
	for {
		l.mu.Lock()
		limit = min(limit, l.end)
		if offset >= limit {
			l.mu.Unlock()
			return Chunk{}, nil
		}
		if len(l.tail.pieces) > 0 && offset >= l.tail.pieces[0].first {
			c := l.tail.read(offset, maxBytes, minOne, limit, l.end)
			l.mu.Unlock()
			return c, nil
		}
		r, err := l.locate(offset)
		l.mu.Unlock()
		if err != nil {
			return Chunk{}, err
		}
		if !on {
			if c, ok := l.shared.ahead.take(place{r.seg, offset}, maxBytes, limit); ok {
				return c, nil
			}
		}
		r.maxBytes, r.minOne, r.limit, r.on = maxBytes, minOne, limit, on
		c, _, err := l.readFile(&r)
		if err != nil && l.wasDropped(r.seg) {
			continue // its file may be gone by now
		}
		return c, err
	}
}

func (l *Log) wasDropped(s *segment) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.dropped
}

// errEpoch: a batch has not the leader epoch that it must have.
var errEpoch = fmt.Errorf("%w: leader epoch", record.ErrCorrupt)

// fileRead is a read from one segment's file.
type fileRead struct {
	seg       *segment
	offset    record.Offset
	next      record.Offset // where the segment, or its part on disk, ends
	sizeBytes int64         // of that part
	entries   []entry       // nil: in the files
	hintPos   int64         // where offset begins, if a read before ended there; else 0
	ahead     int64         // the disk was asked to read up to here; 0: nothing

	maxBytes int
	minOne   bool
	limit    record.Offset
	on       bool // for ReadOn: what is read is the caller's to keep
}

// locate finds the segment that holds offset. The caller holds mu.
func (l *Log) locate(offset record.Offset) (fileRead, error) {
	i := sort.Search(len(l.segments), func(i int) bool { return l.segments[i].base > offset }) - 1
	if i < 0 {
		if offset < l.start {
			return fileRead{}, fmt.Errorf("%w: %d is below the log start %d", ErrOutOfRange, offset, l.start)
		}
		return fileRead{}, &CorruptError{l.dir, 0, fmt.Errorf("no segment holds offset %d of a log from %d to %d", offset, l.start, l.end)}
	}
	s := l.segments[i]
	r := fileRead{seg: s, offset: offset, next: l.nextOf(i), sizeBytes: s.flushedBytes}
	if len(l.tail.pieces) > 0 {
		r.next = min(r.next, l.tail.pieces[0].first)
	}
	if s.index != nil {
		r.entries = s.index.entries
	}
	for _, h := range l.hints {
		if h.seg == s && h.offset == offset {
			r.hintPos, r.ahead = h.pos, h.ahead
		}
	}
	return r, nil
}

// readFile serves from a segment's file: one read that begins at the index
// entry, or where the last read ended, and goes on for maxBytes. Only a batch
// larger than that needs a second one. next is where the chunk ends.
func (l *Log) readFile(r *fileRead) (c Chunk, next record.Offset, err error) {
	of, err := l.shared.acquire(r.seg)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = &CorruptError{r.seg.path, 0, err}
		}
		return Chunk{}, 0, err
	}
	defer l.shared.release(of)
	closed := r.entries == nil
	if closed {
		ix := l.shared.indexOf(of, r.next, r.sizeBytes, l.interval, false)
		if ix.damage != nil && r.offset >= ix.brokenAt {
			return Chunk{}, 0, ix.damage
		}
		r.entries = ix.entries
	}
	c, next, err = l.readAt(of, r)
	var damage *CorruptError
	if closed && errors.As(err, &damage) && !errors.Is(err, errEpoch) {
		// The index may be to blame: once more with one made from the segment.
		// Not for an epoch, which a new index would take from the damaged batch.
		ix := l.shared.indexOf(of, r.next, r.sizeBytes, l.interval, true)
		if ix.damage != nil && r.offset >= ix.brokenAt {
			return Chunk{}, 0, ix.damage
		}
		r.entries, r.hintPos = ix.entries, 0
		c, next, err = l.readAt(of, r)
	}
	return c, next, err
}

func (l *Log) readAt(of *openFile, r *fileRead) (Chunk, record.Offset, error) {
	i := floorOffset(r.entries, int64(r.offset-r.seg.base))
	if i < 0 {
		return Chunk{}, 0, &CorruptError{r.seg.path, 0, fmt.Errorf("offset %d is not in the index", r.offset)}
	}
	c := cursor{r: r, entry: i, pos: int64(r.entries[i].pos), next: r.seg.base + record.Offset(r.entries[i].rel)}
	if err := l.begin(of, r, &c); err != nil {
		return Chunk{}, 0, err
	}
	if err := c.skip(of); err != nil {
		c.buf.Release()
		return Chunk{}, 0, err
	}
	c.first = c.at
	err := c.take(of)
	if c.at == c.first {
		c.buf.Release()
		return Chunk{}, 0, err
	}
	// What is sound before damage is served; the next read names the damage.
	out := Chunk{Parts: [][]byte{c.buf.B[c.first:c.at:c.at]}, SizeBytes: c.at - c.first}
	ahead := int64(0)
	switch {
	case r.on:
		l.readOnward(of, r, c.next, c.pos+int64(c.at), out.SizeBytes)
	case r.hintPos > 0:
		ahead = prefetch(of.f, c.pos+int64(len(c.buf.B)), r.ahead, r.sizeBytes)
	}
	l.remember(hint{r.seg, c.next, c.pos + int64(c.at), ahead})
	if r.on {
		return out, c.next, nil
	}
	out.Release = c.buf.Release
	if r.hintPos > 0 && err == nil && c.next < min(r.next, r.limit) {
		next, maxBytes, limit := c.next, r.maxBytes, r.limit
		out.Ahead = func() { l.readAhead(next, maxBytes, limit) }
	}
	return out, c.next, nil
}

// begin fills the cursor from the index entry on, or where the last read ended, or has
// what was read onward.
func (l *Log) begin(of *openFile, r *fileRead, c *cursor) error {
	if r.on {
		if a := l.shared.take(place{r.seg, r.offset}); a != nil {
			c.buf, c.pos, c.at, c.next = record.KeptBuffer(a.bytes), a.from, int(a.pos-a.from), r.offset
			return nil
		}
	}
	want := min(int64(max(r.maxBytes, 0)), maxReadBytes)
	if r.hintPos > 0 {
		c.pos, c.next = r.hintPos, r.offset
		want = usefulBytes(r.entries, c.pos, want, l.interval)
	} else {
		want += l.interval
	}
	return c.fill(of, max(want, record.HeaderBytes))
}

// prefetchBytes is how far ahead of a reader in sequence the disk is asked to read.
const prefetchBytes = 4 << 20

// prefetch has the page cache filled where the next reads will be, and returns up
// to where. Segments are written past the page cache, so the first reader behind
// the tail finds nothing there, and the kernel's own readahead is small. It asks for
// each byte once, at least half of prefetchBytes at a time: asking walks over the page
// cache, which was an eighth of a reader's cost when every read asked for all of it.
func prefetch(f vfs.File, from, ahead, sizeBytes int64) int64 {
	p, ok := f.(vfs.Prefetcher)
	if !ok || ahead-from > prefetchBytes/2 {
		return ahead
	}
	to := min(from+prefetchBytes, sizeBytes)
	if from = max(from, ahead); from < to {
		p.Prefetch(from, to-from)
	}
	return max(to, ahead)
}

func (l *Log) remember(h hint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.seg.dropped || !l.ready {
		return
	}
	l.hints[l.nextHint] = h
	l.nextHint = (l.nextHint + 1) % len(l.hints)
}

// cursor goes over the batches of a segment that are in buf.
type cursor struct {
	r     *fileRead
	entry int // the last index entry at or before
	buf   *record.Buffer
	pos   int64         // in the file, where buf begins
	at    int           // in buf, where the next batch begins
	first int           // in buf, where what is served begins
	next  record.Offset // its offset
}

func (c *cursor) corrupt(err error) error {
	return &CorruptError{c.r.seg.path, c.pos + int64(c.at), err}
}

// fill reads n bytes, or what there is, from where the cursor is. What was in
// buf is gone, so it is for when nothing was taken yet.
func (c *cursor) fill(of *openFile, n int64) error {
	c.pos += int64(c.at)
	c.at, c.first = 0, 0
	c.buf.Release()
	size := int(max(0, min(n, c.r.sizeBytes-c.pos)))
	if c.r.on {
		c.buf = record.KeptBuffer(record.Kept(size))
	} else {
		c.buf = record.NewBuffer(size)
	}
	if err := readFull(of.f, c.buf.B, c.pos); err != nil {
		err = c.corrupt(err)
		c.buf.Release()
		c.buf = nil
		return err
	}
	return nil
}

// header decodes the next batch's header, which must be the one that belongs there.
func (c *cursor) header(of *openFile) (record.Header, error) {
	if len(c.buf.B)-c.at < record.HeaderBytes {
		if err := c.fill(of, max(record.HeaderBytes, min(int64(c.r.maxBytes), maxReadBytes))); err != nil {
			return record.Header{}, err
		}
	}
	pos := c.pos + int64(c.at)
	h, err := headerAt(c.buf.B[c.at:], c.next, c.r.sizeBytes-pos)
	if err == nil && h.NextOffset() > c.r.next {
		err = fmt.Errorf("%w: offsets to %d where they must end before %d", record.ErrCorrupt, h.LastOffset(), c.r.next)
	}
	for e := c.r.entries; c.entry+1 < len(e) && int64(e[c.entry+1].pos) <= pos; {
		c.entry++
	}
	if want := c.r.entries[c.entry].epoch; err == nil && h.LeaderEpoch != want {
		err = fmt.Errorf("%w: %d, the index has %d", errEpoch, h.LeaderEpoch, want)
	}
	if err != nil {
		return h, c.corrupt(err)
	}
	return h, nil
}

// skip goes to the batch that holds the offset asked for.
func (c *cursor) skip(of *openFile) error {
	for {
		h, err := c.header(of)
		if err != nil {
			return err
		}
		if h.NextOffset() > c.r.offset {
			return nil
		}
		c.next = h.NextOffset()
		if c.at += h.SizeBytes(); c.at > len(c.buf.B) {
			if err := c.fill(of, max(record.HeaderBytes, min(int64(c.r.maxBytes), maxReadBytes))); err != nil {
				return err
			}
		}
	}
}

// take goes over the batches that fit, checking each. It stops without an error
// where the first one does not fit.
func (c *cursor) take(of *openFile) error {
	total := 0
	for c.next < c.r.limit && c.next < c.r.next {
		if total > 0 && len(c.buf.B)-c.at < record.HeaderBytes {
			return nil
		}
		h, err := c.header(of)
		if err != nil {
			return err
		}
		n := h.SizeBytes()
		if h.NextOffset() > c.r.limit || total+n > c.r.maxBytes && (total > 0 || !c.r.minOne) {
			return nil
		}
		if n > len(c.buf.B)-c.at {
			if total > 0 {
				return nil
			}
			if err := c.fill(of, max(int64(n), min(int64(c.r.maxBytes), maxReadBytes))); err != nil {
				return err
			}
		}
		if _, err := record.Verify(c.buf.B[c.at : c.at+n]); err != nil {
			return c.corrupt(err)
		}
		total += n
		c.at += n
		c.next = h.NextOffset()
	}
	return nil
}
