package rpc

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tube-mq/tube/internal/queue"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// The parts of a stream's state, each with a lock of its own.

// credits are what a client has granted and not used.
type credits struct {
	mu   sync.Mutex
	n    int
	more chan struct{} // has a token when n went up
}

func (c *credits) init() { c.more = make(chan struct{}, 1) }

// grant adds n. field is its name in the request.
func (c *credits) grant(n int32, field string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 1 {
		return badField(field, "%d; grant 1 or more", n)
	}
	if int64(c.n)+int64(n) > maxCredit {
		return refusedFor(tubev1.QueueErrorDetail_TOO_MANY, field, "%d with %d that are not used; %d in all can be", n, c.n, maxCredit)
	}
	c.n += int(n)
	signal(c.more)
	return nil
}

func (c *credits) use(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n -= n
}

// wait returns how many there are, once there are some.
func (c *credits) wait(ctx context.Context) (int, error) {
	for {
		c.mu.Lock()
		n := c.n
		c.mu.Unlock()
		if n > 0 {
			return n, ctx.Err()
		}
		select {
		case <-c.more:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// settleFrame is one request of a stream about leases.
type settleFrame struct {
	seq  uint64
	ids  []string
	same queue.Settlement   // of all of them, if set is nil
	set  []queue.Settlement // of each
}

// maxSettling leases wait to be settled; then reading stops.
const maxSettling = 2 * queue.MaxMessages

// settling are requests that wait for their turn.
type settling struct {
	mu     sync.Mutex
	frames []*settleFrame
	leases int
	ended  bool
	more   chan struct{} // has a token when there are frames, or it ended
	room   chan struct{} // has a token when frames were taken
}

func (s *settling) init() { s.more, s.room = make(chan struct{}, 1), make(chan struct{}, 1) }

// add waits while there are too many.
func (s *settling) add(ctx context.Context, f *settleFrame) error {
	for {
		s.mu.Lock()
		fits := s.leases == 0 || s.leases+len(f.ids) <= maxSettling
		if fits {
			s.frames, s.leases = append(s.frames, f), s.leases+len(f.ids)
			signal(s.more)
		}
		s.mu.Unlock()
		if fits {
			return nil
		}
		select {
		case <-s.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// end says that no more are added.
func (s *settling) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	signal(s.more)
}

// next waits for frames and takes as many as have up to queue.MaxMessages leases; none
// when it has ended and all are taken.
func (s *settling) next(ctx context.Context) ([]*settleFrame, error) {
	for {
		s.mu.Lock()
		frames, ended := s.take(), s.ended
		s.mu.Unlock()
		if len(frames) > 0 || ended {
			return frames, nil
		}
		select {
		case <-s.more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *settling) take() []*settleFrame {
	n, leases := 0, 0
	for n < len(s.frames) && (n == 0 || leases+len(s.frames[n].ids) <= queue.MaxMessages) {
		leases += len(s.frames[n].ids)
		n++
	}
	out := s.frames[:n:n]
	if s.frames = s.frames[n:]; len(s.frames) == 0 {
		s.frames = nil
	}
	s.leases -= leases
	if n > 0 {
		signal(s.room)
	}
	return out
}

// maxInquiries that are under way on one stream; of more it is said that the answer is
// not known.
const maxInquiries = 100

// inquiries are questions to the client.
type inquiries struct {
	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan *tubev1.ConsumeAnswer
	out     chan *tubev1.ConsumeInquiry // to be sent
}

func (q *inquiries) init() {
	q.waiting, q.out = map[uint64]chan *tubev1.ConsumeAnswer{}, make(chan *tubev1.ConsumeInquiry, maxInquiries)
}

// begin makes a question; nil if there are too many.
func (q *inquiries) begin(ids []string, until time.Time) (*tubev1.ConsumeInquiry, chan *tubev1.ConsumeAnswer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= maxInquiries {
		return nil, nil
	}
	q.last++
	m := &tubev1.ConsumeInquiry{Inquiry: q.last, LeaseIds: ids, AnswerUntil: timestamppb.New(until)}
	answer := make(chan *tubev1.ConsumeAnswer, 1)
	select {
	case q.out <- m:
	default: // those before were not even read
		return nil, nil
	}
	q.waiting[m.Inquiry] = answer
	return m, answer
}

func (q *inquiries) forget(id uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waiting, id)
}

// answer takes the first answer to a question that is still open.
func (q *inquiries) answer(a *tubev1.ConsumeAnswer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.waiting[a.GetInquiry()]; c != nil {
		delete(q.waiting, a.GetInquiry())
		c <- a
	}
}

// ask sends the questions.
func (c *consumer) ask(ctx context.Context) error {
	for {
		select {
		case m := <-c.inquiries.out:
			if !m.AnswerUntil.AsTime().After(time.Now()) {
				continue // nobody waits for it any more
			}
			if err := c.send(&tubev1.ConsumeResponse{Down: &tubev1.ConsumeResponse_Inquiry{Inquiry: m}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// defaultAnswer is how long an answer is waited for if the asker does not say.
const defaultAnswer = 2 * time.Second

// inquire asks the client what became of leases, as Queues.OpenSession wants it.
func (c *consumer) inquire(ctx context.Context, leases []queue.Lease) []queue.Answer {
	out := make([]queue.Answer, len(leases))
	ctx, cancel := context.WithTimeout(ctx, defaultAnswer)
	defer cancel()
	ids, at := make([]string, len(leases)), make(map[string]int, len(leases))
	for i, l := range leases {
		ids[i] = l.String()
		at[ids[i]] = i
	}
	until, _ := ctx.Deadline()
	m, answered := c.inquiries.begin(ids, until)
	if m == nil {
		return out
	}
	defer c.inquiries.forget(m.Inquiry)
	select {
	case a := <-answered:
		mark(out, at, a.Working, queue.AnswerWorking)
		mark(out, at, a.Done, queue.AnswerDone)
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
	return out
}

// mark ignores leases that were not asked for.
func mark(out []queue.Answer, at map[string]int, ids []string, a queue.Answer) {
	for _, id := range ids {
		if i, ok := at[id]; ok {
			out[i] = a
		}
	}
}
