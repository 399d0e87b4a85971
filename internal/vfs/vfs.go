// Package vfs is the seam between Tube and the disk: every file that Tube
// opens goes through an FS. There are four: OS (the real one), Mem (in memory,
// with crash copies that lose or tear what was not synced), Faulty (wraps
// another and injects errors, short writes, delays and hangs) and Timed (wraps
// another and tells what has been under way for longest). Nothing outside this
// package imports os for file access.
package vfs

import (
	"io"
	"io/fs"
)

// FS is what the storage layers need of a file system. Paths are
// slash-separated and relative to nothing: callers pass whole paths.
//
// Durability follows POSIX: bytes of a file survive a power cut only after
// File.Sync or File.SyncData returned nil, and a created, renamed or removed
// name only after SyncDir of its folder did.
type FS interface {
	// Open opens (or, with Create, makes) a file.
	Open(path string, mode Mode) (File, error)
	Remove(path string) error
	Rename(from, to string) error
	MkdirAll(path string) error
	// List returns the names in a folder, sorted; fs.ErrNotExist if there is none.
	List(path string) ([]string, error)
	Stat(path string) (Info, error)
	// SyncDir makes the folder's entries durable.
	SyncDir(path string) error
}

// Mode says how Open opens.
type Mode struct {
	Write  bool // read-write; without it read only
	Create bool // make it when it is not there (implies Write)
	// Direct asks for I/O past the page cache (O_DIRECT). Buffers, offsets and
	// lengths must then be multiples of DirectAlign. Where the file system
	// cannot do it the file is opened without; see File.Direct.
	Direct bool
}

// DirectAlign is the alignment in bytes that direct I/O needs: see AlignedBytes.
const DirectAlign = 4096

// File is an open file. Offsets are in bytes from the start. A short write is
// always an error. Methods may be called from several goroutines.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// WriteVec writes the parts one after the other from off (pwritev).
	WriteVec(parts [][]byte, off int64) error
	Truncate(sizeBytes int64) error
	// Sync makes content and size durable (fsync).
	Sync() error
	// SyncData makes content, and size if it changed, durable (fdatasync).
	SyncData() error
	// Allocate makes sure that the first sizeBytes have room on disk, without
	// changing bytes that are there; ENOSPC if they have not.
	Allocate(sizeBytes int64) error
	Size() (int64, error)
	// Direct reports whether I/O goes past the page cache.
	Direct() bool
}

// Prefetcher is a file that can be asked to have bytes ready for a later read.
type Prefetcher interface {
	// Prefetch is advice: it does not wait and cannot fail.
	Prefetch(off, sizeBytes int64)
}

// Space is a file system that can tell how much room is left.
type Space interface {
	// FreeBytes is what may still be written to the disk that holds path.
	FreeBytes(path string) (int64, error)
}

// Volume is a file system that can tell how large it is.
type Volume interface {
	// TotalBytes is the size of the disk that holds path, used or not.
	TotalBytes(path string) (int64, error)
}

// Info is what Stat tells.
type Info struct {
	SizeBytes int64
	IsDir     bool
	Mode      fs.FileMode
}
