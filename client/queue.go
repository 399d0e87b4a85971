package tube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// Bounds of a queue's options.
const (
	maxConcurrency = 10_000
	maxPrefetch    = 10_000
	// maxReceive messages of one call, as the server allows.
	maxReceive = 10_000
	// maxWait of one call of Receive; longer waits are several calls.
	maxWait = 30 * time.Second
)

type queueConfig struct {
	common
	topic       string
	create      *GroupSettings
	consumerID  string
	concurrency int
	prefetch    int // −1: by how long handlers take
	maxBytes    int
	grace       time.Duration
	middleware  []Middleware
}

// OnTopic says which topic the group reads: it is made on it with CreateGroup, and a
// group of that name on another topic is refused.
func OnTopic(topic string) QueueOption {
	return queueOption(func(c *queueConfig) error { c.topic = topic; return nil })
}

// CreateGroup makes the group when it is first used, if it is not there; OnTopic must
// say on which topic, which must be there. A group that is there keeps its settings.
func CreateGroup(s GroupSettings) QueueOption {
	return queueOption(func(c *queueConfig) error { c.create = &s; return nil })
}

// ConsumerID names this consumer, up to 256 bytes: in listings, in the records of
// attempts, and for groups of mode broadcast, which remember by it how far each
// consumer is. Default: its address, as the server sees it.
func ConsumerID(id string) QueueOption {
	return queueOption(func(c *queueConfig) error { c.consumerID = id; return within("ConsumerID: bytes", len(id), 0, 256) })
}

// Concurrency is how many handlers Run has at work at a time; default 10.
func Concurrency(n int) QueueOption {
	return queueOption(func(c *queueConfig) error { c.concurrency = n; return within("Concurrency", n, 1, maxConcurrency) })
}

// Prefetch is how many messages Run has waiting for a handler. More hides the way to
// the server, less leaves more to other members. Default: as many as are handled in
// 100 ms, going by how long handlers took lately, and at most 1,000.
func Prefetch(n int) QueueOption {
	return queueOption(func(c *queueConfig) error { c.prefetch = n; return within("Prefetch", n, 0, maxPrefetch) })
}

// MaxBytes of messages that come together; one message always comes. Default 1 MiB, at
// most 4 MiB. Run holds at most Concurrency and Prefetch messages of whatever size.
func MaxBytes(n int) QueueOption {
	return queueOption(func(c *queueConfig) error { c.maxBytes = n; return within("MaxBytes", n, 1, 4<<20) })
}

// ShutdownTimeout is how long Run waits, once its ctx has ended, for handlers that are
// at work; then their ctx ends too. Default 30 s.
func ShutdownTimeout(d time.Duration) QueueOption {
	return queueOption(func(c *queueConfig) error { c.grace = d; return positive("ShutdownTimeout", d) })
}

// Use puts middleware around the handler of Run, the first one outermost.
func Use(m ...Middleware) QueueOption {
	return queueOption(func(c *queueConfig) error { c.middleware = append(c.middleware, m...); return nil })
}

// GroupSettings of a queue group that CreateGroup makes. What is not set has the
// server's default.
type GroupSettings struct {
	MaxAttempts         int             // deliveries that fail before a message is dead; 1 to 1,000; default 5
	Lease               time.Duration   // how long a delivery is held; 1 s to 12 h; default 30 s
	MaxHandling         time.Duration   // how long it may be extended in all; Lease to 24 h; default 12 h
	Backoff             []time.Duration // before the next delivery, by attempt; default 1 s, 10 s, 1 min, 10 min
	OrderByKey          bool            // one message of a key at a time
	ParkKey             bool            // with OrderByKey: a dead message keeps its key back
	Broadcast           bool            // every ConsumerID has everything
	AutoAck             bool            // handed out counts as confirmed
	MessagesPerSecond   float64         // of the whole group; 0: no limit
	BytesPerSecond      float64
	MaxInFlight         int           // leases at a time in each partition; default 10,000
	Filter              string        // CEL over key, headers, timestamp, size, topic, partition, offset
	DeadLetter          string        // topic of dead letters; default GROUP.dead-letter, which is made
	RetainUntilConsumed bool          // the topic keeps what the group is not done with, up to its hard limit
	IdleConsumer        time.Duration // a broadcast consumer not seen for so long is forgotten; default 7 days
	From                Position      // where it begins; default: the end, with what is sent from now on
}

// Position is where a group begins: Start, End or a time.
type Position struct{ at *tubev1.Position }

// Start is the oldest message that is there.
func Start() Position {
	return Position{&tubev1.Position{At: &tubev1.Position_Start{Start: true}}}
}

// End is what is sent from now on.
func End() Position {
	return Position{&tubev1.Position{At: &tubev1.Position_End{End: true}}}
}

// Since is what was sent at t or later.
func Since(t time.Time) Position { return Position{positionAt(t)} }

// QueueGroup is a queue group as one member sees it. Make it with Queue. Nothing is
// connected before it is used.
type QueueGroup struct {
	group   string
	cfg     queueConfig
	servers *servers
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	checked bool // the group is there, on its topic; guarded by mu
	closed  bool // guarded by mu
}

// Queue names a group. It creates nothing unless CreateGroup asks for it, and does not
// connect yet.
func Queue(group string, opts ...QueueOption) (*QueueGroup, error) {
	q := &QueueGroup{group: group, cfg: queueConfig{concurrency: 10, prefetch: -1, grace: 30 * time.Second}}
	if group == "" {
		return nil, errors.New("Queue: the group has no name")
	}
	for _, o := range opts {
		if err := o.applyQueue(&q.cfg); err != nil {
			return nil, err
		}
	}
	if err := q.cfg.finish(); err != nil {
		return nil, err
	}
	if q.cfg.create != nil && q.cfg.topic == "" {
		return nil, errors.New("CreateGroup: OnTopic does not say on which topic")
	}
	q.servers = newServers(&q.cfg.common)
	q.ctx, q.cancel = context.WithCancel(context.Background())
	return q, nil
}

// Receive takes a message by hand and waits until there is one or ctx ends. What
// becomes of it is told with Ack, Nack or Release before its lease ends; nothing
// extends that, and the server cannot ask after it. A message that was on its way when
// ctx ended comes again after its lease. Errors: ctx's, ErrClosed, ErrUnknownGroup.
func (q *QueueGroup) Receive(ctx context.Context) (*Message, error) {
	for {
		ms, err := q.ReceiveMany(ctx, 1, maxWait)
		if err != nil {
			return nil, err
		}
		if len(ms) > 0 {
			return ms[0], nil
		}
	}
}

// ReceiveMany takes up to n messages (1 to 10,000) by hand: those that are there once
// the first one is, for which it waits up to wait. None came: an empty list, and no
// error. Otherwise as Receive.
func (q *QueueGroup) ReceiveMany(ctx context.Context, n int, wait time.Duration) ([]*Message, error) {
	if err := within("ReceiveMany", n, 1, maxReceive); err != nil {
		return nil, err
	}
	ctx, done, err := q.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := q.ready(ctx); err != nil {
		return nil, q.ended(ctx, err)
	}
	for deadline := time.Now().Add(wait); ; {
		left := max(0, min(time.Until(deadline), maxWait))
		req := &tubev1.ReceiveRequest{Group: q.group, MaxMessages: int32(n), Wait: durationpb.New(left), ConsumerId: q.cfg.consumerID, MaxBytes: int32(q.cfg.maxBytes)}
		resp, err := ask(ctx, q.servers, "receive from "+q.group, func(ctx context.Context, s *server) (*connect.Response[tubev1.ReceiveResponse], error) {
			return s.queue.Receive(ctx, connect.NewRequest(req))
		})
		if err != nil {
			return nil, q.ended(ctx, err)
		}
		if len(resp.Msg.Messages) == 0 && time.Now().Before(deadline) {
			continue
		}
		var out []*Message
		for _, m := range resp.Msg.Messages {
			got := newMessage(m)
			got.hand = &byHand{q, m.LeaseId}
			out = append(out, got)
		}
		return out, nil
	}
}

// Close ends what is under way, Run in an orderly manner as if its ctx had ended, and
// waits for it. Messages that were received by hand can still be settled. It may be
// called twice.
func (q *QueueGroup) Close() error {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.cancel()
	q.running.Wait()
	q.servers.close()
	return nil
}

// enter begins a call that Close ends.
func (q *QueueGroup) enter(ctx context.Context) (context.Context, func(), error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, nil, ErrClosed
	}
	q.running.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(q.ctx, cancel)
	return ctx, func() { stop(); cancel(); q.running.Done() }, nil
}

// ended is err, or why it came to that.
func (q *QueueGroup) ended(ctx context.Context, err error) error {
	switch {
	case q.ctx.Err() != nil:
		return ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

// ready sees once that the group is there and reads the topic that it should.
func (q *QueueGroup) ready(ctx context.Context) error {
	q.mu.Lock()
	checked := q.checked
	q.mu.Unlock()
	if checked {
		return nil
	}
	if q.cfg.create != nil {
		if err := q.createGroup(ctx); err != nil && !errors.Is(err, ErrGroupExists) {
			return err
		}
	}
	if q.cfg.topic != "" {
		if err := q.checkTopic(ctx); err != nil {
			return err
		}
	}
	q.mu.Lock()
	q.checked = true
	q.mu.Unlock()
	return nil
}

func (q *QueueGroup) createGroup(ctx context.Context) error {
	req := &tubev1.CreateGroupRequest{Group: q.group, Topic: q.cfg.topic, Settings: q.cfg.create.wire(), From: q.cfg.create.From.at}
	for wait, until := (backoff{}), time.Now().Add(newGroup); ; {
		_, err := ask(ctx, q.servers, "create group "+q.group, func(ctx context.Context, s *server) (*connect.Response[tubev1.CreateGroupResponse], error) {
			return s.admin.CreateGroup(ctx, connect.NewRequest(req))
		})
		// It was made, and has not begun everywhere: asked again, it exists.
		if !errors.Is(err, ErrUnknownGroup) || time.Now().After(until) || wait.sleep(ctx) != nil {
			return err
		}
	}
}

func (q *QueueGroup) checkTopic(ctx context.Context) error {
	op := "look up group " + q.group
	var err error
	// The node that is asked may not have heard of a group that was just made.
	for wait, until := (backoff{}), time.Now().Add(2*time.Second); ; {
		var resp *connect.Response[tubev1.GetGroupResponse]
		resp, err = ask(ctx, q.servers, op, func(ctx context.Context, s *server) (*connect.Response[tubev1.GetGroupResponse], error) {
			return s.admin.GetGroup(ctx, connect.NewRequest(&tubev1.GetGroupRequest{Group: q.group}))
		})
		if err == nil {
			if topic := resp.Msg.Group.GetTopic(); topic != q.cfg.topic {
				return refusal(op, ErrInvalid, "it reads topic %s, not %s as OnTopic says; name another group, or that topic", topic, q.cfg.topic)
			}
			return nil
		}
		if !errors.Is(err, ErrUnknownGroup) {
			return err
		}
		if q.cfg.create == nil || time.Now().After(until) || wait.sleep(ctx) != nil {
			return fmt.Errorf("%w (tube queue create makes one, or the option CreateGroup)", err)
		}
	}
}
