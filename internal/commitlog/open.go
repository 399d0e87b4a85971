package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// Open opens a partition's log, or begins one. It looks at names and sizes
// only, so it takes no longer when more is stored. Cut must follow.
func Open(cfg Config) (*Log, error) {
	l := &Log{fs: cfg.FS, dir: cfg.Dir, interval: cfg.IndexIntervalBytes, clock: cfg.Clock, shared: cfg.Files, start: cfg.Start, end: cfg.Start}
	l.tail.hold = true
	if l.interval <= 0 {
		l.interval = defaultInterval
	}
	if l.clock == nil {
		l.clock = time.Now
	}
	if l.shared == nil {
		l.shared = sharedFiles
	}
	l.Configure(cfg.SegmentBytes, cfg.SegmentAge)
	names, err := l.fs.List(l.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("commit log: %w", err)
	}
	now := l.clock()
	for _, name := range names {
		if strings.HasSuffix(name, deletedSuffix) {
			l.doomed = append(l.doomed, path.Join(l.dir, name))
		}
		if !strings.HasSuffix(name, logSuffix) {
			continue
		}
		s, err := l.found(name, now)
		if err != nil {
			return nil, fmt.Errorf("commit log %s: %w", l.dir, err)
		}
		l.segments = append(l.segments, s)
	}
	l.hadFiles = len(l.segments) > 0
	return l, nil
}

func (l *Log) found(name string, now time.Time) (*segment, error) {
	base, err := parseSegmentName(name)
	if err != nil {
		return nil, err
	}
	st, err := l.fs.Stat(path.Join(l.dir, name))
	if err != nil {
		return nil, err
	}
	if st.SizeBytes >= 1<<32 {
		return nil, &CorruptError{path.Join(l.dir, name), st.SizeBytes, errors.New("larger than any segment")}
	}
	return &segment{
		base: base, path: path.Join(l.dir, name), fs: l.fs, born: now, made: true,
		sizeBytes: st.SizeBytes, flushedBytes: st.SizeBytes, maxTime: noTime,
	}, nil
}

// Cut makes the log end at end, where a batch must end: what is behind was not
// covered by the owner's checkpoint and will be appended again. It must be
// called once after Open, before anything else. A log that does not reach end
// has lost something: *CorruptError.
//
// The log may begin behind the owner's start, even behind end: the owner moved
// the start, the files were removed, and a crash took the owner back to its
// last checkpoint. Reading what is gone is a *CorruptError until the start has
// moved again.
func (l *Log) Cut(end record.Offset) error {
	l.io.Lock()
	defer l.io.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock() // nobody else is here yet
	if l.ready || l.failed != nil {
		return fmt.Errorf("commit log %s: already cut, or closed", l.dir)
	}
	l.start = min(l.start, end)
	if err := l.setAside(end); err != nil {
		return err
	}
	l.end = end
	if len(l.segments) == 0 {
		if l.start != end && !l.hadFiles {
			return &CorruptError{l.dir, 0, fmt.Errorf("should hold offsets %d to %d, has no segment", l.start, end)}
		}
		s := l.addSegment()
		if l.hadFiles {
			// Says to the next Open that this is no folder that lost its files.
			if err := l.makeFile(s); err != nil {
				return err
			}
		}
	} else if err := l.cutLast(end); err != nil {
		return err
	}
	l.ready = true
	l.dropBelowStart()
	return nil
}

// setAside takes segments that lie wholly behind end out of the way at once,
// under another name, as theirs may be needed again.
func (l *Log) setAside(end record.Offset) error {
	for n := len(l.segments); n > 0 && l.segments[n-1].base > end; n = len(l.segments) {
		for _, name := range l.segments[n-1].files() {
			err := l.fs.Rename(name, name+deletedSuffix)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return fmt.Errorf("commit log: %w", err)
			}
			l.doomed = append(l.doomed, name+deletedSuffix)
			l.dirDirty = true
		}
		l.segments = l.segments[:n-1]
	}
	return nil
}

// cutLast cuts the last segment to end: finds the boundary by the index and
// verifies the batches from there on, which are at most an index interval.
func (l *Log) cutLast(end record.Offset) error {
	s := l.segments[len(l.segments)-1]
	f, err := l.fs.Open(s.path, vfs.Mode{Write: true})
	if err != nil {
		return fmt.Errorf("commit log: %w", err)
	}
	r, good, err := resume(s, f, readRows(s, s.sizeBytes), end, s.sizeBytes, l.interval, true)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.writer = f
	s.index = &r.builder
	s.maxTime, s.timeKnown = r.maxTime, true
	if r.pos < s.sizeBytes {
		if err := f.Truncate(r.pos); err != nil {
			return fmt.Errorf("commit log: cut %s to %d bytes: %w", s.path, r.pos, err)
		}
		s.dirty = true
	}
	s.sizeBytes, s.flushedBytes = r.pos, r.pos
	if !s.dirty {
		if err := s.closeWriter(); err != nil {
			return fmt.Errorf("commit log: %w", err)
		}
	}
	if err := s.cutRows(good); err != nil && !vfs.IsFull(err) {
		return fmt.Errorf("commit log: %w", err)
	}
	return nil
}

// makeFile makes a segment's file and its name durable.
func (l *Log) makeFile(s *segment) error {
	if s.made {
		return nil
	}
	if err := l.fs.MkdirAll(l.dir); err != nil {
		return err
	}
	if err := s.open(); err != nil {
		return err
	}
	return l.fs.SyncDir(l.dir)
}
