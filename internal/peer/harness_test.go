package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// network is addresses and pipes instead of sockets, so that tests run in the
// time of a synctest bubble.
type network struct {
	mu        sync.Mutex
	listeners map[string]*pipeListener
	// wrap, if set, changes the dialler's end of new connections.
	wrap func(net.Conn) net.Conn
}

func newNetwork() *network { return &network{listeners: map[string]*pipeListener{}} }

type pipeAddr string

func (a pipeAddr) Network() string { return "pipe" }
func (a pipeAddr) String() string  { return string(a) }

type pipeListener struct {
	net   *network
	addr  string
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (n *network) listen(addr string) *pipeListener {
	l := &pipeListener{net: n, addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[addr] = l
	return l
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.net.mu.Lock()
		defer l.net.mu.Unlock()
		if l.net.listeners[l.addr] == l {
			delete(l.net.listeners, l.addr)
		}
	})
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr(l.addr) }

func (n *network) dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	l, wrap := n.listeners[addr], n.wrap
	n.mu.Unlock()
	if l == nil {
		return nil, errors.New("connection refused")
	}
	mine, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
	case <-l.done:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if wrap != nil {
		mine = wrap(mine)
	}
	return mine, nil
}

func (n *network) wrapWith(wrap func(net.Conn) net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wrap = wrap
}

// testNode is a transport, what it received and what it said.
type testNode struct {
	*Transport
	id   Identity
	addr string
	logs *logs

	mu       sync.Mutex
	received []string // "from kind body"
	changes  []string // "up 2", "down 2", "paused 5s"
}

// logs keeps the text of a logger.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func address(node record.NodeID) string { return fmt.Sprintf("node%d:9070", node) }

// newNode makes a node of cluster "c" that is not served yet.
func newNode(n *network, node record.NodeID, change func(*Config)) *testNode {
	tn := &testNode{id: Identity{ClusterID: "c", Node: node, Incarnation: fmt.Sprint("i", node)}, addr: address(node), logs: &logs{}}
	cfg := Config{
		Self: func() Identity { return tn.id },
		Receive: func(from record.NodeID, kind byte, _ *record.Buffer, body []byte) {
			tn.note(&tn.received, fmt.Sprintf("%d %d %s", from, kind, body))
		},
		OnUp:   func(node record.NodeID) { tn.note(&tn.changes, fmt.Sprint("up ", node)) },
		OnDown: func(node record.NodeID) { tn.note(&tn.changes, fmt.Sprint("down ", node)) },
		OnGone: func(by record.NodeID, sentence string) {
			tn.note(&tn.changes, fmt.Sprintf("gone, says %d: %s", by, sentence))
		},
		OnPause: func(d time.Duration) { tn.note(&tn.changes, fmt.Sprint("paused ", d)) },
		Logger:  slog.New(slog.NewTextHandler(tn.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&cfg)
	}
	tn.Transport = New(cfg)
	if n != nil {
		tn.dial = n.dial
	}
	return tn
}

// startNode makes a node and serves it at its address.
func startNode(t *testing.T, n *network, node record.NodeID, change func(*Config)) *testNode {
	t.Helper()
	tn := newNode(n, node, change)
	if err := tn.Serve(n.listen(tn.addr)); err != nil {
		t.Fatal(err)
	}
	return tn
}

func (tn *testNode) note(list *[]string, s string) {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	*list = append(*list, s)
}

func (tn *testNode) got() []string {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	return slices.Clone(tn.received)
}

func (tn *testNode) said() []string {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	return slices.Clone(tn.changes)
}

func (tn *testNode) stop(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := tn.Stop(ctx); err != nil {
		t.Errorf("stop of node %d: %v", tn.id.Node, err)
	}
}

func (tn *testNode) stats(t *testing.T, node record.NodeID) PeerStats {
	t.Helper()
	for _, p := range tn.Stats() {
		if p.Node == node {
			return p
		}
	}
	t.Fatalf("node %d has no figures of node %d", tn.id.Node, node)
	return PeerStats{}
}

// peers introduces nodes to each other.
func peers(nodes ...*testNode) {
	all := map[record.NodeID]string{}
	for _, n := range nodes {
		all[n.id.Node] = n.addr
	}
	for _, n := range nodes {
		n.SetPeers(all)
	}
}

// bubble runs a test in a synctest bubble with its own network.
func bubble(t *testing.T, f func(t *testing.T, n *network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newNetwork()) })
}

// settle lets d pass and all that follows from it happen.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// tally counts releases of frames: each must come exactly once.
type tally struct {
	mu       sync.Mutex
	released []*atomic.Int32
}

func (a *tally) frame(kind byte, parts ...string) Frame {
	n := new(atomic.Int32)
	a.mu.Lock()
	a.released = append(a.released, n)
	a.mu.Unlock()
	f := Frame{Kind: kind, Release: func() { n.Add(1) }}
	for _, p := range parts {
		f.Parts = append(f.Parts, []byte(p))
	}
	return f
}

func (a *tally) check(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, n := range a.released {
		if n.Load() != 1 {
			t.Errorf("frame %d of %d was released %d times", i, len(a.released), n.Load())
		}
	}
}

// sever breaks the connections with a node.
func (t *Transport) sever(node record.NodeID) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if l := t.links[node]; l != nil {
		l.mu.Lock()
		if l.conn != nil {
			_ = l.conn.Close()
		}
		l.mu.Unlock()
	}
	if s := t.sources[node]; s != nil && s.current != nil {
		_ = s.current.conn.Close()
	}
}
