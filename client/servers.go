package tube

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

// server is a node that can be asked.
type server struct {
	url   string
	queue tubev1connect.QueueServiceClient
	admin tubev1connect.QueueAdminServiceClient
}

// servers are the nodes that were named. One of them is asked until it fails, then
// the next.
type servers struct {
	list   []server
	client *http.Client
	own    bool // client is ours to close

	mu sync.Mutex
	at int // the one asked now; guarded by mu
}

// maxAnswerBytes of one message from a server: more than it sends.
const maxAnswerBytes = 64 << 20

func newServers(c *common) *servers {
	s := &servers{client: c.http}
	if s.client == nil {
		s.client, s.own = newHTTPClient(), true
	}
	for _, u := range c.servers {
		opts := []connect.ClientOption{connect.WithReadMaxBytes(maxAnswerBytes), connect.WithAcceptCompression("gzip", nil, nil)}
		s.list = append(s.list, server{u, tubev1connect.NewQueueServiceClient(s.client, u, opts...), tubev1connect.NewQueueAdminServiceClient(s.client, u, opts...)})
	}
	// Many clients that were started alike should not all ask the same node.
	s.at = rand.IntN(len(s.list))
	return s
}

// newHTTPClient speaks HTTP/2 only, with and without TLS. A peer that fell silent is
// noticed by pings, as a stream may be quiet for long.
func newHTTPClient() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{
		Protocols: protocols, Proxy: http.ProxyFromEnvironment, IdleConnTimeout: 90 * time.Second,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second},
	}}
}

func (s *servers) close() {
	if s.own {
		s.client.CloseIdleConnections()
	}
}

// now is the server to be asked, and its number for failed.
func (s *servers) now() (*server, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &s.list[s.at], s.at
}

// failed makes the next one be asked, unless somebody else has seen to it.
func (s *servers) failed(at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == at {
		s.at = (at + 1) % len(s.list)
	}
}

// ask does f at a server, and again at the next one while it fails for a reason that
// passes, until ctx ends.
func ask[T any](ctx context.Context, s *servers, op string, f func(context.Context, *server) (T, error)) (T, error) {
	for wait := (backoff{}); ; {
		srv, at := s.now()
		out, err := f(ctx, srv)
		if err == nil {
			return out, nil
		}
		err = failure(op, err)
		if !Retriable(err) || ctx.Err() != nil {
			return out, err
		}
		s.failed(at)
		if wait.sleep(ctx) != nil {
			return out, err // says more than that the time is over
		}
	}
}

// backoff grows from 20 ms to 2 s, with a random part, so that many who fail at once
// do not return at once.
type backoff struct{ last time.Duration }

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, 20*time.Millisecond), 2*time.Second)
	return b.last/2 + rand.N(b.last/2)
}

// sleep waits for the next step or until ctx ends.
func (b *backoff) sleep(ctx context.Context) error { return sleep(ctx, b.next()) }

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
