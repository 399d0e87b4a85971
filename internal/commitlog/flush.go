package commitlog

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/tube-mq/tube/internal/vfs"
)

// flushPieces bounds one write.
const flushPieces = 512

// Flush writes what was in memory when it was called to the segments. Appends
// and reads go on meanwhile. ErrFull leaves the rest in memory, to be tried
// again; any other error is final.
func (l *Log) Flush() error {
	l.io.Lock()
	defer l.io.Unlock()
	end := l.LogEnd()
	for {
		l.mu.Lock()
		failed, pieces := l.failed, l.tail.front(flushPieces)
		l.mu.Unlock()
		if failed != nil {
			return failed
		}
		if len(pieces) == 0 || pieces[0].first >= end {
			return nil
		}
		if err := l.flush(pieces); err != nil {
			return err
		}
	}
}

// flush writes pieces of one segment and takes them off the tail.
func (l *Log) flush(pieces []piece) error {
	s := pieces[0].seg
	l.mu.Lock()
	at, dropped := s.flushedBytes, s.dropped
	l.mu.Unlock()
	if !dropped {
		if err := l.write(s, pieces, at); err != nil {
			return err
		}
	}
	for i := range pieces {
		at += int64(pieces[i].sizeBytes())
	}
	l.mu.Lock()
	s.flushedBytes = at
	done := l.tail.drop(len(pieces))
	l.rollIfOld()
	l.mu.Unlock()
	for i := range done {
		done[i].release()
		done[i] = piece{}
	}
	return nil
}

func (l *Log) write(s *segment, pieces []piece, at int64) error {
	if !s.made {
		if err := l.fs.MkdirAll(l.dir); err != nil {
			return l.writeError(err)
		}
		l.dirDirty = true
	}
	if err := s.write(pieces, at); err != nil {
		return l.writeError(err)
	}
	return nil
}

func (l *Log) writeError(err error) error {
	if vfs.IsFull(err) {
		return fmt.Errorf("commit log %s: %w: %w", l.dir, ErrFull, err)
	}
	return l.fail("write", err)
}

// Sync makes everything that was flushed durable, closes segments that are
// complete, and brings the index files up to date. A failure is final.
func (l *Log) Sync() error {
	l.io.Lock()
	defer l.io.Unlock()
	if err := l.failure(); err != nil {
		return err
	}
	for _, s := range l.inUse() {
		if err := l.syncSegment(s); err != nil {
			return l.fail("sync", err)
		}
	}
	if !l.dirDirty {
		return nil
	}
	for _, dir := range []string{l.dir, l.parent()} {
		if err := l.fs.SyncDir(dir); err != nil {
			return l.fail("sync", err)
		}
	}
	l.dirDirty = false
	return nil
}

// inUse lists the segments that were written to and are not closed.
func (l *Log) inUse() []*segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := len(l.segments)
	for i > 0 && l.segments[i-1].index != nil {
		i--
	}
	return append([]*segment(nil), l.segments[i:]...)
}

func (l *Log) syncSegment(s *segment) error {
	l.mu.Lock()
	last := len(l.segments) > 0 && s == l.segments[len(l.segments)-1]
	complete := !last && !s.dropped && s.flushedBytes == s.sizeBytes
	flushed := s.flushedBytes
	rows := s.index.entries
	if complete {
		next := l.end
		for i := range l.segments {
			if l.segments[i] == s {
				next = l.nextOf(i)
			}
		}
		rows = append(rows[:len(rows):len(rows)], s.index.final(next, s.sizeBytes))
	} else {
		for len(rows) > 0 && int64(rows[len(rows)-1].pos) >= s.flushedBytes {
			rows = rows[:len(rows)-1]
		}
	}
	l.mu.Unlock()

	if complete {
		if err := s.trim(flushed); err != nil {
			return err
		}
	}
	if !s.dirty {
		// Quiet since the last time: its file need not stay open.
		if err := s.closeWriter(); err != nil {
			return err
		}
	} else if err := s.writer.SyncData(); err != nil {
		return err
	}
	s.dirty = false
	if s.indexed < len(rows) {
		if !s.made {
			return nil
		}
		l.dirDirty = l.dirDirty || s.indexed == 0
		if err := s.writeRows(rows[s.indexed:], complete); err != nil {
			if vfs.IsFull(err) {
				return nil // the next time, or made anew when it is needed
			}
			return err
		}
	}
	if complete {
		l.mu.Lock()
		s.index = nil
		l.mu.Unlock()
		return s.closeWriter()
	}
	return nil
}

// Sweep removes the files of segments that were dropped or cut away. It may take
// long, a second for 3 GiB, and holds up nothing else. After an error it may be
// called again.
func (l *Log) Sweep() error {
	doomed, err := l.toSweep()
	if err != nil {
		return fmt.Errorf("commit log: %w", err)
	}
	for i, name := range doomed {
		if err := l.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.mu.Lock()
			l.doomed = append(l.doomed, doomed[i:]...)
			l.mu.Unlock()
			return fmt.Errorf("commit log: %w", err)
		}
	}
	return nil
}

// toSweep gives up the dropped segments and lists the files to remove.
func (l *Log) toSweep() ([]string, error) {
	l.mu.Lock()
	nothing := len(l.dropped) == 0 && len(l.doomed) == 0
	l.mu.Unlock()
	if nothing {
		return nil, nil
	}
	l.io.Lock()
	defer l.io.Unlock()
	l.mu.Lock()
	dropped := l.dropped
	l.dropped = nil
	var last *segment
	if n := len(l.segments); n > 0 {
		last = l.segments[n-1]
	}
	l.mu.Unlock()
	// A folder without any segment would look as if it had lost them.
	if last != nil {
		if err := l.makeFile(last); err != nil {
			l.mu.Lock()
			l.dropped = append(dropped, l.dropped...)
			l.mu.Unlock()
			return nil, err
		}
	}
	for _, s := range dropped {
		_ = s.closeWriter()
		l.shared.forget(s)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range dropped {
		l.doomed = append(l.doomed, s.files()...)
	}
	doomed := l.doomed
	l.doomed = nil
	return doomed, nil
}

// Close gives up files and memory. What is not flushed is lost to this log: the
// owner has it in the write-ahead log. Reads under way finish.
func (l *Log) Close() error {
	defer l.reading.Wait() // when they can be begun no more
	l.io.Lock()
	defer l.io.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, s := range append(l.segments, l.dropped...) {
		if l.failed == nil && !s.dropped {
			errs = append(errs, s.trim(s.flushedBytes))
		}
		errs = append(errs, s.closeWriter())
		l.shared.forget(s)
	}
	l.tail.releaseAll()
	l.segments, l.dropped = nil, nil
	l.ready = false
	l.hints = [8]hint{}
	if l.failed == nil {
		l.failed = fmt.Errorf("commit log %s: %w", l.dir, fs.ErrClosed)
	}
	return errors.Join(errs...)
}
