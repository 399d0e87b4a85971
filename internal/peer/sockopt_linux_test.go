package peer

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDialledConnectionsHaveALimitOnUnacknowledgedData(t *testing.T) {
	tn := onTCP(t, 1, nil)
	conn, err := tn.dial(t.Context(), tn.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var millis int
	if errControl := raw.Control(func(fd uintptr) { millis, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }); errControl != nil || err != nil {
		t.Fatal(errControl, err)
	}
	if millis != int(writeTimeout.Milliseconds()) {
		t.Errorf("%d ms", millis)
	}
}
