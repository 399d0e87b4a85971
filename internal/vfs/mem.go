package vfs

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Mem is a file system in memory that knows what would survive a power cut:
// see CrashCopy. Safe for use by many goroutines.
//
// It is as strict as POSIX allows: a file's bytes are durable after its Sync,
// its name after SyncDir of its folder. The top folder alone is always durable,
// so that what a test makes right below it is there after a crash.
type Mem struct {
	mu   sync.Mutex
	root *node
	// pending are changes of folders that no SyncDir has made durable, in order.
	pending  []entryOp
	capacity int64 // bytes; 0: no limit
	hook     func(op Op, done bool)
	locked   map[string]bool
}

var _ FS = (*Mem)(nil)

// node is an inode: a folder or a file.
type node struct {
	// Of a folder.
	children map[string]*node
	durable  map[string]*node // as of the last SyncDir

	// Of a file.
	content *content
}

func (n *node) isDir() bool { return n.children != nil }

func newDir() *node { return &node{children: map[string]*node{}, durable: map[string]*node{}} }

// entryOp is one change of folder entries: create (only to), remove (only
// from) or rename (both).
type entryOp struct {
	fromDir, toDir   *node
	fromName, toName string
	n                *node
}

func (o *entryOp) apply(entries func(*node) map[string]*node) {
	if o.fromDir != nil {
		if m := entries(o.fromDir); m[o.fromName] == o.n {
			delete(m, o.fromName)
		}
	}
	if o.toDir != nil {
		entries(o.toDir)[o.toName] = o.n
	}
}

func current(n *node) map[string]*node { return n.children }
func durable(n *node) map[string]*node { return n.durable }

// NewMem returns an empty file system.
func NewMem() *Mem { return &Mem{root: newDir(), locked: map[string]bool{}} }

// SetCapacity limits the bytes that files may take (in whole pages; 0: no
// limit). Beyond it writes and allocations get ENOSPC and change nothing.
func (m *Mem) SetCapacity(sizeBytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = sizeBytes
}

// SetHook has f called before (done = false) and after (done = true) every
// operation that changes anything or makes it durable, from the goroutine that
// does it, so that a test can take a CrashCopy at every step. nil: none.
func (m *Mem) SetHook(f func(op Op, done bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = f
}

// do runs f under the lock, between the hook's two calls.
func (m *Mem) do(op Op, f func() error) error {
	m.mu.Lock()
	hook := m.hook
	m.mu.Unlock()
	if op.Kind&OpMutating == 0 {
		hook = nil
	}
	if hook != nil {
		hook(op, false)
		defer hook(op, true)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return f()
}

func pathError(op OpKind, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op.String(), Path: name, Err: err}
}

func split(name string) []string {
	name = strings.Trim(path.Clean("/"+name), "/")
	if name == "" {
		return nil
	}
	return strings.Split(name, "/")
}

// find walks to a node; parent is its folder, nil for the root.
func (m *Mem) find(name string) (parent, n *node, base string, err error) {
	n = m.root
	parts := split(name)
	for i, p := range parts {
		if n == nil || !n.isDir() {
			return nil, nil, "", fs.ErrNotExist
		}
		parent, n, base = n, n.children[p], p
		if n == nil && i < len(parts)-1 {
			return nil, nil, "", fs.ErrNotExist
		}
	}
	return parent, n, base, nil
}

func (m *Mem) change(op entryOp) {
	op.apply(current)
	if (op.fromDir == nil || op.fromDir == m.root) && (op.toDir == nil || op.toDir == m.root) {
		op.apply(durable)
		return
	}
	m.pending = append(m.pending, op)
}

// Open implements FS.
func (m *Mem) Open(name string, mode Mode) (File, error) {
	kind := OpOpen
	if mode.Create {
		m.mu.Lock()
		if _, n, _, err := m.find(name); err == nil && n == nil {
			kind = OpCreate
		}
		m.mu.Unlock()
	}
	var f *memFile
	err := m.do(Op{Kind: kind, Path: name}, func() error {
		parent, n, base, err := m.find(name)
		switch {
		case err != nil:
			return err
		case n == nil && !mode.Create:
			return fs.ErrNotExist
		case n == nil:
			n = &node{content: newContent()}
			m.change(entryOp{toDir: parent, toName: base, n: n})
		case n.isDir():
			return syscall.EISDIR
		}
		f = &memFile{m: m, name: name, c: n.content, mode: mode}
		return nil
	})
	if err != nil {
		return nil, pathError(kind, name, err)
	}
	return f, nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	err := m.do(Op{Kind: OpRemove, Path: name}, func() error {
		parent, n, base, err := m.find(name)
		switch {
		case err != nil:
			return err
		case n == nil:
			return fs.ErrNotExist
		case parent == nil:
			return fs.ErrInvalid
		case len(n.children) > 0:
			return syscall.ENOTEMPTY
		}
		m.change(entryOp{fromDir: parent, fromName: base, n: n})
		return nil
	})
	return pathError(OpRemove, name, err)
}

// Rename implements FS. It is atomic: a crash copy has it or has it not.
func (m *Mem) Rename(from, to string) error {
	err := m.do(Op{Kind: OpRename, Path: from, To: to}, func() error {
		fromDir, n, fromName, err := m.find(from)
		if err != nil {
			return err
		}
		toDir, old, toName, err := m.find(to)
		switch {
		case err != nil:
			return err
		case n == nil:
			return fs.ErrNotExist
		case fromDir == nil || toDir == nil:
			return fs.ErrInvalid
		case old == n:
			return nil
		case old != nil && len(old.children) > 0:
			return syscall.ENOTEMPTY
		case old != nil && old.isDir() != n.isDir():
			return syscall.EEXIST
		}
		m.change(entryOp{fromDir: fromDir, fromName: fromName, toDir: toDir, toName: toName, n: n})
		return nil
	})
	return pathError(OpRename, from, err)
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(name string) error {
	err := m.do(Op{Kind: OpMkdir, Path: name}, func() error {
		at := m.root
		for _, p := range split(name) {
			next := at.children[p]
			if next == nil {
				next = newDir()
				m.change(entryOp{toDir: at, toName: p, n: next})
			}
			if !next.isDir() {
				return syscall.ENOTDIR
			}
			at = next
		}
		return nil
	})
	return pathError(OpMkdir, name, err)
}

// List implements FS.
func (m *Mem) List(name string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, n, _, err := m.find(name)
	switch {
	case err != nil:
		return nil, pathError(OpList, name, err)
	case n == nil:
		return nil, pathError(OpList, name, fs.ErrNotExist)
	case !n.isDir():
		return nil, pathError(OpList, name, syscall.ENOTDIR)
	}
	names := make([]string, 0, len(n.children))
	for k := range n.children {
		names = append(names, k)
	}
	slices.Sort(names)
	return names, nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, n, _, err := m.find(name)
	switch {
	case err != nil:
		return Info{}, pathError(OpStat, name, err)
	case n == nil:
		return Info{}, pathError(OpStat, name, fs.ErrNotExist)
	case n.isDir():
		return Info{IsDir: true, Mode: fs.ModeDir | 0o750}, nil
	}
	return Info{SizeBytes: n.content.size, Mode: 0o640}, nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(name string) error {
	err := m.do(Op{Kind: OpSyncDir, Path: name}, func() error {
		_, n, _, err := m.find(name)
		switch {
		case err != nil:
			return err
		case n == nil:
			return fs.ErrNotExist
		case !n.isDir():
			return syscall.ENOTDIR
		}
		m.pending = slices.DeleteFunc(m.pending, func(o entryOp) bool {
			if o.fromDir != n && o.toDir != n {
				return false
			}
			o.apply(durable)
			return true
		})
		return nil
	})
	return pathError(OpSyncDir, name, err)
}

// FreeBytes tells what the capacity leaves.
func (m *Mem) FreeBytes(string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.capacity == 0 {
		return 1 << 50, nil
	}
	return max(0, m.capacity-m.used()), nil
}

func (m *Mem) used() int64 {
	var pages int64
	seen := map[*node]bool{}
	var walk func(*node)
	walk = func(n *node) {
		if seen[n] {
			return
		}
		seen[n] = true
		if n.content != nil {
			pages += int64(len(n.content.pages))
		}
		for _, c := range n.children {
			walk(c)
		}
	}
	walk(m.root)
	return pages * pageBytes
}

// room says whether n more pages fit.
func (m *Mem) room(pages int64) error {
	if pages > 0 && m.capacity > 0 && m.used()+pages*pageBytes > m.capacity {
		return syscall.ENOSPC
	}
	return nil
}

type memLock struct {
	m   *Mem
	dir string
}

// LockDir implements the lock of the function LockDir. A crash copy starts
// without locks.
func (m *Mem) LockDir(dir string) (Lock, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir = path.Clean(dir)
	if m.locked[dir] {
		return nil, &LockedError{Dir: dir}
	}
	m.locked[dir] = true
	return &memLock{m, dir}, nil
}

func (l *memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.locked, l.dir)
	return nil
}
