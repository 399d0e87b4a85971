// Package commitlog is one partition's committed batches: segments of pure
// record batches named by their base offset, each with a sparse index, and a
// tail in memory that is written to the last segment when the owner says so.
// It never sees uncommitted data. It starts no goroutine: one owner appends,
// flushes, syncs and drops; any number of readers read.
//
//	<base offset %020d>.log     record batches, one after the other, as clients get them
//	<base offset %020d>.index   rows of 32 bytes (index.go)
//
// Every batch that is served from a file is checked first: its CRC, and that its
// base offset is the one that must stand there.
package commitlog
