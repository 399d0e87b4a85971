package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

const minTime = math.MinInt64

// segment is one file of batches. Closed segments never change.
type segment struct {
	fs   vfs.FS
	dir  string
	base record.Offset

	// size is how much of the file holds batches. The owner writes it.
	size atomic.Int64

	mu    sync.Mutex
	file  vfs.File
	index vfs.File
	refs  int  // readers at work
	gone  bool // dropped: the files are closed by the last reader
	// rows is the index; nil until loaded. Appended to by the owner only.
	rows   []row
	loaded bool
	// hints are where the last reads ended.
	hints    [8]row
	nextHint int

	// The owner's own.
	indexed   int64 // rows written to the index file
	lastRow   int64 // position of the last row
	maxTime   int64 // largest timestamp in it; minTime: none
	began     time.Time
	dirty     bool // written since the last sync
	freshName bool // created since the last sync: the folder must be synced too
}

func segmentName(base record.Offset) string { return fmt.Sprintf("%020d.log", base) }
func indexName(base record.Offset) string   { return fmt.Sprintf("%020d.index", base) }

func (s *segment) name() string { return segmentName(s.base) }

// acquire opens the file if need be and keeps it open until release.
func (s *segment) acquire() (vfs.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return nil, errGone
	}
	if s.file == nil {
		f, err := s.fs.Open(path.Join(s.dir, s.name()), vfs.Mode{Write: true})
		if err != nil {
			return nil, err
		}
		s.file = f
	}
	s.refs++
	return s.file, nil
}

// errGone: the segment was dropped while somebody was about to read it.
var errGone = errors.New("segment was dropped")

func (s *segment) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refs--
	if s.gone && s.refs == 0 {
		s.closeLocked()
	}
}

func (s *segment) closeLocked() {
	for _, f := range []vfs.File{s.file, s.index} {
		if f != nil {
			f.Close()
		}
	}
	s.file, s.index = nil, nil
}

// drop closes the files once nobody reads them any more.
func (s *segment) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	if s.refs == 0 {
		s.closeLocked()
	}
}

// rest closes files of a segment that nobody reads now, to save descriptors.
func (s *segment) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refs == 0 {
		s.closeLocked()
		s.rows, s.loaded = nil, false
	}
}

// lookup returns the index rows, from disk if need be; what the index lacks is
// found by walking the segment from its last good row.
func (s *segment) lookup(f vfs.File) ([]row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded {
		return s.rows, nil
	}
	rows := s.readRows()
	rows, _, _, err := s.walk(f, rows, s.size.Load())
	if err != nil {
		return nil, err
	}
	s.rows, s.loaded = rows, true
	return rows, nil
}

func (s *segment) readRows() []row {
	f, err := s.fs.Open(path.Join(s.dir, indexName(s.base)), vfs.Mode{})
	if err != nil {
		return nil // rebuilt by walking
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return nil
	}
	b := make([]byte, n)
	got, _ := f.ReadAt(b, 0)
	rows := parseRows(b[:got], s.base, s.size.Load())
	// A row must point at the batch that it names.
	log, err := s.fs.Open(path.Join(s.dir, s.name()), vfs.Mode{})
	if err != nil {
		return nil
	}
	defer log.Close()
	for len(rows) > 0 {
		last := rows[len(rows)-1]
		var head [record.HeaderBytes]byte
		if n, _ := log.ReadAt(head[:], last.position); n == len(head) {
			if h, err := record.ParseHeader(head[:]); err == nil && h.BaseOffset == last.offset {
				break
			}
		}
		rows = rows[:len(rows)-1]
	}
	return rows
}

// walk reads batch headers from the last row to limit, adding rows. It returns
// the rows, the position behind the last whole batch and the next offset.
func (s *segment) walk(f vfs.File, rows []row, limit int64) ([]row, int64, record.Offset, error) {
	at := row{s.base, 0, minTime}
	if len(rows) > 0 {
		at = rows[len(rows)-1]
	}
	last, pos, next, maxTime := at.position, at.position, at.offset, at.maxTime
	var head [record.HeaderBytes]byte
	for pos < limit {
		if n, err := f.ReadAt(head[:], pos); n < len(head) {
			if limit-pos < int64(len(head)) {
				return rows, pos, next, nil // less than a header: torn
			}
			return rows, pos, next, fmt.Errorf("read %s at %d: %w", s.name(), pos, err)
		}
		h, err := record.ParseHeader(head[:])
		if err == nil && h.BaseOffset != next {
			err = fmt.Errorf("%w: base offset %d where %d is expected", record.ErrCorrupt, h.BaseOffset, next)
		}
		if err != nil || h.LastOffsetDelta < 0 {
			return rows, pos, next, &CorruptError{s.name(), pos, err}
		}
		if pos+int64(h.SizeBytes()) > limit {
			return rows, pos, next, nil
		}
		if pos-last >= indexInterval {
			rows = append(rows, row{h.BaseOffset, pos, maxTime})
			last = pos
		}
		maxTime = max(maxTime, h.MaxTimestamp)
		pos += int64(h.SizeBytes())
		next = h.NextOffset()
	}
	return rows, pos, next, nil
}

// newest is the largest timestamp of a closed segment.
func (s *segment) newest(f vfs.File) (int64, error) {
	rows, err := s.lookup(f)
	if err != nil {
		return 0, err
	}
	from := row{s.base, 0, minTime}
	if len(rows) > 0 {
		from = rows[len(rows)-1]
	}
	newest := from.maxTime
	err = eachHeader(f, s, from.position, s.size.Load(), func(h record.Header, _ int64) bool {
		newest = max(newest, h.MaxTimestamp)
		return true
	})
	return newest, err
}

// eachHeader visits batch headers from a position on until visit says stop.
func eachHeader(f vfs.File, s *segment, pos, limit int64, visit func(record.Header, int64) bool) error {
	var head [record.HeaderBytes]byte
	for pos < limit {
		if n, err := f.ReadAt(head[:], pos); n < len(head) {
			return fmt.Errorf("read %s at %d: %w", s.name(), pos, err)
		}
		h, err := record.ParseHeader(head[:])
		if err != nil {
			return &CorruptError{s.name(), pos, err}
		}
		if !visit(h, pos) {
			return nil
		}
		pos += int64(h.SizeBytes())
	}
	return nil
}

// CorruptError names a batch that is not as it was written.
type CorruptError struct {
	File   string
	Offset int64 // byte offset in the file
	Cause  error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("segment %s is damaged at byte %d: %v", e.File, e.Offset, e.Cause)
}
func (e *CorruptError) Unwrap() error { return e.Cause }

func exists(fsys vfs.FS, name string) bool {
	_, err := fsys.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}
