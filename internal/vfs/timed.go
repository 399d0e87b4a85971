package vfs

import (
	"sync"
	"time"
)

// Timed wraps a file system and knows which operation has been under way on it
// for longest, so that a watchdog sees a disk that hangs while it does. Reads are
// not counted: they come from the page cache, or wait for a bad sector that a
// replica is replaced for. Safe for use by many goroutines.
type Timed struct {
	inner FS

	mu    sync.Mutex
	under map[*Flight]struct{}
}

// Flight is an operation that has not come back yet.
type Flight struct {
	Op    OpKind
	Path  string // of a rename: where it comes from
	Began time.Time
}

var _ FS = (*Timed)(nil)

// NewTimed wraps inner.
func NewTimed(inner FS) *Timed { return &Timed{inner: inner, under: map[*Flight]struct{}{}} }

// Oldest is the operation that has been under way for longest; false: none is.
func (t *Timed) Oldest() (Flight, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var oldest *Flight
	for f := range t.under {
		if oldest == nil || f.Began.Before(oldest.Began) {
			oldest = f
		}
	}
	if oldest == nil {
		return Flight{}, false
	}
	return *oldest, true
}

// do runs op and counts it as under way meanwhile.
func (t *Timed) do(kind OpKind, path string, op func() error) error {
	f := &Flight{kind, path, time.Now()}
	t.mu.Lock()
	t.under[f] = struct{}{}
	t.mu.Unlock()
	err := op()
	t.mu.Lock()
	delete(t.under, f)
	t.mu.Unlock()
	return err
}

// Open implements FS.
func (t *Timed) Open(path string, mode Mode) (file File, err error) {
	err = t.do(OpOpen, path, func() error {
		file, err = t.inner.Open(path, mode)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &timedFile{file, t, path}, nil
}

// Remove implements FS.
func (t *Timed) Remove(path string) error {
	return t.do(OpRemove, path, func() error { return t.inner.Remove(path) })
}

// Rename implements FS.
func (t *Timed) Rename(from, to string) error {
	return t.do(OpRename, from, func() error { return t.inner.Rename(from, to) })
}

// MkdirAll implements FS.
func (t *Timed) MkdirAll(path string) error {
	return t.do(OpMkdir, path, func() error { return t.inner.MkdirAll(path) })
}

// SyncDir implements FS.
func (t *Timed) SyncDir(path string) error {
	return t.do(OpSyncDir, path, func() error { return t.inner.SyncDir(path) })
}

// List implements FS.
func (t *Timed) List(path string) ([]string, error) { return t.inner.List(path) }

// Stat implements FS.
func (t *Timed) Stat(path string) (Info, error) { return t.inner.Stat(path) }

// FreeBytes asks the wrapped file system.
func (t *Timed) FreeBytes(path string) (int64, error) { return FreeBytes(t.inner, path) }

// TotalBytes asks the wrapped file system.
func (t *Timed) TotalBytes(path string) (int64, error) { return TotalBytes(t.inner, path) }

// LockDir asks the wrapped file system.
func (t *Timed) LockDir(path string) (Lock, error) { return LockDir(t.inner, path) }

type timedFile struct {
	File
	t    *Timed
	path string
}

func (f *timedFile) WriteAt(b []byte, off int64) (n int, err error) {
	err = f.t.do(OpWrite, f.path, func() error {
		n, err = f.File.WriteAt(b, off)
		return err
	})
	return n, err
}

func (f *timedFile) WriteVec(parts [][]byte, off int64) error {
	return f.t.do(OpWrite, f.path, func() error { return f.File.WriteVec(parts, off) })
}

func (f *timedFile) Truncate(sizeBytes int64) error {
	return f.t.do(OpTruncate, f.path, func() error { return f.File.Truncate(sizeBytes) })
}

func (f *timedFile) Allocate(sizeBytes int64) error {
	return f.t.do(OpAllocate, f.path, func() error { return f.File.Allocate(sizeBytes) })
}

func (f *timedFile) Sync() error { return f.t.do(OpSync, f.path, f.File.Sync) }

func (f *timedFile) SyncData() error { return f.t.do(OpSyncData, f.path, f.File.SyncData) }

// Prefetch implements Prefetcher if the wrapped file does.
func (f *timedFile) Prefetch(off, sizeBytes int64) {
	if p, ok := f.File.(Prefetcher); ok {
		p.Prefetch(off, sizeBytes)
	}
}
