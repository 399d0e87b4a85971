// Package rpc is the HTTP door: the Connect, gRPC and JSON services of
// proto/tube/v1, health, readiness and metrics, and a page that says what this
// is. It translates and calls narrow interfaces that it declares itself; it
// keeps no state that matters.
//
// Services answer Connect, gRPC (HTTP/2 without TLS included) and plain JSON
// POST requests on the same paths.
package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

// Limits of the door. Bodies, headers, connections and waits are all bounded.
const (
	maxBodyBytes   = 4 << 20
	maxHeaderBytes = 64 << 10
	maxConnections = 2000
	maxWatchers    = 1000
	headerTimeout  = 10 * time.Second
	writeTimeout   = 60 * time.Second  // of one answer, or of one message of a stream
	idleTimeout    = 120 * time.Second // of a connection between requests
	// profileTimeout leaves room for /debug/pprof/profile?seconds=…
	profileTimeout = 10 * time.Minute
)

// readTimeout is how long one request's body may take.
var readTimeout = 30 * time.Second

// A client that sends nothing for pingAfter is asked whether it is there; without an
// answer within pingTimeout its connection is closed, and what it holds goes to others.
var (
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// Config says what the door serves. All but Pprof and Queues must be set.
type Config struct {
	Self    Self
	Cluster Cluster
	Events  Events
	// Operator returns what changes the cluster, or why that is not there yet.
	Operator func() (Operator, error)
	// Queues returns what carries out the queue services' calls, or why that is not
	// there yet; nil: they are not served.
	Queues func() (QueueBackend, error)
	// Ready returns nil once the node serves, else why it does not.
	Ready   func() error
	Metrics http.Handler
	Pprof   bool // serve /debug/pprof/
	Logger  *slog.Logger
}

// Server is the HTTP door. Serve runs it, Stop ends it.
type Server struct {
	http    *http.Server
	streams context.Context // ends when the server stops, so that streams do
	stop    context.CancelFunc
	once    sync.Once
	stopErr error
}

// New makes a server; nothing listens before Serve.
func New(cfg Config) *Server {
	s := &Server{}
	s.streams, s.stop = context.WithCancel(context.Background())
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Server{
		Handler:           limited(s.routes(cfg)),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 250, SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	return s
}

func (s *Server) routes(cfg Config) http.Handler {
	mux := http.NewServeMux()
	// Compression is off: answers are small or made of what is compressed already.
	path, handler := tubev1connect.NewClusterServiceHandler(newClusterService(cfg, s.streams),
		connect.WithCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxBodyBytes), connect.WithInterceptors(refusals(cfg.Logger)))
	mux.Handle(path, http.NewCrossOriginProtection().Handler(handler))
	if cfg.Queues != nil {
		queueRoutes(mux, cfg, s.streams)
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := cfg.Ready(); err != nil {
			plain(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		plain(w, http.StatusOK, "ready")
	})
	mux.Handle("GET /metrics", cfg.Metrics)
	mux.Handle("GET /{$}", landing(cfg))
	if cfg.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", long(pprof.Profile))
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", long(pprof.Trace))
	}
	return mux
}

// Serve answers what connects to l until Stop. It returns nil after a Stop.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(limitConnections(l, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Stop ends streams, lets requests that are under way finish until ctx ends, and
// closes. It may be called again and answers the same.
func (s *Server) Stop(ctx context.Context) error {
	s.once.Do(func() {
		s.stop()
		s.stopErr = s.http.Shutdown(ctx)
		if s.stopErr != nil {
			_ = s.http.Close() // what is left is cut off; the caller has the reason
		}
	})
	return s.stopErr
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // a caller that left needs no answer
}
