package vfs

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Fault is what Faulty does to operations that match.
type Fault struct {
	Ops  OpKind // 0: any
	Path string // matches if the operation's path contains it

	After int // leaves so many matching operations alone first
	Times int // ends after so many hits; 0: never

	Delay time.Duration   // before the operation
	Hold  <-chan struct{} // hangs until it is closed; nil: does not
	Err   error           // instead of it
	// ShortBytes, with Err on a write: so many bytes are written before it fails.
	ShortBytes int
}

// Faulty wraps a file system and injects faults. Files opened through it stay
// under it. Safe for use by many goroutines.
type Faulty struct {
	inner FS

	mu     sync.Mutex
	faults []*activeFault
}

type activeFault struct {
	Fault
	seen, hits int
}

var _ FS = (*Faulty)(nil)

// NewFaulty wraps inner, without any fault yet.
func NewFaulty(inner FS) *Faulty { return &Faulty{inner: inner} }

// Inject adds a fault. stop takes it away; hits tells how often it struck.
func (f *Faulty) Inject(fault Fault) (stop func(), hits func() int) {
	if fault.Ops == 0 {
		fault.Ops = OpAny
	}
	a := &activeFault{Fault: fault}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, a)
	return func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.faults = slices.DeleteFunc(f.faults, func(x *activeFault) bool { return x == a })
		}, func() int {
			f.mu.Lock()
			defer f.mu.Unlock()
			return a.hits
		}
}

// strike returns the fault that hits an operation, after its delay or hold.
func (f *Faulty) strike(kind OpKind, path string) (short int, err error) {
	f.mu.Lock()
	var hit *activeFault
	for _, a := range f.faults {
		if a.Ops&kind == 0 || !strings.Contains(path, a.Path) {
			continue
		}
		a.seen++
		if a.seen <= a.After || a.Times > 0 && a.hits >= a.Times {
			continue
		}
		a.hits++
		hit = a
		break
	}
	f.mu.Unlock()
	if hit == nil {
		return 0, nil
	}
	if hit.Delay > 0 {
		time.Sleep(hit.Delay)
	}
	if hit.Hold != nil {
		<-hit.Hold
	}
	return hit.ShortBytes, pathError(kind, path, hit.Err)
}

// do runs op unless a fault takes its place.
func (f *Faulty) do(kind OpKind, path string, op func() error) error {
	if _, err := f.strike(kind, path); err != nil {
		return err
	}
	return op()
}

// Open implements FS.
func (f *Faulty) Open(path string, mode Mode) (File, error) {
	kind := OpOpen
	if mode.Create {
		if _, err := f.inner.Stat(path); err != nil {
			kind = OpCreate
		}
	}
	if _, err := f.strike(kind, path); err != nil {
		return nil, err
	}
	file, err := f.inner.Open(path, mode)
	if err != nil {
		return nil, err
	}
	return &faultyFile{file, f, path}, nil
}

// Remove implements FS.
func (f *Faulty) Remove(path string) error {
	return f.do(OpRemove, path, func() error { return f.inner.Remove(path) })
}

// Rename implements FS. Faults match by where it comes from.
func (f *Faulty) Rename(from, to string) error {
	return f.do(OpRename, from, func() error { return f.inner.Rename(from, to) })
}

// MkdirAll implements FS.
func (f *Faulty) MkdirAll(path string) error {
	return f.do(OpMkdir, path, func() error { return f.inner.MkdirAll(path) })
}

// List implements FS.
func (f *Faulty) List(path string) ([]string, error) {
	if _, err := f.strike(OpList, path); err != nil {
		return nil, err
	}
	return f.inner.List(path)
}

// Stat implements FS.
func (f *Faulty) Stat(path string) (Info, error) {
	if _, err := f.strike(OpStat, path); err != nil {
		return Info{}, err
	}
	return f.inner.Stat(path)
}

// SyncDir implements FS.
func (f *Faulty) SyncDir(path string) error {
	return f.do(OpSyncDir, path, func() error { return f.inner.SyncDir(path) })
}

// FreeBytes asks the wrapped file system.
func (f *Faulty) FreeBytes(path string) (int64, error) { return FreeBytes(f.inner, path) }

// TotalBytes asks the wrapped file system.
func (f *Faulty) TotalBytes(path string) (int64, error) { return TotalBytes(f.inner, path) }

// LockDir asks the wrapped file system.
func (f *Faulty) LockDir(path string) (Lock, error) { return LockDir(f.inner, path) }

type faultyFile struct {
	File
	f    *Faulty
	path string
}

func (f *faultyFile) ReadAt(b []byte, off int64) (int, error) {
	if _, err := f.f.strike(OpRead, f.path); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, off)
}

func (f *faultyFile) WriteAt(b []byte, off int64) (int, error) {
	short, err := f.f.strike(OpWrite, f.path)
	if err != nil {
		if n := min(short, len(b)); n > 0 {
			return f.writeShort(b[:n], off), err
		}
		return 0, err
	}
	return f.File.WriteAt(b, off)
}

// writeShort writes a part, past the alignment that direct I/O asks for.
func (f *faultyFile) writeShort(b []byte, off int64) int {
	file, err := f.f.inner.Open(f.path, Mode{Write: true})
	if err != nil {
		return 0
	}
	defer file.Close()
	n, _ := file.WriteAt(b, off)
	return n
}

func (f *faultyFile) WriteVec(parts [][]byte, off int64) error {
	short, err := f.f.strike(OpWrite, f.path)
	if err == nil {
		return f.File.WriteVec(parts, off)
	}
	for _, p := range parts {
		n := min(short, len(p))
		if n == 0 {
			break
		}
		f.writeShort(p[:n], off)
		short, off = short-n, off+int64(n)
	}
	return err
}

func (f *faultyFile) Truncate(sizeBytes int64) error {
	return f.f.do(OpTruncate, f.path, func() error { return f.File.Truncate(sizeBytes) })
}

func (f *faultyFile) Allocate(sizeBytes int64) error {
	return f.f.do(OpAllocate, f.path, func() error { return f.File.Allocate(sizeBytes) })
}

func (f *faultyFile) Sync() error {
	return f.f.do(OpSync, f.path, f.File.Sync)
}

func (f *faultyFile) SyncData() error {
	return f.f.do(OpSyncData, f.path, f.File.SyncData)
}
