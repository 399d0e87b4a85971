package rpc

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

type controllerKey struct{}

// limited bounds every request's body. The server bounds the time to read it and the time
// to take the answer, and streams move these deadlines along: see deadlines. The queue
// services bound their bodies themselves: see bodies.
func limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !strings.HasPrefix(r.URL.Path, queuePaths) {
			r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), controllerKey{}, rc)))
	})
}

// deadlines moves the deadlines of the request that ctx belongs to: reading has
// none any more (a stream's request was read), the next write has until by.
func deadlines(ctx context.Context, by time.Time) {
	if rc, ok := ctx.Value(controllerKey{}).(*http.ResponseController); ok {
		_ = rc.SetReadDeadline(time.Time{})
		_ = rc.SetWriteDeadline(by)
	}
}

// expireRead makes reading the rest of ctx's request fail, also where it hangs.
func expireRead(ctx context.Context) {
	if rc, ok := ctx.Value(controllerKey{}).(*http.ResponseController); ok {
		_ = rc.SetReadDeadline(time.Unix(1, 0))
	}
}

// expireWrite makes writing the rest of the answer fail, also where it hangs.
func expireWrite(ctx context.Context) {
	if rc, ok := ctx.Value(controllerKey{}).(*http.ResponseController); ok {
		_ = rc.SetWriteDeadline(time.Unix(1, 0))
	}
}

// long gives a handler more time than others have.
func long(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		deadlines(r.Context(), time.Now().Add(profileTimeout))
		next(w, r)
	}
}

// limitConnections returns a listener that has at most n connections open; more
// wait in the operating system's queue.
func limitConnections(l net.Listener, n int) net.Listener {
	return &limitedListener{Listener: l, slots: make(chan struct{}, n), closed: make(chan struct{})}
}

type limitedListener struct {
	net.Listener
	slots  chan struct{} // one for each open connection
	closed chan struct{}
	once   sync.Once
}

func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: c, release: sync.OnceFunc(func() { <-l.slots }), read: bufio.NewReader(c)}, nil
}

func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// limitedConn also reads as much as has come: net/http asks for each frame of HTTP/2 in
// two pieces.
type limitedConn struct {
	net.Conn
	release func()
	read    *bufio.Reader
}

func (c *limitedConn) Read(b []byte) (int, error) { return c.read.Read(b) }

func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
