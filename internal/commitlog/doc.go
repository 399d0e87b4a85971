// Package commitlog keeps one partition's committed batches: segments of pure
// record batches named by base offset, each with a sparse index, and a tail in
// memory that the owner writes to the last segment now and then. It never sees
// uncommitted data.
//
// It starts a goroutine only to read ahead of who reads on (ReadOn), for one piece, and
// Close waits for it. One owner appends; Flush, Sync and Sweep may be called
// by others, meanwhile; any number of readers read. Durability is not its part:
// what the tail and the page cache lose comes again from the write-ahead log,
// after Cut has made the log end where the owner's checkpoint does.
//
//	<base offset, 20 digits>.log        record batches, one after the other, as clients get them
//	<base offset, 20 digits>.index      rows of 16 bytes: where a batch begins, and its epoch
//	<base offset, 20 digits>.timeindex  rows of 16 bytes: the largest timestamp before it
//	*.deleted                           waits for Sweep
//
// docs/format-commitlog.md has them byte by byte.
//
// Every batch served from a file is checked on every read: its CRC, that its base
// offset is the one that must stand there, and that its leader epoch, which no
// CRC covers, is the one that the index knows. What fails is a *CorruptError,
// never data and never the end of the log.
package commitlog
