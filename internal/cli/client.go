package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

// dialTimeout bounds one attempt to connect.
const dialTimeout = 3 * time.Second

// connect makes a Kafka client of the nodes at --kafka. That one of them listens
// is tried first: the client itself would go on trying in silence.
func (a *app) connect(ctx context.Context, opts ...kgo.Opt) (*kgo.Client, error) {
	seeds := strings.Split(a.kafka, ",")
	if err := a.reach(ctx, seeds); err != nil {
		return nil, err
	}
	opts = append([]kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.ClientID("tube-cli"), kgo.SoftwareNameAndVersion("tube", version()),
		kgo.DialTimeout(dialTimeout), kgo.RetryTimeout(a.timeout), kgo.WithHooks(&unreachable{note: a.note}),
	}, opts...)
	return kgo.NewClient(opts...)
}

// admin makes a client for administration, and a context for one command.
func (a *app) admin(ctx context.Context) (*kadm.Client, context.Context, func(), error) {
	client, err := a.connect(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	return kadm.NewClient(client), ctx, func() { cancel(); client.Close() }, nil
}

func (a *app) reach(ctx context.Context, seeds []string) error {
	for _, s := range seeds {
		if host, port, err := net.SplitHostPort(s); err != nil || port == "" || host == "" {
			return usage("give --kafka HOST:PORT", "%q is not the address of a node", s)
		}
	}
	var last error
	for _, s := range seeds {
		conn, err := (&net.Dialer{Timeout: min(dialTimeout, a.timeout)}).DialContext(ctx, "tcp", s)
		if err == nil {
			return conn.Close()
		}
		last = err
	}
	return a.nobodyAt(a.kafka, "--kafka", last)
}

func (a *app) nobodyAt(addr, flag string, cause error) error {
	var op *net.OpError
	if errors.As(cause, &op) {
		cause = op.Err
	}
	return unavailable(fmt.Sprintf("is a node running? start one with: %s start\nif it listens elsewhere, say where with %s HOST:PORT", a.program, flag),
		"nothing answers at %s (%v)", addr, cause)
}

// unreachable tells the user once when a node that the cluster named cannot be
// reached, and once when it can again.
type unreachable struct {
	note func(format string, args ...any)
	mu   sync.Mutex
	down map[string]bool
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (u *unreachable) OnBrokerConnect(m kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	addr := net.JoinHostPort(m.Host, fmt.Sprint(m.Port))
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.down == nil {
		u.down = map[string]bool{}
	}
	was := u.down[addr]
	u.down[addr] = err != nil
	switch {
	case err != nil && !was:
		u.note("tube: cannot reach %s, trying again (%v); if that address is wrong, set the node's --advertise-kafka", addr, err)
	case err == nil && was:
		u.note("tube: reached %s again", addr)
	}
}

// node makes an HTTP client of the first of the nodes at --http that is ready, or else
// listens. An answer may take extra longer than --timeout.
func (a *app) node(extra time.Duration) (*http.Client, string) {
	dialer := &net.Dialer{Timeout: dialTimeout}
	addrs := strings.Split(a.http, ",")
	dial := func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
		for _, addr := range readyFirst(ctx, addrs) {
			if conn, err = dialer.DialContext(ctx, network, addr); err == nil {
				return conn, nil
			}
		}
		return nil, err
	}
	// No proxy: nodes are addressed directly, as Kafka clients do.
	return &http.Client{Transport: &http.Transport{DialContext: dial, ResponseHeaderTimeout: a.timeout + extra}}, "http://" + addrs[0]
}

// readyFirst moves the first node that is ready to the front, of several: one that
// listens may hang, or wait for the others.
func readyFirst(ctx context.Context, addrs []string) []string {
	for i, addr := range addrs {
		if len(addrs) > 1 && isReady(ctx, addr) {
			return slices.Concat(addrs[i:i+1], addrs[:i], addrs[i+1:])
		}
	}
	return addrs
}

// readyTimeout is how long a node may take to say that it is ready.
const readyTimeout = time.Second

// isReady asks a node at its HTTP address whether it serves.
func isReady(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return false
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// cluster makes a client of the cluster service.
func (a *app) cluster() tubev1connect.ClusterServiceClient {
	return tubev1connect.NewClusterServiceClient(a.node(0))
}

// queues makes a client of the queue service, whose answers may take extra longer.
func (a *app) queues(extra time.Duration) tubev1connect.QueueServiceClient {
	return tubev1connect.NewQueueServiceClient(a.node(extra))
}

// queueAdmin makes a client of the queues' administration.
func (a *app) queueAdmin() tubev1connect.QueueAdminServiceClient {
	return tubev1connect.NewQueueAdminServiceClient(a.node(queueAdminTime))
}

// queueAdminTime is how much longer than others calls may take that go through many
// messages; the node ends them itself.
const queueAdminTime = 30 * time.Second

// clusterError says who does not answer.
func (a *app) clusterError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return a.nobodyAt(a.http, "--http", err)
	}
	return err
}

// ask calls a service once, within --timeout.
func ask[Q, R any](ctx context.Context, a *app, call func(context.Context, *connect.Request[Q]) (*connect.Response[R], error), q *Q) (*R, error) {
	return askWithin(ctx, a, a.timeout, call, q)
}

func askWithin[Q, R any](ctx context.Context, a *app, within time.Duration, call func(context.Context, *connect.Request[Q]) (*connect.Response[R], error), q *Q) (*R, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r, err := call(ctx, connect.NewRequest(q))
	if err != nil {
		return nil, a.clusterError(err)
	}
	return r.Msg, nil
}
