package vfs

import (
	"errors"
	"fmt"
	"io"
)

// FreeBytes tells how many bytes may still be written to the file system that
// holds path; errors.ErrUnsupported if it cannot tell.
func FreeBytes(fsys FS, path string) (int64, error) {
	if f, ok := fsys.(Space); ok {
		return f.FreeBytes(path)
	}
	return 0, errors.ErrUnsupported
}

// TotalBytes tells how large the file system is that holds path, used or not;
// errors.ErrUnsupported if it cannot tell.
func TotalBytes(fsys FS, path string) (int64, error) {
	if f, ok := fsys.(Volume); ok {
		return f.TotalBytes(path)
	}
	return 0, errors.ErrUnsupported
}

// Lock is a held folder; Close lets go of it.
type Lock io.Closer

// LockedError says that another process works in a folder.
type LockedError struct {
	Dir    string
	Holder string // its process id, as far as known
}

func (e *LockedError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("folder %s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("folder %s is in use by process %s", e.Dir, e.Holder)
}

// LockDir takes a folder for this process: a second one, whether here or in
// another process, gets a *LockedError. The lock goes when the process ends.
func LockDir(fsys FS, dir string) (Lock, error) {
	if l, ok := fsys.(interface{ LockDir(string) (Lock, error) }); ok {
		return l.LockDir(dir)
	}
	return nil, errors.ErrUnsupported
}

// FlipBit turns over one bit of a file, as a rotting disk does. For tests.
func FlipBit(fsys FS, path string, offset int64, bit uint) error {
	f, err := fsys.Open(path, Mode{Write: true})
	if err != nil {
		return err
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], offset); err != nil {
		return err
	}
	b[0] ^= 1 << (bit % 8)
	if _, err := f.WriteAt(b[:], offset); err != nil {
		return err
	}
	return f.Sync()
}
