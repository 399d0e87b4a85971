package tube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// pending is a message that was taken and has no answer yet.
type pending struct {
	m     Outgoing
	ctx   context.Context
	done  func(Result, error)
	given time.Time
	size  int
	tried error // why the last attempt failed
}

// topicQueue are the messages of one topic that wait. Guarded by Producer.mu.
type topicQueue struct {
	topic   string
	waiting []*pending
	bytes   int
	senders int           // goroutines that send of it, up to perTopic
	full    chan struct{} // has a token when a lingering batch is to go now
}

func (q *topicQueue) hurry() { signal(q.full) }

// queue adds x and sees that somebody sends it. The caller holds mu.
func (p *Producer) queue(x *pending) {
	q := p.topics[x.m.Topic]
	if q == nil {
		q = &topicQueue{topic: x.m.Topic, full: make(chan struct{}, 1)}
		p.topics[x.m.Topic] = q
	}
	q.waiting = append(q.waiting, x)
	q.bytes += x.size
	enough := p.enough(q)
	if enough {
		q.hurry()
	}
	// Another sender only for what does not go with the others anyway.
	if q.senders == 0 || q.senders < p.cfg.perTopic && enough {
		q.senders++
		p.sending.Go(func() { p.send(q) })
	}
}

// enough waits for a whole batch. The caller holds mu.
func (p *Producer) enough(q *topicQueue) bool {
	return len(q.waiting) >= p.cfg.batchCount || q.bytes >= p.cfg.batchBytes
}

// send sends what waits of a topic, batch after batch, until nothing does.
func (p *Producer) send(q *topicQueue) {
	for {
		if p.cfg.linger > 0 {
			p.lingerFor(q)
		}
		p.slots <- struct{}{}
		batch := p.take(q)
		if len(batch) > 0 {
			p.sendBatch(q.topic, batch)
		}
		<-p.slots
		if len(batch) == 0 {
			return
		}
	}
}

// lingerFor waits for more to go with what waits, unless it is a batch already.
func (p *Producer) lingerFor(q *topicQueue) {
	p.mu.Lock()
	enough := p.enough(q)
	p.mu.Unlock()
	if enough {
		return
	}
	t := time.NewTimer(p.cfg.linger)
	defer t.Stop()
	select {
	case <-t.C:
	case <-q.full:
	case <-p.ctx.Done():
	}
}

// take takes the next batch; none: nothing waits, and the sender is none any more.
func (p *Producer) take(q *topicQueue) []*pending {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, bytes := 0, 0
	for n < len(q.waiting) && n < p.cfg.batchCount && (n == 0 || bytes+q.waiting[n].size <= p.cfg.batchBytes) {
		bytes += q.waiting[n].size
		n++
	}
	batch := q.waiting[:n:n]
	if q.waiting = q.waiting[n:]; len(q.waiting) == 0 {
		q.waiting = nil
	}
	q.bytes -= bytes
	if n == 0 {
		if q.senders--; q.senders == 0 {
			delete(p.topics, q.topic)
		}
	}
	return batch
}

// sendBatch sends messages until each has an answer. Those that fail for a reason that
// passes are sent again, before any that came after them.
func (p *Producer) sendBatch(topic string, batch []*pending) {
	for wait := (backoff{}); len(batch) > 0; {
		if batch = p.expired(batch); len(batch) == 0 {
			return
		}
		before := len(batch)
		batch = p.attempt(topic, batch)
		if len(batch) == before {
			_ = wait.sleep(p.ctx) // ended: the next round sees it
		} else {
			wait = backoff{}
		}
	}
}

// expired answers those whose time is over and returns the others.
func (p *Producer) expired(batch []*pending) []*pending {
	left := make([]*pending, 0, len(batch))
	for _, x := range batch {
		switch {
		case p.ctx.Err() != nil:
			p.answer(x, Result{}, errors.Join(ErrClosed, x.tried))
		case x.ctx.Err() != nil:
			p.answer(x, Result{}, errors.Join(x.ctx.Err(), x.tried))
		case x.tried != nil && time.Since(x.given) > p.cfg.deliverWithin:
			p.answer(x, Result{}, fmt.Errorf("after %v: %w", time.Since(x.given).Round(time.Millisecond), x.tried))
		default:
			left = append(left, x)
		}
	}
	return left
}

// attempt sends messages once and returns those that are to be sent again.
func (p *Producer) attempt(topic string, batch []*pending) (again []*pending) {
	op := "send to " + topic
	req := &tubev1.SendRequest{Topic: topic, Messages: make([]*tubev1.OutgoingMessage, len(batch))}
	now := time.Now()
	for i, x := range batch {
		req.Messages[i] = x.m.wire(x.given, now)
	}
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.timeout)
	defer cancel()
	srv, at := p.servers.now()
	resp, err := srv.queue.Send(ctx, connect.NewRequest(req))
	if err == nil && len(resp.Msg.Results) != len(batch) {
		err = connect.NewError(connect.CodeInternal, fmt.Errorf("%d messages have %d answers", len(batch), len(resp.Msg.Results)))
	}
	if err != nil {
		if err = failure(op, err); Retriable(err) {
			p.servers.failed(at)
		}
		return p.refused(topic, batch, err)
	}
	answered := batch[:0:0]
	var results []Result
	for i, x := range batch {
		r := resp.Msg.Results[i]
		switch err := itemFailure(op, r.Error); {
		case err == nil:
			answered, results = append(answered, x), append(results, Result{r.Topic, r.Partition, r.Offset, x.m.ID, r.Duplicate})
		case Retriable(err):
			x.tried = err
			again = append(again, x)
		default:
			p.answer(x, Result{}, err)
		}
	}
	p.free(answered) // first: a callback may send
	for i, x := range answered {
		x.done(results[i], nil)
	}
	p.returned(len(answered))
	return again
}

// refused takes the failure of a whole call. Nothing of it was stored if it is for good;
// then one message that cannot be must not fail the others.
func (p *Producer) refused(topic string, batch []*pending, err error) (again []*pending) {
	switch {
	case Retriable(err):
		for _, x := range batch {
			x.tried = err
		}
		return batch
	case len(batch) > 1 && (errors.Is(err, ErrInvalid) || errors.Is(err, ErrMessageTooLarge) || errors.Is(err, ErrDelayOutOfRange)):
		half := len(batch) / 2
		again = p.attempt(topic, batch[:half:half])
		if len(again) > 0 { // keep the order
			return append(again, batch[half:]...)
		}
		return p.attempt(topic, batch[half:])
	}
	for _, x := range batch {
		p.answer(x, Result{}, err)
	}
	return nil
}

// answer tells what became of a message.
func (p *Producer) answer(x *pending, r Result, err error) {
	p.free([]*pending{x})
	x.done(r, err)
	p.returned(1)
}

// free gives the room of messages back.
func (p *Producer) free(batch []*pending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range batch {
		p.count--
		p.bytes -= x.size
	}
	p.changed()
}

// returned notes that n callbacks have.
func (p *Producer) returned(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open -= n
	p.changed()
}

// changed wakes who waits for room or for answers. The caller holds mu.
func (p *Producer) changed() {
	close(p.room)
	p.room = make(chan struct{})
}
