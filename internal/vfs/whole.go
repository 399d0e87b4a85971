package vfs

import (
	"errors"
	"fmt"
	"path"
)

// ReadFile reads a file of at most maxBytes whole.
func ReadFile(fsys FS, name string, maxBytes int64) ([]byte, error) {
	f, err := fsys.Open(name, Mode{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > maxBytes {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are expected", name, size, maxBytes)
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n < len(b) {
		return nil, fmt.Errorf("read %d of %d bytes of %s: %w", n, len(b), name, err)
	}
	return b, nil
}

// ReplaceFile makes parts, one after the other, the content of a file in dir, so
// that after a crash it has the old content or the new: written beside it as
// <name>.tmp, synced, renamed, and the folder synced.
func ReplaceFile(fsys FS, dir, name string, parts ...[]byte) error {
	temp := path.Join(dir, name+".tmp")
	if err := writeSynced(fsys, temp, parts); err != nil {
		return fmt.Errorf("write %s: %w", temp, err)
	}
	if err := fsys.Rename(temp, path.Join(dir, name)); err != nil {
		return fmt.Errorf("write %s: %w", path.Join(dir, name), err)
	}
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

func writeSynced(fsys FS, name string, parts [][]byte) error {
	f, err := fsys.Open(name, Mode{Write: true, Create: true})
	if err != nil {
		return err
	}
	if err = f.Truncate(0); err == nil {
		if err = f.WriteVec(parts, 0); err == nil {
			err = f.Sync()
		}
	}
	return errors.Join(err, f.Close())
}
