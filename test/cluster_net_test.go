package test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// network gives each node a network namespace of its own, joined by a bridge:
//
//	test process 10.213.N.254 ── bridge ──┬── veth ── node 1, 10.213.N.1
//	                                      ├── veth ── node 2, 10.213.N.2
//	                                      └── …
//
// A node's cable is pulled by taking its end of the bridge down; one direction is
// cut by a route that leads nowhere. Needs root.
type network struct {
	t   *testing.T
	tag string // part of every name, so that runs do not meet
	sub int
}

// newNetwork skips the test where it cannot be had.
func newNetwork(t *testing.T) *network {
	t.Helper()
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("network namespaces need the ip command (iproute2)")
	}
	for sub := range 250 {
		w := &network{t: t, tag: fmt.Sprintf("tube%d", sub), sub: sub}
		if err := ip("link", "add", w.tag, "type", "bridge"); err != nil {
			if strings.Contains(err.Error(), "exists") {
				continue
			}
			t.Skipf("no bridge can be made: %v", err)
		}
		t.Cleanup(func() { _ = ip("link", "del", w.tag) })
		w.must("addr", "add", w.host(254)+"/24", "dev", w.tag)
		w.must("link", "set", w.tag, "up")
		return w
	}
	t.Skip("no free name for a bridge")
	return nil
}

func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (w *network) must(args ...string) {
	w.t.Helper()
	if err := ip(args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *network) host(id int) string      { return fmt.Sprintf("10.213.%d.%d", w.sub, id) }
func (w *network) namespace(id int) string { return w.tag + "n" + strconv.Itoa(id) }
func (w *network) cable(id int) string     { return w.tag + "v" + strconv.Itoa(id) }

// place gives a node its namespace and addresses.
func (w *network) place(n *node, id int) {
	w.t.Helper()
	ns, cable := w.namespace(id), w.cable(id)
	w.must("netns", "add", ns)
	w.t.Cleanup(func() { n.kill(); _ = ip("link", "del", cable); _ = ip("netns", "del", ns) })
	w.must("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", ns)
	w.must("link", "set", cable, "master", w.tag, "up")
	w.must("-n", ns, "addr", "add", w.host(id)+"/24", "dev", "eth0")
	w.must("-n", ns, "link", "set", "eth0", "up")
	w.must("-n", ns, "link", "set", "lo", "up")
	n.kafka, n.http, n.peer = w.host(id)+":9092", w.host(id)+":9080", w.host(id)+":9070"
	n.prefix = []string{"ip", "netns", "exec", ns}
	n.flags = append(n.flags, "--insecure")
}

// pull takes a node off the network; plug brings it back.
func (w *network) pull(id int) { w.t.Helper(); w.must("link", "set", w.cable(id), "down") }
func (w *network) plug(id int) { w.t.Helper(); w.must("link", "set", w.cable(id), "up") }

// mute lets nothing of what one node sends reach another, but not the reverse.
func (w *network) mute(from, to int) {
	w.t.Helper()
	w.must("-n", w.namespace(from), "route", "add", "blackhole", w.host(to)+"/32")
}

func (w *network) unmute(from, to int) {
	w.t.Helper()
	w.must("-n", w.namespace(from), "route", "del", "blackhole", w.host(to)+"/32")
}

// dialFrom connects as a client that stands beside a node: a socket belongs to the
// namespace that its thread is in when it is made.
func (w *network) dialFrom(id int) func(context.Context, string, string) (net.Conn, error) {
	path := "/run/netns/" + w.namespace(id)
	return func(ctx context.Context, proto, addr string) (net.Conn, error) {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return nil, err
		}
		defer home.Close()
		there, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer there.Close()
		if err := unix.Setns(int(there.Fd()), syscall.CLONE_NEWNET); err != nil {
			return nil, err
		}
		d := net.Dialer{Timeout: 2 * time.Second}
		conn, err := d.DialContext(ctx, proto, addr)
		if back := unix.Setns(int(home.Fd()), syscall.CLONE_NEWNET); back == nil {
			runtime.UnlockOSThread() // else the thread ends with the goroutine
		}
		return conn, err
	}
}

// healthy asks a node for its health from beside it.
func (w *network) healthy(id int, n *node) bool {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DialContext: w.dialFrom(id), DisableKeepAlives: true}}
	r, err := client.Get("http://" + n.http + "/healthz")
	if err != nil {
		return false
	}
	r.Body.Close()
	return r.StatusCode == http.StatusOK
}
