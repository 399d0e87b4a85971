package commitlog

import (
	"container/list"
	"errors"
	"fmt"
	"sync"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// OpenFiles keeps files open, and indexes of closed segments in memory, for the
// readers of many logs: the most recently used ones, up to its limits. What is
// being read stays whatever the limits say.
type OpenFiles struct {
	maxFiles      int
	maxIndexBytes int64

	mu         sync.Mutex
	bySegment  map[*segment]*openFile
	recent     *list.List // of *openFile, the most recently used in front
	indexBytes int64

	ahead  aheads
	onward onwards
}

// openFile is a segment's file, open for reading.
type openFile struct {
	seg   *segment
	f     vfs.File
	el    *list.Element
	users int  // guarded by OpenFiles.mu
	gone  bool // to be closed by the last user

	mu    sync.Mutex // guards loading, and opening direct
	index *closedIndex
	// direct is the file opened once more, past the page cache; nil: not yet.
	direct vfs.File
}

// closedIndex is a closed segment's index. When the segment is damaged it ends
// there: offsets from brokenAt on cannot be found.
type closedIndex struct {
	entries  []entry
	maxTime  int64
	rebuilt  bool
	damage   error
	brokenAt record.Offset
}

// NewOpenFiles returns a cache of at most maxFiles files and maxIndexBytes of indexes.
func NewOpenFiles(maxFiles int, maxIndexBytes int64) *OpenFiles {
	return &OpenFiles{
		maxFiles: maxFiles, maxIndexBytes: maxIndexBytes,
		bySegment: map[*segment]*openFile{}, recent: list.New(), onward: onwards{at: map[place]*onward{}},
	}
}

// Trim gives back what was read ahead for readers who have not come for it since the
// call before. To be called now and then.
func (o *OpenFiles) Trim() { o.ahead.trim() }

// sharedFiles serves all logs whose Config names no other.
var sharedFiles = NewOpenFiles(1024, 64<<20)

// acquire opens the segment's file if it is not open; release must follow.
func (o *OpenFiles) acquire(s *segment) (*openFile, error) {
	o.mu.Lock()
	if of := o.bySegment[s]; of != nil {
		of.users++
		o.recent.MoveToFront(of.el)
		o.mu.Unlock()
		return of, nil
	}
	o.mu.Unlock()
	f, err := s.fs.Open(s.path, vfs.Mode{})
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if of := o.bySegment[s]; of != nil { // somebody was faster
		_ = f.Close()
		of.users++
		return of, nil
	}
	of := &openFile{seg: s, f: f, users: 1}
	of.el = o.recent.PushFront(of)
	o.bySegment[s] = of
	o.shrink()
	return of, nil
}

func (o *OpenFiles) release(of *openFile) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of.users--
	if of.gone && of.users == 0 {
		of.close()
	}
}

// close is for when nobody uses it.
func (of *openFile) close() {
	_ = of.f.Close()
	if of.direct != nil {
		_ = of.direct.Close()
	}
}

// pastCache is the file for reading past the page cache, in whole pages. Where that
// cannot be done it goes through it.
func (of *openFile) pastCache() (vfs.File, error) {
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.direct != nil {
		return of.direct, nil
	}
	f, err := of.seg.fs.Open(of.seg.path, vfs.Mode{Direct: true})
	if err != nil {
		return nil, err
	}
	of.direct = f
	return f, nil
}

// forget closes a segment's file, now or when its last reader is done.
func (o *OpenFiles) forget(s *segment) {
	o.ahead.forget(s)
	o.mu.Lock()
	defer o.mu.Unlock()
	for at := range o.onward.at {
		if at.seg == s {
			o.onward.drop(at)
		}
	}
	if of := o.bySegment[s]; of != nil {
		o.remove(of)
	}
}

func (o *OpenFiles) remove(of *openFile) {
	delete(o.bySegment, of.seg)
	o.recent.Remove(of.el)
	if of.index != nil {
		o.indexBytes -= of.index.sizeBytes()
	}
	of.gone = true
	if of.users == 0 {
		of.close()
	}
}

func (o *OpenFiles) shrink() {
	for el := o.recent.Back(); el != nil && (o.recent.Len() > o.maxFiles || o.indexBytes > o.maxIndexBytes); {
		of := el.Value.(*openFile)
		el = el.Prev()
		if of.users == 0 {
			o.remove(of)
		}
	}
}

func (c *closedIndex) sizeBytes() int64 { return int64(len(c.entries)) * entryBytes }

// indexOf returns the index of a closed segment that ends with offset next at
// sizeBytes, from the files or made anew. again asks to distrust the files.
func (o *OpenFiles) indexOf(of *openFile, next record.Offset, sizeBytes, interval int64, again bool) *closedIndex {
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.index != nil && (!again || of.index.rebuilt) {
		return of.index
	}
	ix := loadIndex(of.seg, of.f, next, sizeBytes, interval, again)
	o.mu.Lock()
	defer o.mu.Unlock()
	if of.index != nil && !of.gone {
		o.indexBytes -= of.index.sizeBytes()
	}
	of.index = ix
	if !of.gone {
		o.indexBytes += ix.sizeBytes()
		o.shrink()
	}
	return ix
}

// loadIndex reads a closed segment's index, and completes it by a walk over the
// segment from the last row that is good. What had to be made is written down
// again, if that can be done.
func loadIndex(s *segment, f vfs.File, next record.Offset, sizeBytes, interval int64, again bool) *closedIndex {
	var rows []entry
	if !again {
		rows = readRows(s, sizeBytes)
	}
	if n := len(rows); n > 0 && s.base+record.Offset(rows[n-1].rel) == next && int64(rows[n-1].pos) == sizeBytes {
		return &closedIndex{entries: rows, maxTime: rows[n-1].before}
	}
	b, good, err := resume(s, f, rows, next, sizeBytes, interval, false)
	ix := &closedIndex{entries: b.entries, maxTime: b.maxTime, rebuilt: good == 0}
	if err != nil {
		ix.damage, ix.brokenAt = err, b.next
		return ix
	}
	ix.entries = append(ix.entries, b.final(next, sizeBytes))
	// A copy with its own count: the segment's is the writer's.
	w := &segment{base: s.base, path: s.path, fs: s.fs}
	if w.cutRows(good) == nil {
		_ = w.writeRows(ix.entries[good:], false)
	}
	return ix
}

// resumed is a builder that knows which offset comes next.
type resumed struct {
	builder
	next record.Offset
	pos  int64
}

// resume walks over a segment from its last good row to where offset end begins,
// or to sizeBytes if end comes there. good is how many of the rows were kept.
func resume(s *segment, f vfs.File, rows []entry, end record.Offset, sizeBytes, interval int64, verify bool) (r resumed, good int, err error) {
	for n := len(rows); n > 0 && (s.base+record.Offset(rows[n-1].rel) >= end || int64(rows[n-1].pos) >= sizeBytes); n = len(rows) {
		rows = rows[:n-1]
	}
	r = resumed{builder: builder{base: s.base, interval: interval, entries: rows, maxTime: noTime}, next: s.base}
	if n := len(rows); n > 0 {
		last := rows[n-1]
		r.next, r.pos, r.maxTime = s.base+record.Offset(last.rel), int64(last.pos), last.before
	}
	r.pos, r.next, err = walk(f, s.path, r.pos, r.next, sizeBytes, verify, func(h record.Header, pos int64) bool {
		if n := len(rows); h.BaseOffset >= end || n > 0 && pos == int64(rows[n-1].pos) && h.LeaderEpoch != rows[n-1].epoch {
			return false
		}
		r.add(h, pos)
		return true
	})
	if err == nil && r.next != end {
		err = &CorruptError{s.path, r.pos, fmt.Errorf("%w: the segment goes on to offset %d, must end at %d", record.ErrCorrupt, r.next, end)}
	}
	if err != nil && r.next == end {
		err = nil // what follows is not wanted
	}
	if err != nil && len(rows) > 0 {
		// The rows may be to blame: once more without them.
		return resume(s, f, nil, end, sizeBytes, interval, verify)
	}
	return r, len(rows), err
}

// readRows reads what is good of a segment's index files.
func readRows(s *segment, sizeBytes int64) []entry {
	offsets, err1 := vfs.ReadFile(s.fs, s.indexPath(), maxIndexFileBytes)
	times, err2 := vfs.ReadFile(s.fs, s.timePath(), maxIndexFileBytes)
	if errors.Join(err1, err2) != nil {
		return nil // made anew
	}
	return parseRows(offsets, times, s.base, sizeBytes)
}

// maxIndexFileBytes is far more than any segment needs.
const maxIndexFileBytes = 64 << 20
