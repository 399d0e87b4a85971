package peer

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tube-mq/tube/internal/pulse"
	"github.com/tube-mq/tube/internal/record"
)

const (
	backoffMin = 50 * time.Millisecond
	backoffMax = time.Second

	answerBytes   = 16 << 10 // of an answer's head
	sentenceBytes = 512      // of a refusal
	maxComplaints = 16       // distinct texts that are logged while a peer cannot be reached
)

var errFinished = errors.New("transport stopped")

// link is the way to one peer.
type link struct {
	t      *Transport
	node   record.NodeID
	addr   string
	src    *source // the same node, the other way
	queue  *queue
	client *http.Client // for control calls

	ctx    context.Context
	cancel context.CancelFunc // ends the link at once
	done   chan struct{}      // closed when run has returned

	// finishing is closed when the link shall end after writing what waits.
	finishing chan struct{}
	// soon holds a token when the peer is known to be there: do not wait to dial.
	soon chan struct{}

	mu       sync.Mutex
	finished bool
	conn     net.Conn  // or nil
	since    time.Time // when it came about; zero without one

	sentFrames, sentBytes atomic.Int64

	complaints map[string]bool // logged since a connection last held; run's own
}

func newLink(t *Transport, node record.NodeID, addr string, src *source) *link {
	l := &link{
		t: t, node: node, addr: addr, src: src, queue: newQueue(t.cfg.QueueBytes), client: t.newClient(&node),
		done: make(chan struct{}), finishing: make(chan struct{}), soon: make(chan struct{}, 1), complaints: map[string]bool{},
	}
	l.ctx, l.cancel = context.WithCancel(t.ctx)
	return l
}

// finish ends the link after it has written what waits; at once if it is not
// connected.
func (l *link) finish() {
	l.queue.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.finished {
		return
	}
	l.finished = true
	close(l.finishing)
	if l.conn == nil {
		l.cancel()
	}
}

// hurry cuts the wait before the next attempt short.
func (l *link) hurry() {
	select {
	case l.soon <- struct{}{}:
	default:
	}
}

func (l *link) setConn(conn net.Conn, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, l.since = conn, since
}

// run keeps the connection up until the link ends.
func (l *link) run() {
	defer close(l.done)
	defer l.client.CloseIdleConnections()
	defer func() {
		l.queue.close()
		l.queue.lost(l.queue.take(nil))
	}()
	backoff, cutOff := backoffMin, time.Now()
	for l.ctx.Err() == nil {
		soon := l.soon
		conn, err := l.connect()
		if err == nil {
			began := time.Now()
			l.setConn(conn, began)
			l.queue.accept()
			l.t.log.Info("connected to peer", "peer", l.node, "address", l.addr)
			err = l.use(conn)
			l.setConn(nil, time.Time{})
			if cutOff = time.Now(); cutOff.Sub(began) > backoffMax {
				backoff = backoffMin
				clear(l.complaints)
			} else {
				soon = nil // or two nodes that cannot keep a connection would drive each other
			}
		}
		if errors.Is(err, errFinished) {
			return
		}
		if time.Since(cutOff) >= l.t.cfg.DeadAfter {
			l.queue.refuse()
		}
		l.complain(err)
		l.pause(backoff, soon)
		backoff = min(2*backoff, backoffMax)
	}
}

// pause waits before the next attempt.
func (l *link) pause(backoff time.Duration, soon <-chan struct{}) {
	select {
	case <-time.After(backoff/2 + rand.N(backoff/2)):
	case <-soon:
	case <-l.ctx.Done():
	}
}

// complain logs why there is no connection, each reason once.
func (l *link) complain(err error) {
	text := reason(err)
	if l.ctx.Err() != nil || l.complaints[text] || len(l.complaints) >= maxComplaints {
		return
	}
	l.complaints[text] = true
	l.t.log.Warn("no connection to peer; will try again", "peer", l.node, "address", l.addr, "err", text)
}

// reason is the text of an error without the ports that make each one different.
func reason(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}

// connect dials and shakes hands.
func (l *link) connect() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.ctx, handshakeTimeout)
	defer cancel()
	conn, err := l.t.dial(ctx, l.addr)
	if err != nil {
		return nil, err
	}
	unwatch := context.AfterFunc(ctx, func() { _ = conn.Close() })
	secured, err := l.handshake(ctx, conn)
	if !unwatch() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secured, nil
}

func (l *link) handshake(ctx context.Context, conn net.Conn) (net.Conn, error) {
	if l.t.cfg.TLS != nil {
		c := tls.Client(conn, l.t.clientTLS(&l.node, "http/1.1"))
		if err := c.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		conn = c
	}
	if err := l.upgrade(conn); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("no answer to the handshake within %v", handshakeTimeout)
		}
		return nil, err
	}
	return conn, nil
}

func (l *link) upgrade(conn net.Conn) error {
	self := l.t.cfg.Self()
	req := &http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: messagesPath}, Host: l.addr,
		ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {upgradeTo}},
	}
	self.writeTo(req.Header)
	req.Header.Set(headerTarget, formatNode(l.node))
	if err := req.Write(conn); err != nil {
		return err
	}
	// What the reader takes beyond the head is lost; the peer sends nothing there.
	resp, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, answerBytes)), req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, sentenceBytes))
		sentence := strings.TrimSpace(string(b))
		if by, ok := Caller(resp.Header); resp.StatusCode == http.StatusGone && ok && by.Node == l.node && by.ClusterID == self.ClusterID && self.ClusterID != "" {
			l.t.cfg.OnGone(l.node, sentence)
		}
		return fmt.Errorf("refused: %s (%s)", sentence, resp.Status)
	}
	peer, ok := Caller(resp.Header)
	switch {
	case resp.Header.Get(headerProtocol) != protocol || !ok:
		return errors.New("the address answers, but not as a peer")
	case peer.Node != l.node:
		return fmt.Errorf("the address is that of node %d, not of node %d", peer.Node, l.node)
	case !sameCluster(peer, self):
		return fmt.Errorf("wrong cluster id: the peer is in cluster %s, this node is in %s", peer.ClusterID, self.ClusterID)
	}
	return nil
}

// use writes to a connection until it breaks or the link ends.
func (l *link) use(conn net.Conn) error {
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		l.awaitEnd(conn)
	}()
	unwatch := context.AfterFunc(l.ctx, func() { _ = conn.Close() })
	err := l.write(conn, broken)
	unwatch()
	_ = conn.Close()
	<-broken
	return err
}

// awaitEnd returns when the peer closed the connection. Nothing comes back on it.
func (l *link) awaitEnd(conn net.Conn) {
	var b [1]byte
	_, _ = conn.Read(b[:])
}

func (l *link) write(conn net.Conn, broken <-chan struct{}) error {
	w := newFrameWriter(conn)
	ticker := pulse.NewTicker(l.t.cfg.HeartbeatInterval)
	defer ticker.Stop()
	var frames []Frame
	var body [heartbeatBytes]byte
	for beat := true; ; {
		// Heartbeats are sent on time beside other frames too, for the round trip.
		if beat {
			if err := w.add(kindHeartbeat, [][]byte{l.t.heartbeat(&body, l.src)}); err != nil {
				return err
			}
		}
		frames = l.queue.take(frames)
		if err := l.writeFrames(w, frames); err != nil {
			return err
		}
		beat = false
		select {
		case <-l.queue.ready:
		case <-ticker.C:
			ticker.Next(l.t.cfg.HeartbeatInterval)
			beat = true
		case <-broken:
			return errors.New("closed by the peer")
		case <-l.finishing:
			return errors.Join(l.writeFrames(w, l.queue.take(frames)), errFinished)
		}
	}
}

// writeFrames writes and releases frames.
func (l *link) writeFrames(w *frameWriter, frames []Frame) error {
	released := 0
	release := func(upTo int) {
		for _, f := range frames[released:upTo] {
			l.sentFrames.Add(1)
			l.sentBytes.Add(int64(f.bodyBytes()))
			l.queue.written(f)
		}
		released = upTo
	}
	for i, f := range frames {
		err := w.add(f.Kind, f.Parts)
		if err == nil && w.full() {
			if err = w.flush(); err == nil {
				release(i + 1)
			}
		}
		if err != nil {
			l.queue.lost(frames[released:])
			return err
		}
	}
	if err := w.flush(); err != nil {
		l.queue.lost(frames[released:])
		return err
	}
	release(len(frames))
	return nil
}
