package broker

import (
	"container/list"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/tube-mq/tube/internal/commitlog"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// queueCacheBytes of decoded batches are kept in memory, over all partitions, so
// that a batch is decoded once and not for each message and group.
const queueCacheBytes = 32 << 20

// maxCachedBatches are kept at most: batches of a message each are hardly asked for
// again, and each of them is something that the garbage collector looks at.
const maxCachedBatches = 4096

// batchCache has the batches that queues read last.
type batchCache struct {
	mu       sync.Mutex
	maxBytes int
	bytes    int
	order    *list.List // of *cachedBatch; the latest used in front
}

type cachedBatch struct {
	p        *Partition
	base     record.Offset
	messages []queue.Message
	bytes    int
	el       *list.Element
}

func newBatchCache(maxBytes int) *batchCache {
	return &batchCache{maxBytes: maxBytes, order: list.New()}
}

// find is a message in the cache, with those behind it in its batch. follows: it is
// not there, but the one before it is.
func (c *batchCache) find(p *Partition, o record.Offset) (ms []queue.Message, follows bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := sort.Search(len(p.queue.cached), func(i int) bool { return p.queue.cached[i].base > o }) - 1
	if i < 0 {
		return nil, false
	}
	b := p.queue.cached[i]
	if d := int(o - b.base); d < len(b.messages) {
		if c.order.Front() != b.el {
			c.order.MoveToFront(b.el)
		}
		return b.messages[d:], false
	}
	return nil, o == b.base+record.Offset(len(b.messages))
}

func (c *batchCache) put(p *Partition, b *cachedBatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := sort.Search(len(p.queue.cached), func(i int) bool { return p.queue.cached[i].base >= b.base })
	if i < len(p.queue.cached) && p.queue.cached[i].base == b.base {
		return
	}
	p.queue.cached = slices.Insert(p.queue.cached, i, b)
	b.p, b.el = p, c.order.PushFront(b)
	c.bytes += b.bytes
	for (c.bytes > c.maxBytes || c.order.Len() > maxCachedBatches) && c.order.Len() > 1 {
		c.drop(c.order.Back().Value.(*cachedBatch))
	}
}

func (c *batchCache) drop(b *cachedBatch) {
	c.order.Remove(b.el)
	c.bytes -= b.bytes
	b.p.queue.cached = slices.DeleteFunc(b.p.queue.cached, func(x *cachedBatch) bool { return x == b })
}

// forget drops all of a partition.
func (c *batchCache) forget(p *Partition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(p.queue.cached) > 0 {
		c.drop(p.queue.cached[0])
	}
}

// messages is a partition's log as queues read it: queue.Source.
type messages struct{ p *Partition }

// End implements queue.Source.
func (s messages) End() record.Offset { return s.p.machine.bounds.Load().HighWatermark }

// readAheadBytes are read at once by who reads on where the last batch ended.
const readAheadBytes = 1 << 20

// readStepBytes are read at once by who looks for single batches.
const readStepBytes = 256 << 10

// Messages implements queue.Source.
func (s messages) Messages(o record.Offset) ([]queue.Message, error) {
	b := s.p.machine.bounds.Load()
	if o < b.LogStart {
		return nil, fmt.Errorf("%w: %d, which is %d", queue.ErrGone, o, b.LogStart)
	}
	cache := s.p.broker.queues.cache
	ms, follows := cache.find(s.p, o)
	if ms != nil {
		return ms, nil
	}
	var all []byte
	var err error
	if follows {
		all, err = s.p.log.ReadOn(o, readAheadBytes, b.HighWatermark)
	} else {
		all, err = s.p.readOne(o, b.HighWatermark)
	}
	if errors.Is(err, commitlog.ErrOutOfRange) {
		return nil, fmt.Errorf("%w: %w", queue.ErrGone, err)
	}
	if err != nil {
		return nil, s.p.readError(err)
	}
	for len(all) > 0 {
		b, rest, err := decode(all, s.p.id.Partition, s.p.broker.limits)
		if err != nil {
			return nil, s.p.readError(err)
		}
		cache.put(s.p, b)
		if d := o - b.base; ms == nil && d >= 0 && int(d) < len(b.messages) {
			ms = b.messages[d:]
		}
		all = rest
	}
	if ms == nil {
		return nil, fmt.Errorf("%w: partition %s: nothing at offset %d", ErrStorage, s.p.id, o)
	}
	return ms, nil
}

// readOne reads the batch of an offset.
func (p *Partition) readOne(o, end record.Offset) ([]byte, error) {
	chunk, err := p.log.Read(o, 1, true, end)
	if err != nil || chunk.Release == nil {
		return nil, err
	}
	defer chunk.Release()
	return slices.Concat(chunk.Parts...), nil
}

// one is a single message.
func (s messages) one(o record.Offset) (*queue.Message, error) {
	ms, err := s.Messages(o)
	if err != nil {
		return nil, err
	}
	return &ms[0], nil
}

// decode takes the first batch of a partition off b.
func decode(b []byte, p record.Partition, lim record.Limits) (*cachedBatch, []byte, error) {
	h, err := record.ParseHeader(b)
	if err != nil {
		return nil, nil, err
	}
	if h.SizeBytes() > len(b) {
		return nil, nil, fmt.Errorf("%w: a batch of %d bytes, %d are there", record.ErrCorrupt, h.SizeBytes(), len(b))
	}
	c := &cachedBatch{base: h.BaseOffset, messages: make([]queue.Message, 0, h.Count), bytes: h.SizeBytes() + 128*int(h.Count)}
	err = record.Each(b[:h.SizeBytes()], lim, func(r record.Record) bool {
		m := queue.Message{Partition: p, Offset: r.Offset, TimestampMillis: r.Timestamp, Key: r.Key, KeyNull: r.Key == nil, Value: r.Value}
		if len(r.Headers) > 0 {
			m.Headers = make([]queue.Header, len(r.Headers))
			for i, x := range r.Headers {
				m.Headers[i] = queue.Header{Key: x.Key, Value: x.Value}
				if x.Key == queue.HeaderMessageID {
					m.ID = string(x.Value)
				}
			}
		}
		c.messages = append(c.messages, m)
		if h.Compression() != record.None { // else they are parts of b
			c.bytes += len(r.Key) + len(r.Value)
		}
		return true
	})
	return c, b[h.SizeBytes():], err
}
