package tube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// ErrLeaseLost is the cause with which a handler's ctx ends (context.Cause) when its
// message was given to somebody else, or may not be handled for longer.
var ErrLeaseLost = errors.New("the lease of the message is lost")

// ErrShutdown is the cause with which a handler's ctx ends when it is still at work
// ShutdownTimeout after the ctx of Run has ended.
var ErrShutdown = errors.New("shutting down")

const (
	// farewell is how long a handler may go on after its ctx has ended.
	farewell = 5 * time.Second
	// maxUnsettled messages that are handled and not confirmed yet: beyond that no more
	// are asked for.
	maxUnsettled = 10_000
	// newGroup is how long a group that was just made may be unknown to other nodes.
	newGroup = 5 * time.Second
)

// run is one call of Run: it owns the messages in hand, over all the streams that it
// opens one after the other.
type run struct {
	q       *QueueGroup
	handler Handler
	log     *slog.Logger
	streams context.Context // ends when nothing can be told any more
	calls   sync.WaitGroup  // goroutines but for handlers

	mu       sync.Mutex
	held     map[place]*job  // all in hand; guarded by mu, as all that follows
	leases   map[string]*job // by all leases that a job ever had
	ready    []*job          // waiting for a handler
	running  int             // handlers at work
	told     int             // jobs that are handled and not settled yet
	settle   []*job          // what becomes of them is to be told
	answers  []answer        // to inquiries, to be sent
	credit   int             // granted on the present stream and not used
	pace     time.Duration   // how long handlers take, a moving mean
	stopping bool            // nothing is begun any more
	lease    time.Duration   // of the group, as the present stream said
	wake     chan struct{}   // has a token when there is something to be sent
	idle     chan struct{}   // has a token when a handler has ended
}

// Run calls handler for each message of the group, up to Concurrency at a time, until
// ctx ends; then it finishes what is in hand, gives back what was not begun, and
// returns nil. What the handler returns is told to the server: see Handler. The
// handler's ctx does not end with Run's, but with the causes ErrLeaseLost and
// ErrShutdown. A handler that panics has failed, with the panic's text.
//
// Servers that fail are replaced by others of Servers, again and again; Run returns an
// error only for what does not pass: an unknown group, a request that cannot be, or
// handlers that did not end in time.
func (q *QueueGroup) Run(ctx context.Context, handler Handler) error {
	if handler == nil {
		return errors.New("Run: the handler is nil")
	}
	ctx, done, err := q.enter(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := q.ready(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // nothing was begun
		}
		return err
	}
	r := &run{
		q: q, handler: Chain(handler, q.cfg.middleware...), log: q.cfg.log.With("group", q.group),
		held: map[place]*job{}, leases: map[string]*job{}, pace: time.Second,
		wake: make(chan struct{}, 1), idle: make(chan struct{}, 1),
	}
	return r.run(ctx)
}

func (r *run) run(ctx context.Context) error {
	// Streams outlive ctx, to tell what becomes of what is in hand.
	var endStreams context.CancelFunc
	r.streams, endStreams = context.WithCancel(context.WithoutCancel(ctx))
	defer r.calls.Wait()
	defer endStreams()
	over := make(chan struct{})
	defer close(over)
	r.calls.Go(func() { r.shutdown(ctx, over, endStreams) })
	err := r.consume(ctx)
	if err != nil { // it is over for a reason of its own
		r.stop()
		r.cancelHandlers(err)
	}
	return r.left(err)
}

// shutdown begins when ctx ends and gives handlers their time.
func (r *run) shutdown(ctx context.Context, over chan struct{}, endStreams context.CancelFunc) {
	select {
	case <-ctx.Done():
	case <-over:
		return
	}
	r.stop()
	for _, step := range []struct {
		after time.Duration
		do    func()
	}{{r.q.cfg.grace, func() { r.cancelHandlers(ErrShutdown) }}, {farewell, endStreams}} {
		timer := time.NewTimer(step.after)
		select {
		case <-timer.C:
			step.do()
		case <-over:
			timer.Stop()
			return
		}
	}
}

// consume keeps a stream open until all is done, or for good.
func (r *run) consume(ctx context.Context) error {
	began := time.Now()
	for wait := (backoff{}); ; {
		at := time.Now()
		srv, n := r.q.servers.now()
		err := r.session(srv)
		switch {
		case r.finished() || r.streams.Err() != nil:
			return nil
		case err == nil: // the server ended it
		case errors.Is(err, ErrUnknownGroup) && r.q.cfg.create != nil && time.Since(began) < newGroup:
		case !Retriable(err):
			return err
		}
		r.log.Warn("a stream has ended; going on at the next server", "server", srv.url, "err", err)
		r.q.servers.failed(n)
		if time.Since(at) > 10*time.Second { // it was good
			wait = backoff{}
		}
		wake := ctx
		if ctx.Err() != nil {
			wake = r.streams
		}
		_ = wait.sleep(wake) // ended: the next round sees it
	}
}

// left waits a moment for handlers, and says which did not end.
func (r *run) left(err error) error {
	deadline := time.NewTimer(farewell)
	defer deadline.Stop()
	for {
		r.mu.Lock()
		running, unsettled := r.running, r.told
		r.mu.Unlock()
		if running == 0 {
			if err == nil && unsettled > 0 {
				err = fmt.Errorf("run %s: no server took what became of %d messages; they come again", r.q.group, unsettled)
			}
			return err
		}
		select {
		case <-r.idle:
		case <-deadline.C:
			return errors.Join(err, fmt.Errorf("run %s: %d handlers did not end though their ctx has; their messages come again", r.q.group, running))
		}
	}
}

// stop begins nothing any more: what waits for a handler is given back.
func (r *run) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
	var stay []*job
	for _, j := range r.ready {
		if j.lease == "" { // the group confirmed it by itself: it does not come again
			stay = append(stay, j)
			continue
		}
		r.decide(j, verdict{kind: released})
	}
	r.ready = stay
	r.forget(time.Now())
	signal(r.wake)
}

// finished: it stops, and nothing is in hand.
func (r *run) finished() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopping && len(r.held) == 0
}

// cancelHandlers ends the ctx of all handlers at work.
func (r *run) cancelHandlers(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range r.held {
		if j.state == working {
			j.cancel(cause)
		}
	}
}

// start begins handlers while there is room. The caller holds mu.
func (r *run) start() {
	for len(r.ready) > 0 && r.running < r.q.cfg.concurrency {
		j := r.ready[0]
		r.ready[0] = nil
		if r.ready = r.ready[1:]; len(r.ready) == 0 {
			r.ready = nil
		}
		j.state = working
		j.began = time.Now()
		ctx, cancel := context.WithCancelCause(context.Background())
		j.cancel = cancel
		r.running++
		go r.work(ctx, j)
	}
}

// work runs the handler for one message.
func (r *run) work(ctx context.Context, j *job) {
	err := errors.New("the handler ended its goroutine (runtime.Goexit)")
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			r.log.Error("a handler panicked", "message", j.m.String(), "panic", p, "stack", string(debug.Stack()))
		}
		r.handled(ctx, j, err)
	}()
	err = r.handler(ctx, j.m)
}

// handled takes a handler's result.
func (r *run) handled(ctx context.Context, j *job, err error) {
	v := verdictOf(err)
	if cause := context.Cause(ctx); err != nil && cause != nil && errors.Is(err, context.Canceled) {
		v = verdict{kind: released} // it was told to stop, and did
	}
	j.cancel(nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	r.pace += (time.Since(j.began) - r.pace) / 8
	switch {
	case j.byHand || j.lease == "": // told already, or the group confirms by itself
		if j.lease == "" && err != nil {
			r.log.Error("a handler failed; the group confirms by itself, so the message does not come again", "message", j.m.String(), "err", err)
		}
		r.drop(j)
	default:
		r.decide(j, v)
	}
	r.start()
	signal(r.wake)
	signal(r.idle)
}

// window is how many messages are to be in hand, waiting or being handled. The caller
// holds mu.
func (r *run) window() int {
	n := r.q.cfg.concurrency
	if r.q.cfg.prefetch >= 0 {
		return n + r.q.cfg.prefetch
	}
	ahead := int64(n) * int64(100*time.Millisecond) / int64(max(r.pace, 10*time.Microsecond))
	return n + int(min(ahead, 1000))
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
