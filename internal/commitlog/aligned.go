package commitlog

import (
	"sync"

	"github.com/tube-mq/tube/internal/vfs"
)

// Segments are written past the page cache, as buffered writes to a growing file
// cost eight times the CPU (measured: 770–1,010 µs a MiB against 64–100 µs) and
// the kernel writes them back at half the disk's speed. Such writes are whole
// pages, so the last page is padded with zeroes and written again, with the same
// bytes in front, when more comes. Readers and recovery never look behind
// flushedBytes; a segment that is complete, or closed, is cut to its real size.

const (
	pageBytes = vfs.DirectAlign
	// chunkBytes is about the most that is written at once: with 1 MiB segments did not keep
	// up with a log whose writes they take turns with on the disk.
	chunkBytes = 2 << 20
)

// chunks are aligned buffers of chunkBytes, for all logs of the process.
var chunks = sync.Pool{New: func() any {
	b := vfs.AlignedBytes(chunkBytes)
	return &b
}}

// lastPage returns the bytes of the page in which at lies that come before at.
func (s *segment) lastPage(at int64) ([]byte, error) {
	n := at % pageBytes
	if n == 0 {
		return nil, nil
	}
	if s.pageEnd == at {
		return s.page, nil
	}
	f, err := s.fs.Open(s.path, vfs.Mode{})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, n)
	if _, err := f.ReadAt(b, at-n); err != nil {
		return nil, err
	}
	return b, nil
}

// write puts pieces behind what has been flushed.
func (s *segment) write(pieces []piece, at int64) error {
	if err := s.open(); err != nil {
		return err
	}
	page, err := s.lastPage(at)
	if err != nil {
		return err
	}
	s.dirty, s.padded = true, true
	chunk := chunks.Get().(*[]byte)
	defer chunks.Put(chunk)
	w := pageWriter{f: s.writer, chunk: *chunk, off: at - int64(len(page))}
	if err := w.add(page); err != nil {
		return err
	}
	for i := range pieces {
		if err := w.add(pieces[i].bytes); err != nil {
			return err
		}
		if err := w.add(pieces[i].body); err != nil {
			return err
		}
		at += int64(pieces[i].sizeBytes())
	}
	if page, err = w.finish(); err != nil {
		return err
	}
	s.page, s.pageEnd = page, at
	return nil
}

// trim cuts the padding off.
func (s *segment) trim(sizeBytes int64) error {
	if !s.padded {
		return nil
	}
	if err := s.open(); err != nil {
		return err
	}
	if err := s.writer.Truncate(sizeBytes); err != nil {
		return err
	}
	s.padded, s.dirty = false, true
	return nil
}
