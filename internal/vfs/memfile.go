package vfs

import (
	"io"
	"io/fs"
	"sync/atomic"
	"syscall"
)

const pageBytes = 4096

type page = *[pageBytes]byte

var zeroPage = new([pageBytes]byte)

// content is a file's bytes. A page that is not there reads as zeros and takes
// no room.
type content struct {
	size        int64
	durableSize int64
	pages       map[int64]page
	// durable are the pages as of the last sync.
	// Invariant: a page that durable holds is never changed in place, so that
	// crash copies may share it.
	durable map[int64]page
	dirty   map[int64]struct{} // pages that may differ from durable
}

func newContent() *content {
	return &content{pages: map[int64]page{}, durable: map[int64]page{}, dirty: map[int64]struct{}{}}
}

// own returns a page that may be changed in place.
func (c *content) own(no int64) page {
	p := c.pages[no]
	_, dirty := c.dirty[no]
	if p == nil || p == zeroPage || !dirty || p == c.durable[no] {
		fresh := new([pageBytes]byte)
		if p != nil {
			*fresh = *p
		}
		c.pages[no] = fresh
		c.dirty[no] = struct{}{}
		return fresh
	}
	return p
}

func (c *content) write(b []byte, off int64) {
	c.size = max(c.size, off+int64(len(b)))
	for len(b) > 0 {
		n := copy(c.own(off / pageBytes)[off%pageBytes:], b)
		b, off = b[n:], off+int64(n)
	}
}

func (c *content) read(b []byte, off int64) (int, error) {
	if off >= c.size {
		return 0, io.EOF
	}
	want := len(b)
	b = b[:min(int64(len(b)), c.size-off)]
	total := len(b)
	for len(b) > 0 {
		p := c.pages[off/pageBytes]
		if p == nil {
			p = zeroPage
		}
		n := copy(b, p[off%pageBytes:])
		b, off = b[n:], off+int64(n)
	}
	if total < want {
		return total, io.EOF
	}
	return total, nil
}

func (c *content) truncate(size int64) {
	for no := range c.pages {
		if no*pageBytes >= size {
			delete(c.pages, no)
			c.dirty[no] = struct{}{}
		}
	}
	if rest := size % pageBytes; rest != 0 && size < c.size && c.pages[size/pageBytes] != nil {
		clear(c.own(size / pageBytes)[rest:])
	}
	c.size = size
}

func (c *content) sync() {
	for no := range c.dirty {
		if p := c.pages[no]; p != nil {
			c.durable[no] = p
		} else {
			delete(c.durable, no)
		}
	}
	clear(c.dirty)
	c.durableSize = c.size
}

// missing counts the pages of [off, off+n) that take no room yet.
func (c *content) missing(off, n int64) (pages int64) {
	if n <= 0 {
		return 0
	}
	for no := off / pageBytes; no <= (off+n-1)/pageBytes; no++ {
		if c.pages[no] == nil {
			pages++
		}
	}
	return pages
}

type memFile struct {
	m      *Mem
	name   string
	c      *content
	mode   Mode
	closed atomic.Bool
}

func (f *memFile) do(op Op, g func() error) error {
	op.Path = f.name
	if f.closed.Load() {
		return pathError(op.Kind, f.name, fs.ErrClosed)
	}
	if op.Kind&(OpWrite|OpTruncate|OpAllocate) != 0 && !f.mode.Write && !f.mode.Create {
		return pathError(op.Kind, f.name, syscall.EBADF)
	}
	return pathError(op.Kind, f.name, f.m.do(op, g))
}

// aligned refuses what a real file would with direct I/O.
func (f *memFile) aligned(b []byte, off int64) error {
	if off < 0 {
		return syscall.EINVAL
	}
	if !f.mode.Direct || len(b) == 0 {
		return nil
	}
	if off%DirectAlign != 0 || len(b)%DirectAlign != 0 || !Aligned(b) {
		return syscall.EINVAL
	}
	return nil
}

func (f *memFile) ReadAt(b []byte, off int64) (n int, err error) {
	if f.closed.Load() {
		return 0, pathError(OpRead, f.name, fs.ErrClosed)
	}
	if err := f.aligned(b, off); err != nil {
		return 0, pathError(OpRead, f.name, err)
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.c.read(b, off)
}

func (f *memFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.WriteVec([][]byte{b}, off); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (f *memFile) WriteVec(parts [][]byte, off int64) error {
	var size int64
	for _, p := range parts {
		if err := f.aligned(p, off); err != nil {
			return pathError(OpWrite, f.name, err)
		}
		size += int64(len(p))
	}
	return f.do(Op{Kind: OpWrite, Offset: off, SizeBytes: size}, func() error {
		if err := f.m.room(f.c.missing(off, size)); err != nil {
			return err
		}
		at := off
		for _, p := range parts {
			f.c.write(p, at)
			at += int64(len(p))
		}
		return nil
	})
}

func (f *memFile) Truncate(sizeBytes int64) error {
	return f.do(Op{Kind: OpTruncate, SizeBytes: sizeBytes}, func() error {
		if sizeBytes < 0 {
			return syscall.EINVAL
		}
		f.c.truncate(sizeBytes)
		return nil
	})
}

func (f *memFile) Allocate(sizeBytes int64) error {
	return f.do(Op{Kind: OpAllocate, SizeBytes: sizeBytes}, func() error {
		if err := f.m.room(f.c.missing(0, sizeBytes)); err != nil {
			return err
		}
		for no := int64(0); no*pageBytes < sizeBytes; no++ {
			if f.c.pages[no] == nil {
				f.c.pages[no] = zeroPage
				f.c.dirty[no] = struct{}{}
			}
		}
		f.c.size = max(f.c.size, sizeBytes)
		return nil
	})
}

func (f *memFile) Sync() error {
	return f.do(Op{Kind: OpSync}, func() error { f.c.sync(); return nil })
}

func (f *memFile) SyncData() error {
	return f.do(Op{Kind: OpSyncData}, func() error { f.c.sync(); return nil })
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.c.size, nil
}

func (f *memFile) Direct() bool { return f.mode.Direct }

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return pathError(OpOpen, f.name, fs.ErrClosed)
	}
	return nil
}
