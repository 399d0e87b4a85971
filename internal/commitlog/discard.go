package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/tube-mq/tube/internal/vfs"
)

// Discard removes a partition's folder for good. It is renamed first, so that a
// crash leaves either all of it or something that is plainly rubbish.
func Discard(fsys vfs.FS, dir string) error {
	gone := dir + deletedSuffix
	// What a removal left that a crash cut short is in the way.
	if err := removeDiscarded(fsys, gone); err != nil {
		return err
	}
	err := fsys.Rename(dir, gone)
	if err == nil {
		err = fsys.SyncDir(path.Dir(dir))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("commit log: %w", err)
	}
	return removeDiscarded(fsys, gone)
}

// SweepDiscarded removes what removals left, in the folder of all partitions, that a
// crash cut short.
func SweepDiscarded(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if err != nil {
		return fmt.Errorf("commit log: %w", err)
	}
	for _, n := range names {
		if strings.HasSuffix(n, deletedSuffix) {
			if err := removeDiscarded(fsys, path.Join(dir, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

func removeDiscarded(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("commit log: %w", err)
	}
	for _, n := range names {
		if err := fsys.Remove(path.Join(dir, n)); err != nil {
			return fmt.Errorf("commit log: %w", err)
		}
	}
	return fsys.Remove(dir)
}
