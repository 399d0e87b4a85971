// Package kafka is the door for Kafka clients: it reads frames, decodes them
// with kmsg, authorises, calls a narrow backend and writes the answer. One file
// holds one API. It keeps no state that matters.
//
// Who owns what:
//
//	Door      the listener, the limits over all connections   server.go, budget.go
//	conn      one socket: frames in, answers out, in order    conn.go, frame.go, respond.go
//	call      one request under way on a connection           call.go
//	session   what a consumer fetches (KIP-227)               session.go
//	share session   what a share consumer has (KIP-932)       share_session.go
//
// A connection has one goroutine, which reads a frame, runs its handler and
// writes the answer. Produce alone is answered later, by a second goroutine that
// lives while such answers are pending. An idle connection holds no buffer.
package kafka

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// api is one row of what this door speaks (apis.go has the table).
type api struct {
	key      int16
	min, max int16
	// handle answers one request. It may block until ctx ends (the node stops).
	// The request's []byte fields lie in the frame and are gone when it returns;
	// strings stay. A nil response closes the connection.
	handle func(d *Door, ctx context.Context, c *client, req kmsg.Request) kmsg.Response
	// start is instead of handle for what is answered later: answer is called
	// exactly once, from anywhere, and must not be waited for. Here strings lie
	// in the frame too; frame is kept until the answer.
	start func(d *Door, c *client, req kmsg.Request, frame *record.Buffer, answer func(outcome))
	// waits: the handler may wait for other clients or for messages, so it gives
	// back the memory of its request's admission first.
	waits bool
}

// outcome is what start's answer carries: a response, none (acks=0), or the end
// of the connection.
type outcome struct {
	response kmsg.Response // nil: nothing is sent
	hangUp   bool
}

// client is what is known of the sender of a request. It belongs to the
// connection's goroutine.
type client struct {
	id   string // the client id of the present request, "" if it gave none
	host string // its IP address
	// software and version are what ApiVersions v3+ said, "" before.
	software, version string

	sessions sessions
	away     sentAway
	// shares are the share sessions that this connection began.
	shares []*shareSession
	// shareGone is told of those that ended without a word.
	shareGone func(session string)
}

// Backend is what the door calls. All are needed.
type Backend struct {
	Topics     TopicAdmin
	Placement  PlacementAdmin
	Leaders    Leaders
	Groups     Groups
	Shares     Shares
	Partitions Partitions
	Image      func() *meta.Image
	// CatchUp returns once Image shows all that any node has acknowledged before the
	// call. nil: it always does.
	CatchUp func(context.Context) error
}

// Door is the Kafka door of one node. Safe for use by many goroutines.
type Door struct {
	cfg        Config
	topics     TopicAdmin
	placement  PlacementAdmin
	leaders    Leaders
	groups     Groups
	shares     Shares
	catchUp    func(context.Context) error
	partitions Partitions
	image      func() *meta.Image

	table      map[int16]*api
	advertised []kmsg.ApiVersionsResponseApiKey
	budgets    budgets
	// sessionPartitions counts the partitions in all fetch sessions.
	sessionPartitions atomic.Int64
	sessionSeed       atomic.Uint32
	rotation          atomic.Uint32
	shareSessions     shareSessions
	began             time.Time

	// ctx ends when the door stops: what waits returns.
	ctx    context.Context
	cancel context.CancelFunc

	mu        sync.Mutex
	listeners []net.Listener
	conns     map[*conn]struct{}
	perHost   map[string]int
	stopped   bool
	running   sync.WaitGroup
}

// New makes a door that does not listen yet.
func New(cfg Config, b Backend) (*Door, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("kafka door: %w", err)
	}
	d := &Door{
		cfg: cfg, topics: b.Topics, placement: b.Placement, leaders: b.Leaders, groups: b.Groups, shares: b.Shares, partitions: b.Partitions, image: b.Image, catchUp: b.CatchUp,
		table:   make(map[int16]*api, len(apis)),
		budgets: newBudgets(&cfg),
		conns:   map[*conn]struct{}{}, perHost: map[string]int{},
	}
	d.began = time.Now()
	d.advertised = advertise(apis)
	for i := range apis {
		d.table[apis[i].key] = &apis[i]
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d, nil
}
