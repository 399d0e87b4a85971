package peer

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// limitUnacknowledged makes the system give a connection up when what was sent on
// it is not acknowledged for writeTimeout. Keep-alives do not tell that: with
// heartbeats under way a connection is never idle, and without this Linux sends
// them again for a quarter of an hour.
func limitUnacknowledged(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(writeTimeout.Milliseconds()))
	})
}
