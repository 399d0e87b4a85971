package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// consumer is a client that reads all partitions of the topic from the start,
// in no group.
func (m *meter) consumer(from kgo.Offset) (*kgo.Client, error) {
	return m.client(kgo.ConsumeTopics(m.load.Topic), kgo.ConsumeResetOffset(from), kgo.FetchMaxWait(500*time.Millisecond))
}

// poll counts what one poll brings and hands each record to each, which may be nil.
func (m *meter) poll(ctx context.Context, c *kgo.Client, each func(*kgo.Record)) (records int64) {
	fetches := c.PollFetches(ctx)
	if ctx.Err() != nil {
		return 0
	}
	fetches.EachError(func(topic string, partition int32, err error) {
		if !errors.Is(err, context.Canceled) {
			m.fail(fmt.Errorf("fetch %s-%d: %w", topic, partition, err))
		}
	})
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		records += int64(len(p.Records))
		if each != nil {
			for _, r := range p.Records {
				each(r)
			}
		}
	})
	m.count.Add(records)
	return records
}

// consume reads the topic in passes of Records records each, every pass with a
// new client from the start, until the counted time is over.
func (m *meter) consume(ctx context.Context) (*Result, error) {
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var failed error
	over := make(chan struct{})
	wg.Go(func() {
		defer close(over)
		for runCtx.Err() == nil {
			c, err := m.consumer(kgo.NewOffset().AtStart())
			if err != nil {
				failed = err
				return
			}
			for left := m.load.Records; runCtx.Err() == nil && (m.load.Records == 0 || left > 0); {
				left -= m.poll(runCtx, c, nil)
			}
			c.Close()
		}
	})
	from := m.begin(ctx)
	m.watch(ctx, from, over)
	r := m.result(from, m.read())
	cancel()
	wg.Wait()
	return r, failed
}

// both produces at a rate and consumes with a second client. The lag is what the
// reader still needs when the last record has been acknowledged.
func (m *meter) both(ctx context.Context) (*Result, error) {
	reader, err := m.consumer(kgo.NewOffset().AtStart())
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	producing := &meter{load: m.load, report: m.report}
	client, err := producing.client(kgo.DefaultProduceTopic(m.load.Topic))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	s := producing.newSender(client)
	if err := s.first(ctx); err != nil {
		return nil, err
	}

	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	var lastRead atomic.Int64 // UnixNano
	var wg sync.WaitGroup
	wg.Go(func() {
		for runCtx.Err() == nil {
			if m.poll(runCtx, reader, nil) > 0 {
				lastRead.Store(time.Now().UnixNano())
			}
		}
	})
	from := producing.begin(ctx)
	late := pace(ctx, m.load.PerSecond, m.load.Duration, func(i int64) bool {
		if i%65536 == 0 {
			m.report(Progress{min(1, float64(time.Since(from.at))/float64(m.load.Duration)), producing.count.Load()})
		}
		s.send(ctx)
		return true
	})
	flush(ctx, client)
	r := producing.result(from, producing.read())
	lastAck := time.Now()

	want := producing.count.Load() + 1 // and the first
	deadline := time.Now().Add(flushTimeout)
	for m.count.Load() < want && time.Now().Before(deadline) && ctx.Err() == nil {
		sleep(ctx, time.Millisecond)
	}
	cancel()
	wg.Wait()
	if got := m.count.Load(); got != want {
		m.fail(fmt.Errorf("%d records acknowledged, %d read", want, got))
	}
	r.LagEndMS = max(0, millis(time.Unix(0, lastRead.Load()).Sub(lastAck)))
	r.PacerLateMS = millis(late)
	r.Errors += m.errors.Load()
	if r.FirstError == "" && m.first != nil {
		r.FirstError = m.first.Error()
	}
	return r, nil
}

// endToEnd measures from the call of produce to the return of the poll that
// brings the record. The moment of sending travels in the value.
func (m *meter) endToEnd(ctx context.Context) (*Result, error) {
	if m.load.RecordBytes < 8 {
		return nil, errors.New("records of less than 8 bytes cannot carry the time they were sent at")
	}
	reader, err := m.consumer(kgo.NewOffset().AtEnd())
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	client, err := m.client(kgo.DefaultProduceTopic(m.load.Topic))
	if err != nil {
		return nil, err
	}
	defer client.Close()

	origin := time.Now()
	latency := new(histogram)
	var countFrom atomic.Int64 // records sent after this, in nanoseconds since origin, are counted
	countFrom.Store(1 << 62)
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		for runCtx.Err() == nil {
			m.poll(runCtx, reader, func(r *kgo.Record) {
				if len(r.Value) < 8 {
					return
				}
				at := int64(binary.BigEndian.Uint64(r.Value))
				if at >= countFrom.Load() {
					latency.add(time.Since(origin) - time.Duration(at))
				}
			})
		}
	})

	var sentCount atomic.Int64
	stop := make(chan struct{})
	late := make(chan time.Duration, 1)
	go func() {
		late <- pace(ctx, m.load.PerSecond, m.load.Warmup+m.load.Duration+time.Second, func(int64) bool {
			select {
			case <-stop:
				return false
			default:
			}
			value := make([]byte, m.load.RecordBytes)
			binary.BigEndian.PutUint64(value, uint64(time.Since(origin)))
			sentCount.Add(1)
			client.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
				if err != nil && ctx.Err() == nil {
					m.fail(err)
				}
			})
			return true
		})
	}()
	from := m.begin(ctx)
	countFrom.Store(int64(time.Since(origin)))
	m.watch(ctx, from, nil)
	r := m.result(from, m.read())
	close(stop)
	r.PacerLateMS = millis(<-late)
	flush(ctx, client)
	// The last records are still on their way to the reader.
	for deadline := time.Now().Add(2 * time.Second); m.count.Load() < sentCount.Load() && time.Now().Before(deadline) && ctx.Err() == nil; {
		sleep(ctx, time.Millisecond)
	}
	cancel()
	wg.Wait()
	r.Latency, r.Errors = latency.latency(), m.errors.Load()
	return r, nil
}
