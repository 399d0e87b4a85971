package tube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// openTimeout is how long a server may take to begin a stream.
const openTimeout = 10 * time.Second

// session is one stream of a run. Two goroutines: read takes what comes down, write
// sends what there is to say.
type session struct {
	r      *run
	stream *connect.BidiStreamForClient[tubev1.ConsumeRequest, tubev1.ConsumeResponse]

	seq     uint64
	pending map[uint64]request // sent and not answered; guarded by run.mu
	extends time.Time          // when leases are looked at next; guarded by run.mu

	ended   chan struct{} // closed when reading has
	readErr error         // why; io.EOF: in an orderly manner
}

// request that was sent: what was said of which job under which lease.
type request struct {
	jobs   []*job
	leases []string
	extend bool
	at     time.Time
}

func (r request) verb(j *job) string {
	if r.extend {
		return "extend"
	}
	return j.verdict.verb()
}

// session runs one stream until it ends. nil: it was ended in an orderly manner.
func (r *run) session(srv *server) error {
	ctx, cancel := context.WithCancel(r.streams)
	defer cancel()
	op := "consume " + r.q.group
	s := &session{r: r, pending: map[uint64]request{}, ended: make(chan struct{})}
	s.stream = srv.queue.Consume(ctx)
	opening := time.AfterFunc(openTimeout, cancel)
	first, err := s.open()
	if !opening.Stop() && err != nil {
		return &Error{Op: op, Code: "unavailable", Message: fmt.Sprintf("%s did not begin the stream within %v", srv.url, openTimeout)}
	}
	if err != nil {
		return failure(op, err)
	}
	r.mu.Lock()
	r.lease = max(first.Lease.AsDuration(), time.Second)
	s.extends = time.Now() // what was in hand before has not been extended for a while
	r.mu.Unlock()
	r.log.Debug("consuming", "server", srv.url, "consumer", first.ConsumerId, "session", first.Session)
	go s.read()
	err = s.write(ctx)
	cancel()
	_ = s.stream.CloseRequest() // an HTTP/2 client that waits for more to send does not notice ctx's end
	<-s.ended
	_ = s.stream.CloseResponse() // it has ended, whatever this says
	s.unanswered()
	if err == nil {
		r.giveBackLate(srv)
	}
	return failure(op, err)
}

// open begins the stream.
func (s *session) open() (*tubev1.ConsumeStarted, error) {
	r := s.r
	r.mu.Lock()
	r.credit = 0
	start := &tubev1.ConsumeStart{Group: r.q.group, ConsumerId: r.q.cfg.consumerID, Credit: int32(r.grant(true)), MaxBytes: int32(r.q.cfg.maxBytes)}
	r.mu.Unlock()
	if err := s.stream.Send(&tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_Start{Start: start}}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err // of io.EOF receiving says why
	}
	m, err := s.stream.Receive()
	if err != nil {
		return nil, err
	}
	if m.GetStarted() == nil {
		return nil, connect.NewError(connect.CodeInternal, errors.New("the stream does not begin with started"))
	}
	return m.GetStarted(), nil
}

// read takes what comes down until the stream ends.
func (s *session) read() {
	defer close(s.ended)
	for {
		var m *tubev1.ConsumeResponse
		if m, s.readErr = s.stream.Receive(); s.readErr != nil {
			return
		}
		now := time.Now()
		switch down := m.Down.(type) {
		case *tubev1.ConsumeResponse_Messages:
			for _, m := range down.Messages.GetMessages() {
				s.r.take(m, now)
			}
		case *tubev1.ConsumeResponse_Results:
			for _, x := range down.Results.GetRequests() {
				s.answered(x)
			}
		case *tubev1.ConsumeResponse_Inquiry:
			s.r.asked(down.Inquiry)
		}
	}
}

// write sends what there is to say until the stream fails, or the run stops and all is
// settled; then it closes the stream and waits for its end.
func (s *session) write(ctx context.Context) error {
	for {
		frames, again := s.frames(time.Now())
		for _, m := range frames {
			if err := s.stream.Send(m); errors.Is(err, io.EOF) {
				return s.whyEnded()
			} else if err != nil {
				return err
			}
		}
		if s.r.finished() {
			if err := s.stream.CloseRequest(); err != nil {
				return err
			}
			return s.whyEnded()
		}
		timer := time.NewTimer(time.Until(again))
		select {
		case <-s.r.wake:
		case <-timer.C:
		case <-s.ended:
			timer.Stop()
			return s.whyEnded()
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

// whyEnded waits for the end of reading; nil: it was orderly.
func (s *session) whyEnded() error {
	<-s.ended
	if errors.Is(s.readErr, io.EOF) {
		return nil
	}
	return s.readErr
}

// answered takes the server's answer to a request.
func (s *session) answered(x *tubev1.ConsumeResult) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	req := s.pending[x.Seq]
	delete(s.pending, x.Seq)
	bad := make(map[string]*tubev1.ItemError, len(x.Errors))
	for _, e := range x.Errors {
		bad[e.LeaseId] = e.Error
	}
	for i, j := range req.jobs {
		var err error
		if e := bad[req.leases[i]]; e != nil {
			err = itemFailure(req.verb(j)+" "+j.m.String(), e)
		}
		if req.extend {
			r.extended(j, req, req.leases[i], err)
		} else {
			r.settled(j, req.leases[i], err)
		}
	}
	signal(r.wake)
}

// settled takes what the server says to a verdict. The caller holds mu.
func (r *run) settled(j *job, lease string, err error) {
	if j.state != told || !j.sent {
		return // forgotten meanwhile
	}
	switch {
	case err == nil:
		r.drop(j)
	case Retriable(err) || lease != j.lease:
		j.sent = false
		if lease == j.lease {
			j.notYet = time.Now().Add(200 * time.Millisecond)
		}
		r.settle = append(r.settle, j)
	default:
		r.log.Warn("it came too late: the message may be handled again", "err", err)
		if errors.Is(err, ErrLeaseExpired) && j.verdict.kind == acked && !r.stopping {
			// It was handed out again, maybe to us: that may arrive after this.
			j.sent, j.forget = false, time.Now().Add(remembered)
			return
		}
		r.drop(j)
	}
}

// remembered is how long a message stays known that was handled and whose confirmation
// came too late. If it comes again to us it is confirmed, not handled.
const remembered = 10 * time.Second

// forget drops what was remembered long enough. The caller holds mu.
func (r *run) forget(now time.Time) {
	for _, j := range r.held {
		if !j.forget.IsZero() && (r.stopping || now.After(j.forget)) {
			r.drop(j)
		}
	}
}

// extended takes what the server says to an extension. The caller holds mu.
func (r *run) extended(j *job, req request, lease string, err error) {
	switch {
	case err == nil:
		if j.lease == lease {
			j.until = req.at.Add(r.lease)
		}
	case Retriable(err) || j.lease != lease || j.state == told || j.byHand:
	case j.state == waiting: // somebody else has it
		for i, w := range r.ready {
			if w == j {
				r.ready = append(r.ready[:i:i], r.ready[i+1:]...)
				break
			}
		}
		r.drop(j)
	default:
		r.log.Warn("a lease cannot be extended; its handler is told", "err", err)
		j.cancel(errors.Join(ErrLeaseLost, err))
	}
}

// unanswered makes the next stream tell again what this one was not answered.
func (s *session) unanswered() {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.answers = nil
	for _, req := range s.pending {
		for _, j := range req.jobs {
			if !req.extend && j.state == told && j.sent {
				j.sent = false
				s.r.settle = append(s.r.settle, j)
			}
		}
	}
}
