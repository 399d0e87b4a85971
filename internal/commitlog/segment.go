package commitlog

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// segment is one file of batches. Only the last of a log grows.
type segment struct {
	// Fixed.
	base record.Offset
	path string // of the .log file
	fs   vfs.FS
	born time.Time // when this process made or opened it

	// Guarded by the log's mu.

	// sizeBytes of its batches, those in memory included.
	sizeBytes int64
	// flushedBytes are in the file. Invariant: ends at a batch's boundary; what
	// the file has behind it is left of a failed write and will be overwritten.
	flushedBytes int64
	// dropped: below the log start; the files go with the next Sweep.
	dropped bool
	// index of a segment that this process has written to and not closed yet;
	// nil: in the files, see openFiles. Its entries are only ever appended to,
	// so that a reader may keep the slice.
	index *builder
	// maxTime is known when timeKnown; else it is in the files.
	maxTime   int64
	timeKnown bool

	// Guarded by the log's io.

	writer  vfs.File // open from the first write until a Sync finds it idle
	direct  bool     // writer goes past the page cache
	page    []byte   // what the last page holds before pageEnd
	pageEnd int64    // flushedBytes when page was kept
	padded  bool     // the file is longer than flushedBytes: see aligned.go
	made    bool     // the file is there
	dirty   bool     // written since the last Sync
	indexed int      // rows in the index files
}

const (
	logSuffix     = ".log"
	indexSuffix   = ".index"
	timeSuffix    = ".timeindex"
	deletedSuffix = ".deleted"
)

func segmentPath(dir string, base record.Offset) string {
	return path.Join(dir, fmt.Sprintf("%020d", int64(base))+logSuffix)
}

// parseSegmentName reads the base offset out of a .log file's name.
func parseSegmentName(name string) (record.Offset, error) {
	digits := strings.TrimSuffix(name, logSuffix)
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || len(digits) != 20 {
		return 0, fmt.Errorf("%s is no segment's name", name)
	}
	return record.Offset(n), nil
}

func (s *segment) indexPath() string { return strings.TrimSuffix(s.path, logSuffix) + indexSuffix }
func (s *segment) timePath() string  { return strings.TrimSuffix(s.path, logSuffix) + timeSuffix }

func (s *segment) files() []string { return []string{s.path, s.indexPath(), s.timePath()} }

// open makes the file writable past the page cache, and makes it if it is not there.
func (s *segment) open() error {
	if s.writer != nil && s.direct {
		return nil
	}
	if s.writer != nil {
		// Opened to be cut: that must be durable before the file is let go.
		if err := errors.Join(s.writer.SyncData(), s.closeWriter()); err != nil {
			return err
		}
	}
	f, err := s.fs.Open(s.path, vfs.Mode{Write: true, Create: true, Direct: true})
	if err != nil {
		return err
	}
	if !s.made {
		if err := f.Truncate(0); err != nil {
			return errors.Join(err, f.Close())
		}
		s.made = true
	}
	s.writer, s.direct = f, true
	return nil
}

func (s *segment) closeWriter() error {
	if s.writer == nil {
		return nil
	}
	err := s.writer.Close()
	s.writer, s.direct = nil, false
	return err
}

// writeRows adds rows to the index files. Losing them costs time only, so they
// are not synced while the segment grows.
func (s *segment) writeRows(rows []entry, sync bool) error {
	if len(rows) == 0 {
		return nil
	}
	var offsets, times []byte
	for i, e := range rows {
		offsets = appendOffsetRow(offsets, s.base, s.indexed+i, e)
		times = appendTimeRow(times, s.base, s.indexed+i, e)
	}
	if err := writeAt(s.fs, s.indexPath(), offsets, int64(s.indexed)*rowBytes, sync); err != nil {
		return err
	}
	if err := writeAt(s.fs, s.timePath(), times, int64(s.indexed)*rowBytes, sync); err != nil {
		return err
	}
	s.indexed += len(rows)
	return nil
}

// cutRows makes the index files end after the first n rows.
func (s *segment) cutRows(n int) error {
	s.indexed = n
	for _, name := range []string{s.indexPath(), s.timePath()} {
		f, err := s.fs.Open(name, vfs.Mode{Write: true, Create: true})
		if err != nil {
			return err
		}
		if err := errors.Join(f.Truncate(int64(n)*rowBytes), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

func writeAt(fsys vfs.FS, name string, b []byte, off int64, sync bool) error {
	f, err := fsys.Open(name, vfs.Mode{Write: true, Create: true})
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, off)
	if err == nil && sync {
		err = f.SyncData()
	}
	return errors.Join(err, f.Close())
}
