package tube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

type producerConfig struct {
	common
	topic         string
	linger        time.Duration
	batchCount    int
	batchBytes    int
	bufferCount   int
	bufferBytes   int
	inFlight      int
	perTopic      int
	deliverWithin time.Duration
}

// ToTopic is where messages go that have no Topic of their own.
func ToTopic(topic string) ProducerOption {
	return producerOption(func(c *producerConfig) error { c.topic = topic; return nil })
}

// Linger is how long a message waits for others to go with it. Default 0: it goes at
// once, and what comes while a batch is under way makes the next one.
func Linger(d time.Duration) ProducerOption {
	return producerOption(func(c *producerConfig) error {
		c.linger = d
		if d < 0 {
			return positive("Linger", d)
		}
		return nil
	})
}

// BatchSize bounds a batch: messages (1 to 10,000; default 5,000) and bytes (default
// 4 MiB, at most 12 MiB). One message always fits.
func BatchSize(messages, bytes int) ProducerOption {
	return producerOption(func(c *producerConfig) error {
		c.batchCount, c.batchBytes = messages, bytes
		return errors.Join(within("BatchSize: messages", messages, 1, 10_000), within("BatchSize: bytes", bytes, 1, 12<<20))
	})
}

// Buffer bounds what waits or is under way: messages (default 100,000) and bytes
// (default 64 MiB). At the bound Send and SendAsync wait.
func Buffer(messages, bytes int) ProducerOption {
	return producerOption(func(c *producerConfig) error {
		c.bufferCount, c.bufferBytes = messages, bytes
		return errors.Join(within("Buffer: messages", messages, 1, 1<<30), within("Buffer: bytes", bytes, 1, 1<<40))
	})
}

// InFlight bounds batches that are under way: in all (default 16), and of one topic.
// Of one topic it is 1 by default, which keeps the order in which messages were given;
// more is faster where the way is long, and mixes the order up when one fails.
func InFlight(batches, perTopic int) ProducerOption {
	return producerOption(func(c *producerConfig) error {
		c.inFlight, c.perTopic = batches, perTopic
		return errors.Join(within("InFlight: batches", batches, 1, 1000), within("InFlight: per topic", perTopic, 1, 1000))
	})
}

// DeliverWithin is how long a message is tried to be sent for; then it fails with why
// the last attempt did. Default 2 min.
func DeliverWithin(d time.Duration) ProducerOption {
	return producerOption(func(c *producerConfig) error { c.deliverWithin = d; return positive("DeliverWithin", d) })
}

// Producer sends messages. Make it with NewProducer, end it with Close.
type Producer struct {
	cfg     producerConfig
	servers *servers
	ids     *ids
	slots   chan struct{} // one token for each batch under way
	sending sync.WaitGroup

	ctx    context.Context // ends when Close gives up
	cancel context.CancelFunc

	mu     sync.Mutex
	topics map[string]*topicQueue // those with messages; guarded by mu
	count  int                    // messages that have room in the buffer; guarded by mu
	bytes  int                    // of them; guarded by mu
	open   int                    // messages whose callback has not returned; guarded by mu
	room   chan struct{}          // closed when there is more room, or fewer are open; guarded by mu
	closed bool                   // guarded by mu
}

// NewProducer makes a producer. It does not connect before something is sent.
func NewProducer(opts ...ProducerOption) (*Producer, error) {
	p := &Producer{cfg: producerConfig{
		batchCount: 5000, batchBytes: 4 << 20, bufferCount: 100_000, bufferBytes: 64 << 20, inFlight: 16, perTopic: 1, deliverWithin: 2 * time.Minute,
	}}
	for _, o := range opts {
		if err := o.applyProducer(&p.cfg); err != nil {
			return nil, err
		}
	}
	if err := p.cfg.finish(); err != nil {
		return nil, err
	}
	p.servers, p.ids = newServers(&p.cfg.common), newIDs()
	p.slots = make(chan struct{}, p.cfg.inFlight)
	p.topics, p.room = map[string]*topicQueue{}, make(chan struct{})
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p, nil
}

// Send sends a message and returns once it is durable. It may be called by many
// goroutines; what they give at the same time goes together. If ctx ends first the
// message may be stored or not: sending it again with the same ID is safe where the
// topic has tube.dedupe.window.
//
// Errors: ErrUnknownTopic, ErrMessageTooLarge, ErrInvalid, ErrDelayOutOfRange: it was not
// stored. What Retriable is true for, after DeliverWithin: it may have been.
func (p *Producer) Send(ctx context.Context, m *Outgoing) (Result, error) {
	type answer struct {
		r   Result
		err error
	}
	answers := make(chan answer, 1)
	p.SendAsync(ctx, m, func(r Result, err error) { answers <- answer{r, err} })
	select {
	case a := <-answers:
		return a.r, a.err
	case <-ctx.Done():
		select {
		case a := <-answers: // both: what is known counts
			return a.r, a.err
		default:
			return Result{}, fmt.Errorf("send to %s: %w; it may be stored", m.Topic, ctx.Err())
		}
	}
}

// SendAsync gives a message to be sent and returns; done is called once with what
// became of it, errors as of Send. It waits while the buffer is full. A message whose
// ctx ends before it goes out is not sent. done must not wait for other messages of
// this producer; m and what it refers to must not be changed before done is called.
func (p *Producer) SendAsync(ctx context.Context, m *Outgoing, done func(Result, error)) {
	if done == nil {
		done = func(Result, error) {}
	}
	if m == nil {
		done(Result{}, (*Outgoing)(nil).check())
		return
	}
	x := &pending{m: *m, ctx: ctx, done: done, given: time.Now()}
	if x.m.Topic == "" {
		x.m.Topic = p.cfg.topic
	}
	if err := x.m.check(); err != nil {
		done(Result{}, err)
		return
	}
	if x.m.ID == "" {
		x.m.ID = p.ids.next()
	}
	x.m.traced(ctx)
	x.size = x.m.size()
	if err := p.admit(ctx, x); err != nil {
		done(Result{}, err)
	}
}

// admit waits for room and queues x.
func (p *Producer) admit(ctx context.Context, x *pending) error {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return ErrClosed
		}
		if p.count == 0 || p.count < p.cfg.bufferCount && p.bytes+x.size <= p.cfg.bufferBytes {
			p.count, p.bytes, p.open = p.count+1, p.bytes+x.size, p.open+1
			p.queue(x)
			p.mu.Unlock()
			return nil
		}
		room := p.room
		p.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Flush waits until all that was given so far has its answer and callbacks have
// returned, or ctx ends.
func (p *Producer) Flush(ctx context.Context) error {
	p.mu.Lock()
	for _, q := range p.topics {
		q.hurry()
	}
	p.mu.Unlock()
	for {
		p.mu.Lock()
		left, room := p.open, p.room
		p.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			return fmt.Errorf("flush: %d messages have no answer yet: %w", left, ctx.Err())
		}
	}
}

// Close takes no more messages, waits until those that it has are answered, and ends.
// If ctx ends first the rest fails with ErrClosed, and may be stored or not. It may be
// called again.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.Flush(ctx)
	p.cancel()
	p.sending.Wait()
	p.servers.close()
	return err
}
