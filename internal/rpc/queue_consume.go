package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tube-mq/tube/internal/queue"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

const (
	// maxCredit that is granted and not used.
	maxCredit = 100_000
	// retryAfter is how long a stream waits when its partitions have no leader.
	retryAfter = 200 * time.Millisecond
)

// frameTimeout is how long a client may take to read what was sent, before its stream
// is ended.
var frameTimeout = 30 * time.Second

// errSlow: what was sent was not read.
var errSlow = errors.New("the stream was not read for too long; grant less credit, or read on while handling")

// consumer is one stream. Its goroutines: read (the handler's own) takes what comes
// up, push sends messages down that takeAll takes from the backend, settle has leases
// settled and sends the answers, ask sends inquiries. Any of them ends it for all.
type consumer struct {
	s      *queueService
	q      Queues
	stream *bidi
	group  string
	member queue.Member
	bytes  int // of one frame of messages
	ctx    context.Context
	cancel context.CancelCauseFunc

	sending  chan struct{} // holds a token; who has it may send
	watchdog *time.Timer   // runs while something is sent

	mu   sync.Mutex
	over bool // the handler returns: what belongs to the request is not to be touched

	credits   credits
	settling  settling
	inquiries inquiries
}

type bidi = connect.BidiStream[upFrame, downFrame]

// consume is tube.v1.QueueService.Consume.
func (s *queueService) consume(ctx context.Context, stream *bidi) error {
	if !enter(s.consumers) {
		return overloaded("%d streams are open at this node already; ask another one", maxConsumers)
	}
	defer leaveSlot(s.consumers)
	c, err := s.accept(ctx, stream)
	if c != nil {
		defer c.finish()
	}
	if err == nil {
		err = c.run()
	}
	if err != nil {
		return toldAs(s.log, stream.Spec().Procedure, c.started(), s.stopped(err))
	}
	return nil
}

// started names the stream's group for the details of its error.
func (c *consumer) started() *tubev1.ConsumeStart {
	if c == nil {
		return nil
	}
	return &tubev1.ConsumeStart{Group: c.group}
}

// accept reads the first frame and makes a consumer of it.
func (s *queueService) accept(ctx context.Context, stream *bidi) (*consumer, error) {
	first, err := receive(ctx, stream)
	if errors.Is(err, io.EOF) {
		return nil, badField("start", "the stream ended before it")
	} else if err != nil {
		return nil, err
	}
	deadlines(ctx, time.Time{}) // from now on it lasts
	spentBody(ctx)
	m := first.request.GetStart()
	if m == nil {
		return nil, badField("start", "it must be the first frame")
	}
	r, err := receiving(&tubev1.ReceiveRequest{Group: m.Group, ConsumerId: m.ConsumerId, MaxBytes: m.MaxBytes})
	if err != nil {
		return nil, err
	}
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	c := &consumer{s: s, q: q.Queues, stream: stream, group: m.Group, bytes: r.MaxBytes}
	c.member = queue.Member{
		ID: cmp.Or(m.ConsumerId, stream.Peer().Addr), Node: s.self.Node, Address: stream.Peer().Addr, CanBeAsked: true,
		Session: fmt.Sprintf("consume/%d/%x/%d", s.self.Node, s.self.Started.UnixNano(), s.streams.Add(1)),
	}
	c.sending = make(chan struct{}, 1)
	c.credits.init()
	c.settling.init()
	c.inquiries.init()
	if m.Credit != 0 {
		err = c.credits.grant(m.Credit, "start.credit")
	}
	lease, lookup := s.leaseOf(m.Group, m.ConsumerId, "start.consumer_id")
	if err = errors.Join(err, lookup); err != nil {
		return nil, err
	}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.watchdog = time.AfterFunc(frameTimeout, func() {
		c.cancel(errSlow)
		c.served(func() { expireWrite(ctx) })
	})
	c.watchdog.Stop()
	return c, c.send(&tubev1.ConsumeResponse{Down: &tubev1.ConsumeResponse_Started{Started: &tubev1.ConsumeStarted{
		ConsumerId: c.member.ID, Session: c.member.Session, Lease: durationpb.New(lease),
	}}})
}

// served does something to the request, unless its handler is done: timers and
// contexts call from goroutines of their own.
func (c *consumer) served(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		do()
	}
}

func (c *consumer) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

// leaseOf looks up the group that somebody wants to receive of, and how long its
// leases are. field is the consumer id's name in the request.
func (s *queueService) leaseOf(group, consumerID, field string) (time.Duration, error) {
	g := s.cluster.Image().QueueGroup(group)
	switch {
	case g == nil:
		return 0, fmt.Errorf("%w: %q", queue.ErrUnknownGroup, group)
	case g.Settings.Broadcast && consumerID == "":
		return 0, badField(field, "it is empty; a group of mode broadcast remembers by it how far each consumer is")
	}
	return g.Settings.Lease, nil
}

// run serves the stream until the client ends its side and has all answers (nil), is
// too slow, wrong or gone, or the server stops.
func (c *consumer) run() error {
	closed := c.q.OpenSession(c.group, c.member, c.inquire)
	defer closed()
	defer c.cancel(nil)
	pushing, endPush := context.WithCancel(c.ctx)
	defer endPush()
	stop := context.AfterFunc(c.s.stopping, func() { c.cancel(context.Canceled) })
	defer stop()
	// Who ends the stream for another reason than its client breaks the reading off.
	breakOff := context.AfterFunc(c.ctx, func() { c.served(func() { expireRead(c.ctx) }) })
	defer breakOff()
	var work sync.WaitGroup
	spawn := func(f func(context.Context) error, ctx context.Context) {
		work.Go(func() {
			if err := f(ctx); err != nil {
				c.cancel(err)
			}
		})
	}
	spawn(c.push, pushing)
	spawn(c.ask, pushing)
	spawn(c.settle, c.ctx)
	if err := c.read(); err != nil {
		c.cancel(err)
	}
	endPush()
	c.settling.end()
	work.Wait()
	return context.Cause(c.ctx)
}

// read takes what comes up until the client ends its side.
func (c *consumer) read() error {
	for {
		m, err := receive(c.ctx, c.stream)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = c.takeFrame(m)
		}
		if err != nil {
			return err
		}
		spentBody(c.ctx)
	}
}

// receive reads a frame.
func receive(ctx context.Context, stream *bidi) (*upFrame, error) {
	f, err := stream.Receive()
	if err != nil {
		return nil, err
	}
	if f.acks == nil && f.request == nil {
		f.request = &tubev1.ConsumeRequest{} // nothing at all was sent
	}
	return f, undecoded(f.request)
}

func (c *consumer) takeFrame(f *upFrame) error {
	if f.acks == nil {
		return c.take(f.request)
	}
	if err := several(len(f.acks.ids), "acknowledge.lease_ids"); err != nil {
		return err
	}
	return c.settling.add(c.ctx, f.acks)
}

// take does what a frame asks for.
func (c *consumer) take(m *tubev1.ConsumeRequest) error {
	switch up := m.Up.(type) {
	case *tubev1.ConsumeRequest_Credit:
		return c.credits.grant(up.Credit.GetMessages(), "credit.messages")
	case *tubev1.ConsumeRequest_Acknowledge:
		return c.settleSame(m.Seq, up.Acknowledge.GetLeaseIds(), "acknowledge.lease_ids", queue.Settlement{Verdict: queue.Acknowledge})
	case *tubev1.ConsumeRequest_Release:
		return c.settleSame(m.Seq, up.Release.GetLeaseIds(), "release.lease_ids", queue.Settlement{Verdict: queue.Release})
	case *tubev1.ConsumeRequest_Extend:
		d, err := extension(up.Extend.GetDuration())
		if err != nil {
			return err
		}
		return c.settleSame(m.Seq, up.Extend.GetLeaseIds(), "extend.lease_ids", queue.Settlement{Verdict: queue.Extend, Delay: d})
	case *tubev1.ConsumeRequest_Nack:
		ids, set, err := nacks(up.Nack.GetEntries(), "nack.entries")
		if err != nil {
			return err
		}
		return c.settling.add(c.ctx, &settleFrame{seq: m.Seq, ids: ids, set: set})
	case *tubev1.ConsumeRequest_InquiryAnswer:
		c.inquiries.answer(up.InquiryAnswer)
		return nil
	case *tubev1.ConsumeRequest_Start:
		return badField("start", "the stream has begun already")
	}
	return badField("up", "the frame has nothing in it that is known")
}

func (c *consumer) settleSame(seq uint64, ids []string, field string, same queue.Settlement) error {
	if err := several(len(ids), field); err != nil {
		return err
	}
	return c.settling.add(c.ctx, &settleFrame{seq: seq, ids: ids, same: same})
}

// push sends messages down as long as there is credit: while one frame is written,
// the next one is taken.
func (c *consumer) push(ctx context.Context) error {
	taken := make(chan []queue.Delivery)
	var taking error
	go func() {
		defer close(taken)
		taking = c.takeAll(ctx, taken)
	}()
	var failed error
	for got := range taken {
		if failed == nil {
			if failed = c.sendFrame(&downFrame{messages: got}); failed != nil {
				c.cancel(failed)
			}
		}
		c.s.budget.release(sizeOf(got))
	}
	return cmp.Or(failed, taking)
}

// takeAll takes messages until ctx ends. What it has taken then is sent all the same,
// unless the stream ends altogether.
func (c *consumer) takeAll(ctx context.Context, taken chan<- []queue.Delivery) error {
	for {
		n, err := c.credits.wait(ctx)
		if err == nil {
			err = c.s.budget.wait(ctx)
		}
		if err != nil {
			return nil // it ends, for a reason that is known
		}
		got, err := c.q.Receive(ctx, queue.Receiving{Group: c.group, Member: c.member, Max: min(n, queue.MaxMessages), MaxBytes: c.bytes, Wait: maxWait})
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, queue.ErrUnavailable), errors.Is(err, queue.ErrOverloaded):
			// A leader will be there; whoever waits on a stream need not begin anew.
			pause(ctx, retryAfter)
			continue
		case err != nil:
			return err
		case len(got) == 0:
			continue
		}
		c.credits.use(len(got))
		c.s.budget.charge(sizeOf(got))
		taken <- got
	}
}

// settle has what came up settled, all that is there at a time, until no more comes.
func (c *consumer) settle(ctx context.Context) error {
	for {
		frames, err := c.settling.next(ctx)
		if err != nil || len(frames) == 0 {
			return nil // all are answered, or it ends for a reason that is known
		}
		if err := c.send(&tubev1.ConsumeResponse{Down: &tubev1.ConsumeResponse_Results{Results: c.settleFrames(ctx, frames)}}); err != nil {
			return err
		}
	}
}

func (c *consumer) settleFrames(ctx context.Context, frames []*settleFrame) *tubev1.ConsumeResults {
	n := 0
	for _, f := range frames {
		n += len(f.ids)
	}
	ids, set := make([]string, 0, n), make([]queue.Settlement, 0, n)
	for _, f := range frames {
		ids = append(ids, f.ids...)
		if set = append(set, f.set...); f.set == nil {
			for range f.ids {
				set = append(set, f.same)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	errs, err := settleIDs(ctx, c.q, c.group, ids, set)
	if err != nil {
		for i := range errs {
			errs[i] = cmp.Or(errs[i], err)
		}
	}
	out := &tubev1.ConsumeResults{}
	for _, f := range frames {
		r := &tubev1.ConsumeResult{Seq: f.seq}
		for i, id := range f.ids {
			if errs[i] == nil {
				r.Succeeded++
			} else {
				r.Errors = append(r.Errors, &tubev1.LeaseResult{LeaseId: id, Error: itemError(c.s.log, errs[i])})
			}
		}
		errs = errs[len(f.ids):]
		out.Requests = append(out.Requests, r)
	}
	return out
}

func (c *consumer) send(m *tubev1.ConsumeResponse) error { return c.sendFrame(&downFrame{response: m}) }

// sendFrame sends one frame. A client that does not take it in time loses its stream.
func (c *consumer) sendFrame(m *downFrame) error {
	select {
	case c.sending <- struct{}{}:
		defer func() { <-c.sending }()
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
	c.watchdog.Reset(frameTimeout)
	err := c.stream.Send(m)
	if !c.watchdog.Stop() {
		return errSlow
	}
	return err
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
