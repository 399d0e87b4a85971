package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OS is the real file system.
type OS struct{}

// Open implements FS.
func (OS) Open(path string, mode Mode) (File, error) {
	flags := os.O_RDONLY
	if mode.Write || mode.Create {
		flags = os.O_RDWR
	}
	if mode.Create {
		flags |= os.O_CREATE
	}
	if mode.Direct {
		f, err := os.OpenFile(path, flags|unix.O_DIRECT, 0o644)
		if err == nil {
			return &osFile{f, true}, nil
		}
		if !errors.Is(err, syscall.EINVAL) {
			return nil, err
		}
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return nil, err
	}
	return &osFile{f, false}, nil
}

// Remove implements FS.
func (OS) Remove(path string) error { return os.Remove(path) }

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// MkdirAll implements FS.
func (OS) MkdirAll(path string) error { return os.MkdirAll(path, 0o755) }

// List implements FS.
func (OS) List(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	slices.Sort(names)
	return names, nil
}

// Stat implements FS.
func (OS) Stat(path string) (Info, error) {
	st, err := os.Stat(path)
	if err != nil {
		return Info{}, err
	}
	return Info{SizeBytes: st.Size(), IsDir: st.IsDir(), Mode: st.Mode()}, nil
}

// SyncDir implements FS.
func (OS) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// FreeBytes is what a user without privileges may still write to the disk that holds path.
func (OS) FreeBytes(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return int64(st.Bavail) * st.Bsize, nil
}

type osFile struct {
	*os.File
	direct bool
}

func (f *osFile) Direct() bool { return f.direct }

func (f *osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (f *osFile) SyncData() error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err != syscall.EINTR {
			return wrap("fdatasync", f.Name(), err)
		}
	}
}

func (f *osFile) Allocate(sizeBytes int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, sizeBytes)
		if err == syscall.EOPNOTSUPP {
			return nil // no reservation to be had; a write will tell
		}
		if err != syscall.EINTR {
			return wrap("fallocate", f.Name(), err)
		}
	}
}

// maxVec is how many parts the kernel takes at once (IOV_MAX).
const maxVec = 1024

func (f *osFile) WriteVec(parts [][]byte, off int64) error {
	var vec [][]byte
	for _, p := range parts {
		if len(p) > 0 {
			vec = append(vec, p)
		}
	}
	for len(vec) > 0 {
		n, err := unix.Pwritev(int(f.Fd()), vec[:min(len(vec), maxVec)], off)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return wrap("pwritev", f.Name(), err)
		}
		if n == 0 {
			return wrap("pwritev", f.Name(), fmt.Errorf("wrote nothing"))
		}
		off += int64(n)
		vec = skip(vec, n)
	}
	return nil
}

// skip drops the first n bytes of vec.
func skip(vec [][]byte, n int) [][]byte {
	for n > 0 && n >= len(vec[0]) {
		n -= len(vec[0])
		vec = vec[1:]
	}
	if n > 0 {
		vec[0] = vec[0][n:]
	}
	return vec
}

func wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// AlignedBytes returns sizeBytes bytes that begin at a multiple of DirectAlign.
func AlignedBytes(sizeBytes int) []byte {
	b := make([]byte, sizeBytes+DirectAlign)
	shift := int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % DirectAlign)
	if shift > 0 {
		shift = DirectAlign - shift
	}
	return b[shift : shift+sizeBytes : shift+sizeBytes]
}
