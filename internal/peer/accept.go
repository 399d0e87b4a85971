package peer

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	messagesPath = "/tube.peer/messages"
	upgradeTo    = "tube-peer/1"
)

// inbound is a messages connection that a node dialled to send to us.
type inbound struct {
	t    *Transport
	conn net.Conn
	done chan struct{} // closed when nothing more of it is received

	// Set when admitted.
	id    Identity
	src   *source
	since int64
	gone  bool // its node was taken out of the peers; guarded by Transport.mu

	framed bool // a whole frame came: the reader's own
}

// take takes a connection over from the HTTP server.
func (t *Transport) take(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 || r.Method != http.MethodPost || !strings.EqualFold(r.Header.Get("Upgrade"), upgradeTo) {
		http.Error(w, "this path wants POST with an upgrade of HTTP/1.1 to "+upgradeTo, http.StatusUpgradeRequired)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.log.Error("cannot take over a peer's connection", "err", err)
		return
	}
	setKeepAlive(conn)
	in := &inbound{t: t, conn: conn, done: make(chan struct{})}
	early, _ := rw.Peek(rw.Reader.Buffered()) // what the HTTP server read too much

	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		_ = conn.Close()
		return
	}
	t.inbounds[in] = struct{}{}
	// Not the goroutine of the HTTP server, which would swallow a panic of Receive.
	t.running.Go(func() { in.run(r, bytes.Clone(early)) })
}

func (in *inbound) run(r *http.Request, early []byte) {
	defer close(in.done)
	defer in.t.forget(in)
	defer func() { _ = in.conn.Close() }()
	self := in.t.cfg.Self()
	if refusal := in.t.admit(in, r, self); refusal != nil {
		in.answer(refuse(self, refusal))
		return
	}
	if in.answer(welcome(self)) {
		in.receive(early)
	}
}

func (t *Transport) forget(in *inbound) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.inbounds, in)
	if in.src != nil && in.src.current == in {
		in.src.current = nil
	}
}

// admit says why a connection is refused, or makes it the one that its node
// sends on.
func (t *Transport) admit(in *inbound, r *http.Request, self Identity) error {
	if refusal := unfit(r.Header, self); refusal != "" {
		return errors.New(refusal)
	}
	in.id, _ = Caller(r.Header)
	if in.id.Node == self.Node {
		return errors.New(inUse(self.Node))
	}
	if refusal := notOf(r.TLS, in.id.Node); refusal != "" {
		return errors.New(refusal)
	}
	asked := t.removals.Load()
	if err := t.cfg.Refuse(in.id); err != nil {
		return err
	}
	previous, refusal := t.replace(in)
	if previous != nil {
		// In order for one sender: the last of the old connection is received first.
		_ = previous.conn.Close()
		<-previous.done
	}
	if refusal != "" {
		return errors.New(refusal)
	}
	// A node that was removed meanwhile had no connection yet that would be closed.
	if asked != t.removals.Load() {
		return t.cfg.Refuse(in.id)
	}
	return nil
}

func (t *Transport) replace(in *inbound) (previous *inbound, refusal string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sources[in.id.Node] == nil && len(t.sources) >= maxSources {
		return nil, fmt.Sprintf("%d nodes are connected already", len(t.sources))
	}
	s := t.sourceLocked(in.id.Node)
	previous = s.current
	if previous != nil && !previous.gone && previous.id.Incarnation != in.id.Incarnation &&
		t.now()-max(s.heard.Load(), previous.since) <= int64(t.cfg.DeadAfter) {
		return nil, inUse(in.id.Node)
	}
	in.src, in.since, s.current = s, t.now(), in
	s.stamp.Store(0) // of another process's clock, perhaps
	if l := t.links[in.id.Node]; l != nil {
		l.hurry() // a node that dials is there to be dialled
	}
	return previous, ""
}

func welcome(self Identity) *http.Response {
	h := http.Header{"Connection": {"Upgrade"}, "Upgrade": {upgradeTo}}
	self.writeTo(h)
	return &http.Response{StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Header: h}
}

func refuse(self Identity, err error) *http.Response {
	status, sentence := http.StatusConflict, err.Error()
	if IsGone(err) {
		status = http.StatusGone
	}
	h := http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
	self.writeTo(h)
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Close: true,
		Header: h, ContentLength: int64(len(sentence)), Body: io.NopCloser(strings.NewReader(sentence)),
	}
}

func (in *inbound) answer(resp *http.Response) bool {
	if in.conn.SetDeadline(time.Now().Add(handshakeTimeout)) != nil {
		return false
	}
	w := bufio.NewWriter(in.conn)
	return resp.Write(w) == nil && w.Flush() == nil && in.conn.SetDeadline(time.Time{}) == nil
}

// receive hands frames on until the connection ends.
func (in *inbound) receive(early []byte) {
	frames := newFrameReader(io.MultiReader(bytes.NewReader(early), in), in.t.cfg.MaxFrameBytes)
	defer frames.close()
	s := in.src
	for {
		kind, buf, body, err := frames.next()
		if err == nil && kind == kindHeartbeat {
			err = in.t.heartbeatFrom(s, body)
		}
		if err != nil {
			in.ended(err)
			return
		}
		if !in.framed {
			in.framed = true
			s.heard.Store(in.t.now())
		}
		if !s.up.Load() {
			in.t.watch.poke()
		}
		if kind == kindHeartbeat {
			continue
		}
		s.receivedFrames.Add(1)
		s.receivedBytes.Add(int64(len(body)))
		in.t.cfg.Receive(in.id.Node, kind, buf, body)
	}
}

// Read reads the connection; what comes is a sign of life.
func (in *inbound) Read(b []byte) (int, error) {
	n, err := in.conn.Read(b)
	if n > 0 && in.framed {
		in.src.heard.Store(in.t.now())
	}
	return n, err
}

// ended logs what is not an ordinary end: nodes come and go, and that they went
// is told by the link to them.
func (in *inbound) ended(err error) {
	switch {
	case errors.Is(err, errDamaged):
		in.src.damaged.Add(1)
		in.t.log.Error("peer payload damaged: rejected by checksum", "peer", in.id.Node, "err", err)
	case errors.Is(err, errMalformed):
		in.src.damaged.Add(1)
		in.t.log.Error("peer sent what is no frame: connection closed", "peer", in.id.Node, "err", err)
	default:
		in.t.log.Debug("peer's connection ended", "peer", in.id.Node, "err", err)
	}
}

func setKeepAlive(conn net.Conn) {
	if c, ok := conn.(*tls.Conn); ok {
		conn = c.NetConn()
	}
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetKeepAliveConfig(keepAlive)
	}
}
