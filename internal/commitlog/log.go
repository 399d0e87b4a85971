package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// Config of a Log.
type Config struct {
	FS           vfs.FS
	Dir          string        // the partition's own folder
	SegmentBytes int64         // a segment is closed when it would grow beyond; default 1 GiB
	SegmentAge   time.Duration // or when its first batch is older; default 7 days
	// Start is the log start that the owner remembers: where an empty log begins.
	Start record.Offset
	Clock func() time.Time // default time.Now
}

// Log is one partition's batches. One owner, many readers.
type Log struct {
	fs           vfs.FS
	dir          string
	clock        func() time.Time
	segmentBytes atomic.Int64
	segmentAge   atomic.Int64

	// mu guards the list of segments and the tail; never held during I/O.
	mu       sync.RWMutex
	segments []*segment // by base offset; the last one is written to
	// tail are batches that are not in a file yet, oldest first. While a flush
	// is writing the first of them they stay readable here.
	tail      []tailBatch
	tailBytes int64
	start     record.Offset
	end       record.Offset

	// The owner's own, for Flush, Sync and Sweep, one at a time.
	dirDirty bool
	doomed   []string // files to be removed by Sweep
	failed   atomic.Pointer[error]
}

// tailBatch is a batch in memory: its header with the offset and the epoch that
// it was given, and the rest where the producer's request has it.
type tailBatch struct {
	base, next record.Offset
	maxTime    int64
	epoch      record.Epoch
	sizeBytes  int
	head       *[record.HeaderBytes]byte
	body       []byte
	buf        *record.Buffer
}

// doomedSuffix marks files of dropped segments until Sweep removes them.
const doomedSuffix = ".deleted"

// Open opens or makes a partition's log. It looks at names and sizes only; the
// owner then calls Cut to say where the log ends.
func Open(cfg Config) (*Log, error) {
	l := &Log{fs: cfg.FS, dir: cfg.Dir, clock: cfg.Clock, start: cfg.Start, end: cfg.Start}
	if l.clock == nil {
		l.clock = time.Now
	}
	l.Configure(cfg.SegmentBytes, cfg.SegmentAge)
	names, err := l.fs.List(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil // made with the first segment
	}
	if err != nil {
		return nil, fmt.Errorf("commit log: %w", err)
	}
	for _, n := range names {
		switch base, isLog := strings.CutSuffix(n, ".log"); {
		case strings.HasSuffix(n, doomedSuffix):
			l.doomed = append(l.doomed, n)
		case isLog:
			o, err := strconv.ParseInt(base, 10, 64)
			if err != nil || len(base) != 20 || o < 0 {
				return nil, fmt.Errorf("commit log: %s is not a segment's name", path.Join(l.dir, n))
			}
			st, err := l.fs.Stat(path.Join(l.dir, n))
			if err != nil {
				return nil, fmt.Errorf("commit log: %w", err)
			}
			s := &segment{fs: l.fs, dir: l.dir, base: record.Offset(o), maxTime: minTime, began: l.clock()}
			s.size.Store(st.SizeBytes)
			l.segments = append(l.segments, s)
		}
	}
	return l, nil
}

// Configure takes over changed settings, for the next segment on.
func (l *Log) Configure(segmentBytes int64, segmentAge time.Duration) {
	if segmentBytes <= 0 {
		segmentBytes = 1 << 30
	}
	if segmentAge <= 0 {
		segmentAge = 7 * 24 * time.Hour
	}
	l.segmentBytes.Store(segmentBytes)
	l.segmentAge.Store(int64(segmentAge))
}

// Cut makes the log end at end, which must be a batch's boundary: what is behind
// it was not covered by the owner's checkpoint and will be appended again. A log
// that ends before has lost something.
func (l *Log) Cut(end record.Offset) error {
	for len(l.segments) > 0 {
		s := l.segments[len(l.segments)-1]
		if s.base < end {
			break
		}
		l.segments = l.segments[:len(l.segments)-1]
		if err := l.doom(s); err != nil {
			return err
		}
	}
	l.end = end
	if len(l.segments) == 0 {
		if end != l.start {
			return &CorruptError{l.dir, 0, fmt.Errorf("the log should reach from %d to %d, but there is no segment", l.start, end)}
		}
		return nil
	}
	if first := l.segments[0].base; first > l.start {
		return &CorruptError{l.dir, 0, fmt.Errorf("the log should start at %d, but its first segment starts at %d", l.start, first)}
	}
	s := l.segments[len(l.segments)-1]
	f, err := s.acquire()
	if err != nil {
		return fmt.Errorf("commit log: %w", err)
	}
	defer s.release()
	rows := s.readRows()
	for len(rows) > 0 && rows[len(rows)-1].offset >= end {
		rows = rows[:len(rows)-1]
	}
	indexed := len(rows)
	rows, pos, err := s.seek(f, rows, end)
	if err != nil {
		return err
	}
	s.rows, s.loaded, s.indexed = rows, true, int64(indexed)
	if n := len(rows); n > 0 {
		s.lastRow = rows[n-1].position
	}
	if pos < s.size.Load() {
		if err := f.Truncate(pos); err != nil {
			return l.fail(fmt.Errorf("cut %s to %d bytes: %w", s.name(), pos, err))
		}
		s.size.Store(pos)
		s.dirty = true
	}
	if s.maxTime, err = s.newest(f); err != nil {
		return err
	}
	l.dropBelowStart()
	return nil
}

// seek walks to where the batch before end stops, which must be exactly there.
func (s *segment) seek(f vfs.File, rows []row, end record.Offset) ([]row, int64, error) {
	at := row{s.base, 0, minTime}
	if len(rows) > 0 {
		at = rows[len(rows)-1]
	}
	last, maxTime, next, pos := at.position, at.maxTime, at.offset, at.position
	err := eachHeader(f, s, at.position, s.size.Load(), func(h record.Header, p int64) bool {
		if next >= end || h.BaseOffset != next || h.LastOffsetDelta < 0 || p+int64(h.SizeBytes()) > s.size.Load() {
			return false
		}
		if p-last >= indexInterval {
			rows = append(rows, row{h.BaseOffset, p, maxTime})
			last = p
		}
		maxTime = max(maxTime, h.MaxTimestamp)
		next, pos = h.NextOffset(), p+int64(h.SizeBytes())
		return true
	})
	if next == end {
		return rows, pos, nil
	}
	if err == nil {
		err = fmt.Errorf("offset %d follows, %d is missing", next, end-1)
	}
	var c *CorruptError
	if !errors.As(err, &c) {
		err = &CorruptError{s.name(), pos, err}
	}
	return nil, 0, err
}

// fail poisons the log: a failed write is never tried again.
func (l *Log) fail(err error) error {
	err = fmt.Errorf("commit log %s: %w", l.dir, err)
	l.failed.CompareAndSwap(nil, &err)
	return *l.failed.Load()
}

// Append adds a batch that has been given its offset and epoch in h. It is
// readable at once. buf holds batch and is retained until it is in a file.
func (l *Log) Append(batch []byte, h record.Header, buf *record.Buffer) error {
	t := newTail(batch, h, buf)
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.BaseOffset != l.end {
		panic(fmt.Sprintf("commitlog: batch at %d appended to a log that ends at %d", h.BaseOffset, l.end))
	}
	l.tail = append(l.tail, t)
	l.tailBytes += int64(t.sizeBytes)
	l.end = t.next
	return nil
}

func newTail(batch []byte, h record.Header, buf *record.Buffer) tailBatch {
	t := tailBatch{
		base: h.BaseOffset, next: h.NextOffset(), maxTime: h.MaxTimestamp, epoch: h.LeaderEpoch, sizeBytes: len(batch),
		head: new([record.HeaderBytes]byte), body: batch[record.HeaderBytes:], buf: buf,
	}
	copy(t.head[:], batch)
	record.PutBaseOffset(t.head[:], h.BaseOffset)
	record.PutLeaderEpoch(t.head[:], h.LeaderEpoch)
	if buf != nil {
		buf.Retain()
	}
	return t
}

// TailBytes is how much is in memory only.
func (l *Log) TailBytes() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.tailBytes
}

// Bounds are the offsets that the log holds, memory included.
func (l *Log) Bounds() (start, end record.Offset) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.start, l.end
}

// SizeBytes is what the batches take, in files and in memory.
func (l *Log) SizeBytes() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	n := l.tailBytes
	for _, s := range l.segments {
		n += s.size.Load()
	}
	return n
}

// maxFlushParts bounds one write.
const maxFlushParts = 1024

// Flush writes the tail to the last segment, rolling as the settings say.
// ENOSPC leaves the rest in memory, to be tried again; any other error is final.
// Neither readers nor Append wait for the writes.
func (l *Log) Flush() error {
	if p := l.failed.Load(); p != nil {
		return *p
	}
	for {
		l.mu.RLock()
		n := min(len(l.tail), maxFlushParts)
		round := l.tail[:n:n]
		l.mu.RUnlock()
		if n == 0 {
			return nil
		}
		s, n, err := l.room(round)
		if err != nil {
			return l.flushError(err)
		}
		if err := l.write(s, round[:n]); err != nil {
			return l.flushError(err)
		}
	}
}

func (l *Log) flushError(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("commit log %s: %w", l.dir, err)
	}
	return l.fail(err)
}

// room returns the segment to write to and how many of the batches fit it.
func (l *Log) room(round []tailBatch) (*segment, int, error) {
	l.mu.RLock()
	var s *segment
	if n := len(l.segments); n > 0 {
		s = l.segments[n-1]
	}
	l.mu.RUnlock()
	limit := l.segmentBytes.Load()
	if s != nil && s.size.Load() > 0 {
		full := s.size.Load()+int64(round[0].sizeBytes) > limit
		old := l.clock().Sub(s.began) > time.Duration(l.segmentAge.Load())
		if full || old {
			if err := l.writeIndex(s); err != nil {
				return nil, 0, err
			}
			s = nil
		}
	}
	if s == nil {
		var err error
		if s, err = l.roll(round[0].base); err != nil {
			return nil, 0, err
		}
	}
	size, n := s.size.Load(), 0
	for _, t := range round {
		if n > 0 && size+int64(t.sizeBytes) > limit {
			break
		}
		size += int64(t.sizeBytes)
		n++
	}
	return s, n, nil
}

// roll makes the next segment.
func (l *Log) roll(base record.Offset) (*segment, error) {
	if err := l.fs.MkdirAll(l.dir); err != nil {
		return nil, err
	}
	s := &segment{fs: l.fs, dir: l.dir, base: base, loaded: true, maxTime: minTime, began: l.clock(), freshName: true}
	f, err := l.fs.Open(path.Join(l.dir, s.name()), vfs.Mode{Create: true})
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.file = f
	l.mu.Lock()
	l.segments = append(l.segments, s)
	l.mu.Unlock()
	l.rest()
	return s, nil
}

// keepOpen is how many segments of one log may keep their files open.
const keepOpen = 4

// rest closes the files of segments that are long closed and not being read.
func (l *Log) rest() {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for i := 0; i < len(l.segments)-keepOpen; i++ {
		if s := l.segments[i]; !s.dirty {
			s.rest()
		}
	}
}

// write appends batches to a segment with one write and takes them off the tail.
func (l *Log) write(s *segment, round []tailBatch) error {
	f, err := s.acquire()
	if err != nil {
		return err
	}
	defer s.release()
	parts := make([][]byte, 0, 2*len(round))
	for _, t := range round {
		parts = append(parts, t.head[:], t.body)
	}
	at := s.size.Load()
	if err := f.WriteVec(parts, at); err != nil {
		return err
	}
	s.dirty = true
	var rows []row
	for _, t := range round {
		if at-s.lastRow >= indexInterval {
			rows = append(rows, row{t.base, at, s.maxTime})
			s.lastRow = at
		}
		s.maxTime = max(s.maxTime, t.maxTime)
		at += int64(t.sizeBytes)
	}
	if len(rows) > 0 {
		s.mu.Lock()
		s.rows = append(s.rows, rows...)
		s.mu.Unlock()
	}
	l.mu.Lock()
	s.size.Store(at)
	for i := range round {
		l.tailBytes -= int64(round[i].sizeBytes)
	}
	bufs := make([]*record.Buffer, 0, len(round))
	for i := range round {
		bufs = append(bufs, l.tail[i].buf)
	}
	l.tail = slices.Clone(l.tail[len(round):])
	l.mu.Unlock()
	for _, b := range bufs {
		b.Release()
	}
	return nil
}

// writeIndex appends the rows that the index file lacks. Losing them costs time only.
func (l *Log) writeIndex(s *segment) error {
	if s.indexed == int64(len(s.rows)) {
		return nil
	}
	s.mu.Lock()
	f, err := s.index, error(nil)
	if f == nil {
		f, err = l.fs.Open(path.Join(l.dir, indexName(s.base)), vfs.Mode{Create: true})
		s.index = f
	}
	rows := s.rows[s.indexed:]
	s.mu.Unlock()
	if err != nil {
		return err
	}
	b := make([]byte, 0, rowBytes*len(rows))
	for _, r := range rows {
		b = r.append(b, s.base)
	}
	if _, err := f.WriteAt(b, s.indexed*rowBytes); err != nil {
		return err
	}
	s.indexed += int64(len(rows))
	return nil
}

// Sync makes everything flushed durable.
func (l *Log) Sync() error {
	if p := l.failed.Load(); p != nil {
		return *p
	}
	l.mu.RLock()
	segments := slices.Clone(l.segments)
	l.mu.RUnlock()
	for _, s := range segments {
		if !s.dirty {
			continue
		}
		if err := l.writeIndex(s); err != nil && !errors.Is(err, syscall.ENOSPC) {
			return l.fail(err)
		}
		f, err := s.acquire()
		if errors.Is(err, errGone) {
			continue
		}
		if err != nil {
			return l.fail(err)
		}
		err = f.SyncData()
		s.release()
		if err != nil {
			return l.fail(err)
		}
		s.dirty = false
		if s.freshName {
			s.freshName, l.dirDirty = false, true
		}
	}
	if !l.dirDirty {
		return nil
	}
	for _, dir := range []string{l.dir, path.Dir(l.dir)} {
		if err := l.fs.SyncDir(dir); err != nil {
			return l.fail(err)
		}
	}
	l.dirDirty = false
	return nil
}

// SetLogStart moves the log start up and drops segments that lie wholly below.
// Their files are removed by Sweep.
func (l *Log) SetLogStart(to record.Offset) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to <= l.start {
		return nil
	}
	l.start = min(to, l.end)
	l.dropBelowStart()
	return nil
}

// dropBelowStart takes segments off the list; the last one stays, as it is written to.
func (l *Log) dropBelowStart() {
	for len(l.segments) > 1 && l.segments[1].base <= l.start {
		s := l.segments[0]
		l.segments = l.segments[1:]
		l.doomed = append(l.doomed, s.name(), indexName(s.base))
		s.drop()
	}
}

// doom takes a segment's files away at once under another name.
func (l *Log) doom(s *segment) error {
	s.drop()
	for _, n := range []string{s.name(), indexName(s.base)} {
		if !exists(l.fs, path.Join(l.dir, n)) {
			continue
		}
		if err := l.fs.Rename(path.Join(l.dir, n), path.Join(l.dir, n+doomedSuffix)); err != nil {
			return fmt.Errorf("commit log: %w", err)
		}
		l.doomed = append(l.doomed, n+doomedSuffix)
	}
	return nil
}

// Sweep removes files of dropped segments. It may take long: a second for 3 GiB.
func (l *Log) Sweep() error {
	l.mu.Lock()
	doomed := l.doomed
	l.doomed = nil
	l.mu.Unlock()
	for i, n := range doomed {
		if err := l.fs.Remove(path.Join(l.dir, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.mu.Lock()
			l.doomed = append(l.doomed, doomed[i:]...)
			l.mu.Unlock()
			return fmt.Errorf("commit log: %w", err)
		}
	}
	return nil
}

// Close gives up the files and the tail; what is not flushed is the owner's to replay.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		s.drop()
	}
	l.segments = nil
	for _, t := range l.tail {
		t.buf.Release()
	}
	l.tail, l.tailBytes = nil, 0
	return nil
}

// Discard removes a partition's folder for good. It is renamed first, so that a
// crash leaves either all of it or something that is plainly rubbish.
func Discard(fsys vfs.FS, dir string) error {
	gone := dir + doomedSuffix
	if err := fsys.Rename(dir, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("commit log: %w", err)
	}
	return RemoveDiscarded(fsys, gone)
}

// RemoveDiscarded removes what Discard renamed, in a crash's wake as well.
func RemoveDiscarded(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("commit log: %w", err)
	}
	for _, n := range names {
		if err := fsys.Remove(path.Join(dir, n)); err != nil {
			return fmt.Errorf("commit log: %w", err)
		}
	}
	return fsys.Remove(dir)
}
