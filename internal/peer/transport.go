// Package peer carries what the nodes of a cluster say to each other.
//
// A node has one listener for its peers. On it runs a plain HTTP server, 1.1 and
// 2, that serves two things: control calls, which are Connect handlers that
// others mount (Config.Handler), and messages, which are raw frames on a
// connection that an HTTP/1.1 upgrade turned over to this package.
//
//	POST /tube.peer/messages HTTP/1.1         HTTP/1.1 101 Switching Protocols
//	Connection: Upgrade                       Connection: Upgrade
//	Upgrade: tube-peer/1                      Upgrade: tube-peer/1
//	Tube-Peer-Protocol: 1                     Tube-Peer-Protocol: 1
//	Tube-Cluster-Id: …                        Tube-Cluster-Id: …
//	Tube-Node: 1                              Tube-Node: 2
//	Tube-Incarnation: …                       Tube-Incarnation: …
//	Tube-Target-Node: 2
//
// or 409 and a sentence that says why not. Messages are not gRPC because raw
// frames carry three to seven times as much in bulk (measured here before the
// first line); control calls are few and do not need that.
//
// # Frames
//
// A messages connection carries frames one way, from the node that dialled. So
// there are two between a pair of nodes, and each node keeps up its own.
//
//	 0        4    5        9
//	┌────────┬────┬────────┬──────────┐
//	│ length │kind│ CRC32C │ body …   │   little-endian; length counts what follows it;
//	└────────┴────┴────────┴──────────┘   the CRC32C (Castagnoli) is of kind and body
//
// Kind 0 is the transport's heartbeat, sent every HeartbeatInterval:
//
//	┌─────────────┬─────────────┬─────────────┐  sent: the sender's clock, ns; echo: the newest
//	│ sent (8)    │ echo (8)    │ held (8)    │  "sent" heard from the receiver; held: ns between
//	└─────────────┴─────────────┴─────────────┘  hearing it and sending this
//
// Other kinds belong to the user of the package. Frames of one sender arrive in
// order, but the last ones before a connection breaks may be lost: whoever sends
// must be able to live without any of them, as Raft is.
//
// Measured over loopback, sender and receiver on the same two cores (BenchmarkSend):
// 4,000 MiB/s in frames of 64 KiB (TLS: 1,230), 3 million frames of 100 B a second.
//
// # Who owns what
//
// A link is the way to one peer: address, queue, and one goroutine that dials,
// writes, and dials again. A source is what is known of a node that sends to us:
// its connection, when it was last heard, whether it counts as up. An inbound is
// one such connection and the goroutine that reads it. The watch is one
// goroutine that compares all sources with the clock and alone calls OnUp, OnDown
// and OnPause.
//
// A sent frame belongs to the transport until its Release; a received body lies
// in a record.Buffer that the receiver retains if it keeps it.
//
// # Limits
//
// What waits for a peer is at most QueueBytes; what is beyond is dropped. While a
// peer cannot be reached for DeadAfter, nothing waits for it: old Raft messages
// are worth less than the memory. A received frame takes memory for what came of
// it, not for what its length claims. There are at most maxSources senders.
package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

const (
	handshakeTimeout = 3 * time.Second        // dialling, TLS and the upgrade together
	writeTimeout     = 5 * time.Second        // for one write of at most writeBytes
	drainTimeout     = 500 * time.Millisecond // for what waits when the transport stops
	idleTimeout      = 5 * time.Minute        // of connections for control calls
	maxSources       = 1024
)

// keepAlive finds peers that vanished without a word. A connection on which we
// write is watched by the system's limit on unacknowledged data instead.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 4}

// Config is what a transport needs. Self and Receive are required.
type Config struct {
	// Self says who this node is. It is asked for every handshake and call; the
	// cluster id may be empty while a cluster is being founded.
	Self func() Identity
	// TLS is for both the server and the client; nil is plaintext. It is mutual
	// when ClientAuth says so. Whoever shows a certificate must be in it by the
	// name node-<id>.tube, as DNS name or as URI; the host name is not looked at.
	// VerifyConnection is asked too; VerifyPeerCertificate sees no verified chains
	// of servers, and GetConfigForClient is not supported.
	TLS *tls.Config
	// Handler serves control calls; nil answers 404.
	Handler http.Handler
	// Receive takes a frame, from the goroutine that reads the connection, in
	// order for one sender. The body lies in buf, perhaps with others: who keeps
	// it retains buf, and a small body that is kept for long is better copied. It
	// must not block for long: the sender is not heard meanwhile.
	Receive func(from record.NodeID, kind byte, buf *record.Buffer, body []byte)
	// OnUp and OnDown tell of changes of Alive, OnPause that this process did not
	// run for d. One goroutine calls all three, so they never run at once; they
	// must not block. A node's first frames may be received before its OnUp.
	OnUp, OnDown func(node record.NodeID)
	OnPause      func(d time.Duration)
	// Refuse is asked for every incoming messages connection; its error's text is
	// sent to the dialler. Nil accepts.
	Refuse func(Identity) error
	// OnGone is told what a peer says who refuses this node for good; see Gone. It may
	// be called by several goroutines, and more than once.
	OnGone func(by record.NodeID, sentence string)

	HeartbeatInterval time.Duration // default 100 ms
	DeadAfter         time.Duration // a peer not heard for this long is down; default 1 s
	QueueBytes        int64         // that wait for one peer, overhead of frames included; default 64 MiB
	MaxFrameBytes     int           // of one body; default 64 MiB
	Logger            *slog.Logger  // default slog.Default
}

// Gone marks what Config.Refuse returns as the last word: the node is none of this cluster
// any more and never will be, as it was removed or another has taken its place.
func Gone(err error) error { return goneError{err} }

// IsGone reports whether Gone marked an error.
func IsGone(err error) bool { return errors.As(err, new(goneError)) }

type goneError struct{ error }

func (c *Config) validate() {
	if c.Self == nil || c.Receive == nil {
		panic("peer: Config without Self or Receive")
	}
	if c.TLS != nil && c.TLS.GetConfigForClient != nil {
		panic("peer: Config.TLS with GetConfigForClient, which would evade the check of node ids")
	}
	setDefault(&c.HeartbeatInterval, 100*time.Millisecond)
	setDefault(&c.DeadAfter, time.Second)
	setDefault(&c.QueueBytes, 64<<20)
	setDefault(&c.MaxFrameBytes, 64<<20)
	if c.MaxFrameBytes > 1<<30 {
		panic("peer: Config.MaxFrameBytes is more than 1 GiB")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Handler == nil {
		c.Handler = http.NotFoundHandler()
	}
	if c.Refuse == nil {
		c.Refuse = func(Identity) error { return nil }
	}
	if c.OnGone == nil {
		c.OnGone = func(record.NodeID, string) {}
	}
	if c.OnUp == nil {
		c.OnUp = func(record.NodeID) {}
	}
	if c.OnDown == nil {
		c.OnDown = func(record.NodeID) {}
	}
	if c.OnPause == nil {
		c.OnPause = func(time.Duration) {}
	}
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Transport connects this node with its peers.
type Transport struct {
	cfg    Config
	log    *slog.Logger
	start  time.Time // of the clock that now reads
	server *http.Server
	watch  watch
	seeds  *http.Client // for addresses whose node is not known
	dial   func(ctx context.Context, addr string) (net.Conn, error)

	ctx     context.Context // ends when Stop no longer waits for what is under way
	cancel  context.CancelFunc
	running sync.WaitGroup // links, inbounds, server, watch; added to under mu, unless stopped

	mu      sync.RWMutex
	served  bool
	stopped bool
	// links are the peers, exactly those of the last SetPeers. Invariant: the
	// source of every link is in sources.
	links   map[record.NodeID]*link
	sources map[record.NodeID]*source
	// inbounds are all connections that were taken over, also those being
	// admitted or replaced, so that Stop can close them.
	inbounds map[*inbound]struct{}
	removals atomic.Int64 // how often SetPeers took nodes out
}

// New returns a transport that neither listens nor dials yet.
func New(cfg Config) *Transport {
	cfg.validate()
	t := &Transport{
		cfg: cfg, log: cfg.Logger, start: time.Now(),
		links: map[record.NodeID]*link{}, sources: map[record.NodeID]*source{}, inbounds: map[*inbound]struct{}{},
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.dial = func(ctx context.Context, addr string) (net.Conn, error) {
		d := net.Dialer{KeepAliveConfig: keepAlive, Control: limitUnacknowledged}
		return d.DialContext(ctx, "tcp", addr)
	}
	t.watch = newWatch(t)
	t.seeds = t.newClient(nil)
	t.server = t.newServer()
	return t
}

// now is a monotonic clock in nanoseconds; it is never 0.
func (t *Transport) now() int64 { return int64(time.Since(t.start)) + 1 }

// Serve listens on l, which Stop closes. It returns at once.
func (t *Transport) Serve(l net.Listener) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped || t.served {
		return errors.Join(errors.New("peer transport: serving already, or stopped"), l.Close())
	}
	t.served = true
	t.running.Go(t.watch.run)
	t.running.Go(func() {
		serve := t.server.Serve
		if t.cfg.TLS != nil {
			serve = func(l net.Listener) error { return t.server.ServeTLS(l, "", "") }
		}
		if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.log.Error("peer listener closed", "err", err)
		}
	})
	return nil
}

// SetPeers says which nodes this one sends to, and where they are. New ones are
// dialled; with missing ones both connections are closed. This node itself is
// left out. A peer with a new address gets a new link.
func (t *Transport) SetPeers(addresses map[record.NodeID]string) {
	self := t.cfg.Self().Node
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	for node, l := range t.links {
		if addr, ok := addresses[node]; ok && addr == l.addr && node != self {
			continue
		}
		l.cancel()
		delete(t.links, node)
		if _, moved := addresses[node]; !moved {
			t.removals.Add(1)
			l.src.leave()
		}
	}
	for node, addr := range addresses {
		if t.links[node] == nil && node != self {
			l := newLink(t, node, addr, t.sourceLocked(node))
			t.links[node] = l
			t.running.Go(l.run)
		}
	}
	t.watch.poke()
}

// Send queues a frame for a peer and reports whether it did. It never blocks. If
// it did not (not a peer, out of reach, queue full, too large, stopped), the
// frame is released already.
func (t *Transport) Send(to record.NodeID, f Frame) bool {
	if f.Kind == kindHeartbeat {
		panic("peer: Send of frame kind 0, which is the transport's own")
	}
	t.mu.RLock()
	l := t.links[to]
	t.mu.RUnlock()
	if l == nil {
		f.release()
		return false
	}
	if n := f.bodyBytes(); n > t.cfg.MaxFrameBytes {
		t.log.Error("frame for peer is too large and was dropped", "peer", to, "kind", f.Kind, "bytes", n, "limit", t.cfg.MaxFrameBytes)
		l.queue.drop(f)
		return false
	}
	return l.queue.put(f)
}

// Stop lets control calls end, writes what waits for peers if that is quick,
// closes everything and waits. When ctx ends first, it no longer waits for
// handlers and says so. It may be called twice.
func (t *Transport) Stop(ctx context.Context) error {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	errServer := t.server.Shutdown(ctx)
	if errServer != nil {
		errServer = errors.Join(errServer, t.server.Close())
	}
	t.drain(ctx)
	t.cancel()
	t.mu.Lock()
	for in := range t.inbounds {
		_ = in.conn.Close()
	}
	for _, l := range t.links {
		l.client.CloseIdleConnections()
	}
	t.mu.Unlock()
	t.seeds.CloseIdleConnections()

	done := make(chan struct{})
	go func() { // ends with the goroutines that it waits for
		t.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return errServer
	case <-ctx.Done():
	}
	select {
	case <-done: // all had ended already
		return errServer
	default:
		return errors.Join(errServer, ctx.Err())
	}
}

// drain gives links a moment to write what waits.
func (t *Transport) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	t.mu.RLock()
	links := slices.Collect(maps.Values(t.links))
	t.mu.RUnlock()
	for _, l := range links {
		l.finish()
	}
	for _, l := range links {
		select {
		case <-l.done:
		case <-ctx.Done():
			return
		}
	}
}
