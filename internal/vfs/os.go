package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OS is the operating system's file system (Linux).
type OS struct{}

var _ FS = OS{}

// maxVec is how many parts one pwritev takes (IOV_MAX).
const maxVec = 1024

// AlignedBytes returns n bytes whose address is a multiple of DirectAlign.
func AlignedBytes(n int) []byte {
	b := make([]byte, n+DirectAlign)
	pad := (DirectAlign - Misalignment(b)) % DirectAlign
	return b[pad : pad+n : pad+n]
}

// Misalignment is how many bytes lie between the last multiple of DirectAlign and the
// address of b.
func Misalignment(b []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % DirectAlign)
}

// WholePages is the part of b that is whole pages of memory: from rounded up and to rounded
// down; from ≥ to if there is none.
func WholePages(b []byte) (from, to int) {
	in := Misalignment(b)
	return -in & (DirectAlign - 1), (in+len(b))&^(DirectAlign-1) - in
}

// Aligned reports whether the address of b is a multiple of DirectAlign.
func Aligned(b []byte) bool { return Misalignment(b) == 0 }

// IsFull reports whether err says that the disk, or the user's share of it, is full.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

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
			return &osFile{f: f, direct: true}, nil
		}
		if !errors.Is(err, syscall.EINVAL) {
			return nil, err
		}
		// tmpfs and some others have no direct I/O.
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return nil, err
	}
	return &osFile{f: f}, nil
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
	return names, nil
}

// Stat implements FS.
func (OS) Stat(path string) (Info, error) {
	i, err := os.Stat(path)
	if err != nil {
		return Info{}, err
	}
	return Info{SizeBytes: i.Size(), IsDir: i.IsDir(), Mode: i.Mode()}, nil
}

// SyncDir implements FS.
func (OS) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// FreeBytes implements the query of the function FreeBytes.
func (OS) FreeBytes(path string) (int64, error) {
	var st unix.Statfs_t
	err := retry(func() error { return unix.Statfs(path, &st) })
	if err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// TotalBytes implements the query of the function TotalBytes.
func (OS) TotalBytes(path string) (int64, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(path, &st) }); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return int64(st.Blocks) * st.Bsize, nil
}

// lockName is the file in a locked folder that names the process which holds it.
const lockName = "LOCK"

type osLock struct{ f *os.File }

// LockDir implements the lock of the function LockDir. The kernel lets go of
// it when the process ends, however it ends.
func (OS) LockDir(path string) (Lock, error) {
	f, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = retry(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			holder := make([]byte, 32)
			n, _ := f.ReadAt(holder, 0)
			return nil, &LockedError{Dir: path, Holder: strings.TrimSpace(string(holder[:n]))}
		}
		return nil, &fs.PathError{Op: "flock", Path: path, Err: err}
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	if err != nil && !IsFull(err) { // the lock holds without the number too
		f.Close()
		return nil, err
	}
	return &osLock{f}, nil
}

func (l *osLock) Close() error { return l.f.Close() }

// OSFile returns the file behind a File of OS, for what only a real file can
// do (sendfile). It must not be closed, and not be written to.
func OSFile(f File) (*os.File, bool) {
	if o, ok := f.(*osFile); ok {
		return o.f, true
	}
	return nil, false
}

type osFile struct {
	f      *os.File
	direct bool
}

// os.File's ReadAt and WriteAt go on after EINTR and after a part.

func (o *osFile) ReadAt(p []byte, off int64) (int, error)  { return o.f.ReadAt(p, off) }
func (o *osFile) WriteAt(p []byte, off int64) (int, error) { return o.f.WriteAt(p, off) }
func (o *osFile) Close() error                             { return o.f.Close() }
func (o *osFile) Truncate(sizeBytes int64) error           { return o.f.Truncate(sizeBytes) }
func (o *osFile) Sync() error                              { return o.f.Sync() }
func (o *osFile) Direct() bool                             { return o.direct }

func (o *osFile) Size() (int64, error) {
	i, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return i.Size(), nil
}

func (o *osFile) SyncData() error {
	return o.control("fdatasync", func(fd int) error {
		return retry(func() error { return unix.Fdatasync(fd) })
	})
}

func (o *osFile) Allocate(sizeBytes int64) error {
	return o.control("fallocate", func(fd int) error {
		err := retry(func() error { return unix.Fallocate(fd, 0, 0, sizeBytes) })
		if errors.Is(err, unix.EOPNOTSUPP) {
			return nil // no reservation to be had; a write will tell
		}
		return err
	})
}

func (o *osFile) WriteVec(parts [][]byte, off int64) error {
	return o.control("pwritev", func(fd int) error {
		return writeVec(parts, off, func(vec [][]byte, off int64) (int, error) {
			return unix.Pwritev(fd, vec, off)
		})
	})
}

// control runs f with the descriptor, which cannot be closed meanwhile.
func (o *osFile) control(op string, f func(fd int) error) error {
	conn, err := o.f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := conn.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	if inner != nil {
		return &fs.PathError{Op: op, Path: o.f.Name(), Err: inner}
	}
	return nil
}

// writeVec writes all parts from off on: in portions that the kernel takes, and
// on from where it stopped when it wrote less.
func writeVec(parts [][]byte, off int64, pwritev func([][]byte, int64) (int, error)) error {
	vec := make([][]byte, 0, min(len(parts), maxVec))
	skip := 0 // bytes of parts[0] that are written
	for len(parts) > 0 {
		vec = vec[:0]
		for i := range parts[:min(len(parts), maxVec)] {
			vec = append(vec, parts[i])
		}
		vec[0] = vec[0][skip:]
		sizeBytes := 0
		for _, v := range vec {
			sizeBytes += len(v)
		}
		n := 0
		if sizeBytes > 0 {
			var err error
			if n, err = pwritev(vec, off); errors.Is(err, unix.EINTR) {
				continue
			} else if err != nil {
				return err
			}
			if n <= 0 {
				return errors.New("nothing written, no error")
			}
		}
		off += int64(n)
		for n += skip; len(parts) > 0 && n >= len(parts[0]); {
			n -= len(parts[0])
			parts = parts[1:]
		}
		skip = n
	}
	return nil
}

func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Prefetch implements Prefetcher.
func (o *osFile) Prefetch(off, sizeBytes int64) {
	_ = o.control("fadvise", func(fd int) error {
		return unix.Fadvise(fd, off, sizeBytes, unix.FADV_WILLNEED)
	}) // advice only
}
