package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"

	"github.com/tube-mq/tube/internal/record"
)

func (t *Transport) newServer() *http.Server {
	s := &http.Server{
		Handler:           http.HandlerFunc(t.serveHTTP),
		Protocols:         new(http.Protocols),
		ReadHeaderTimeout: handshakeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          log.New(complaints{t.log}, "", 0),
		BaseContext:       func(net.Listener) context.Context { return t.ctx },
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(t.cfg.TLS == nil)
	if t.cfg.TLS != nil {
		s.TLSConfig = t.serverTLS()
	}
	return s
}

// complaints logs what net/http complains of.
type complaints struct{ log *slog.Logger }

func (c complaints) Write(b []byte) (int, error) {
	level := slog.LevelError // for one, panics of handlers
	if bytes.Contains(b, []byte("TLS handshake error")) {
		level = slog.LevelDebug // a peer logs it itself, once; who else connects is no matter
	}
	c.log.Log(context.Background(), level, "peer listener: "+string(bytes.TrimSpace(b)))
	return len(b), nil
}

func (t *Transport) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == messagesPath {
		t.take(w, r)
		return
	}
	if caller, ok := Caller(r.Header); ok {
		refusal := unfit(r.Header, t.cfg.Self())
		if refusal == "" {
			refusal = notOf(r.TLS, caller.Node)
		}
		if refusal != "" {
			refuseCall(w, refusal)
			return
		}
	}
	t.cfg.Handler.ServeHTTP(w, r)
}

// refuseCall answers in the form of Connect, so that its clients show the
// sentence.
func refuseCall(w http.ResponseWriter, sentence string) {
	b, err := json.Marshal(map[string]string{"code": "failed_precondition", "message": sentence})
	if err != nil {
		panic(fmt.Sprintf("peer: two strings do not make JSON: %v", err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write(b)
}

// Client returns what a Connect client of a peer needs. The calls say who calls
// and which node is meant, and the peer refuses them if that does not fit.
func (t *Transport) Client(node record.NodeID) (baseURL string, c *http.Client, err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	l := t.links[node]
	if l == nil {
		return "", nil, fmt.Errorf("node %d is not a peer", node)
	}
	return t.baseURL(l.addr), l.client, nil
}

// ClientAt is Client for an address of which it is not known yet which node
// answers there.
func (t *Transport) ClientAt(addr string) (baseURL string, c *http.Client) {
	return t.baseURL(addr), t.seeds
}

func (t *Transport) baseURL(addr string) string {
	if t.cfg.TLS != nil {
		return "https://" + addr
	}
	return "http://" + addr
}

// newClient makes a client for calls of one node, or of any if target is nil.
func (t *Transport) newClient(target *record.NodeID) *http.Client {
	base := &http.Transport{
		Protocols:           new(http.Protocols),
		DialContext:         func(ctx context.Context, _, addr string) (net.Conn, error) { return t.dial(ctx, addr) },
		TLSHandshakeTimeout: handshakeTimeout,
		IdleConnTimeout:     idleTimeout,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: writeTimeout, PingTimeout: writeTimeout},
	}
	if t.cfg.TLS == nil {
		base.Protocols.SetUnencryptedHTTP2(true)
	} else {
		base.Protocols.SetHTTP1(true)
		base.Protocols.SetHTTP2(true)
		base.TLSClientConfig = t.clientTLS(target, "h2", "http/1.1")
	}
	return &http.Client{
		Transport:     &introduced{t: t, target: target, base: base},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// introduced says who calls, in the headers.
type introduced struct {
	t      *Transport
	target *record.NodeID
	base   *http.Transport
}

func (i *introduced) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	i.t.cfg.Self().writeTo(r.Header)
	if i.target != nil {
		r.Header.Set(headerTarget, formatNode(*i.target))
	}
	return i.base.RoundTrip(r)
}

// CloseIdleConnections is called by that of http.Client.
func (i *introduced) CloseIdleConnections() { i.base.CloseIdleConnections() }
