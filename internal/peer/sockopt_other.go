//go:build !linux

package peer

import "syscall"

// limitUnacknowledged does nothing: elsewhere the write deadline has to do, once
// the system's buffer is full.
func limitUnacknowledged(_, _ string, _ syscall.RawConn) error { return nil }
