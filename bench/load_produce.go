package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// sent is a record on its way, used again after its acknowledgement.
type sent struct {
	record kgo.Record
	at     time.Time
}

// sender produces through one client without allocating for each record.
type sender struct {
	m       *meter
	client  *kgo.Client
	value   []byte
	latency *histogram // nil: not wanted
	pool    sync.Pool
	counted *atomic.Bool // latencies count only while true
}

func (m *meter) newSender(client *kgo.Client) *sender {
	s := &sender{m: m, client: client, value: make([]byte, m.load.RecordBytes), counted: new(atomic.Bool)}
	fill(s.value, 1)
	s.pool.New = func() any { return new(sent) }
	return s
}

// send hands one record to the client; it blocks while the client's buffer is full.
func (s *sender) send(ctx context.Context) {
	r := s.pool.Get().(*sent)
	r.record = kgo.Record{Value: s.value}
	if s.latency != nil {
		r.at = time.Now()
	}
	s.client.Produce(ctx, &r.record, func(_ *kgo.Record, err error) {
		if err != nil {
			// What the end of the load itself cut off is no failure.
			if ctx.Err() == nil {
				s.m.fail(err)
			}
			return
		}
		if s.latency != nil && s.counted.Load() {
			s.latency.add(time.Since(r.at))
		}
		s.m.count.Add(1)
		s.pool.Put(r)
	})
}

// produce sends for the warm-up and the counted time, then lets what is under way end.
func (m *meter) produce(ctx context.Context) (*Result, error) {
	client, err := m.client(kgo.DefaultProduceTopic(m.load.Topic))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	s := m.newSender(client)
	if m.load.Kind == KindAck {
		s.latency = new(histogram)
	}
	if err := s.first(ctx); err != nil {
		return nil, err
	}

	stop := make(chan struct{})
	var late time.Duration
	var wg sync.WaitGroup
	wg.Go(func() {
		late = pace(ctx, m.load.PerSecond, m.load.Warmup+m.load.Duration+time.Second, func(int64) bool {
			select {
			case <-stop:
				return false
			default:
				s.send(ctx)
				return true
			}
		})
	})
	from := m.begin(ctx)
	s.counted.Store(true)
	m.watch(ctx, from, nil)
	to := m.read()
	s.counted.Store(false)
	close(stop)
	r := m.result(from, to)
	flush(ctx, client)
	wg.Wait()
	r.Errors = m.errors.Load()
	if s.latency != nil {
		r.Latency, r.PacerLateMS = s.latency.latency(), millis(late)
	}
	return r, nil
}

// first sends one record and waits for it: topic, connection and producer id are there then.
func (s *sender) first(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := s.client.ProduceSync(ctx, &kgo.Record{Value: s.value}).FirstErr(); err != nil {
		return fmt.Errorf("produce the first record: %w", err)
	}
	if s.m.load.Acks1 {
		return nil
	}
	// A client that finds no InitProducerId in the broker does without in silence,
	// which would be another measurement.
	id, _, err := s.client.ProducerID(ctx)
	if err == nil && id < 0 {
		err = errors.New("the broker gave no producer id")
	}
	if err != nil {
		return fmt.Errorf("idempotent producing: %w", err)
	}
	return nil
}

func flush(ctx context.Context, client *kgo.Client) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	_ = client.Flush(ctx) // what did not make it is not counted
}

// fill produces exactly Records records and fails if one of them did not arrive.
func (m *meter) fill(ctx context.Context) (*Result, error) {
	client, err := m.client(kgo.DefaultProduceTopic(m.load.Topic))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	s := m.newSender(client)
	from := m.read()
	last := time.Now()
	for i := int64(0); i < m.load.Records && ctx.Err() == nil && m.errors.Load() == 0; i++ {
		s.send(ctx)
		if i%1024 == 0 && time.Since(last) > 250*time.Millisecond {
			last = time.Now()
			m.report(Progress{float64(m.count.Load()) / float64(m.load.Records), m.count.Load()})
		}
	}
	if err := client.Flush(ctx); err != nil {
		return nil, fmt.Errorf("fill %s: %w", m.load.Topic, err)
	}
	r := m.result(from, m.read())
	if r.Records != m.load.Records {
		return nil, fmt.Errorf("fill %s: %d of %d records arrived: %s", m.load.Topic, r.Records, m.load.Records, r.FirstError)
	}
	return r, nil
}

// single has many producers, each with one record under way.
func (m *meter) single(ctx context.Context) (*Result, error) {
	producers := max(m.load.Producers, 1)
	clients := make([]*kgo.Client, 0, producers)
	defer func() {
		for _, c := range clients {
			c.Close()
		}
	}()
	for range min(max(m.load.Clients, 1), producers) {
		c, err := m.client(kgo.DefaultProduceTopic(m.load.Topic))
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
		if err := m.newSender(c).first(ctx); err != nil {
			return nil, err
		}
	}

	latency := new(histogram)
	var counted atomic.Bool
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	value := make([]byte, m.load.RecordBytes)
	fill(value, 1)
	var wg sync.WaitGroup
	for i := range producers {
		c := clients[i%len(clients)]
		wg.Go(func() {
			for runCtx.Err() == nil {
				at := time.Now()
				err := c.ProduceSync(runCtx, &kgo.Record{Value: value}).FirstErr()
				switch {
				case err == nil:
					m.count.Add(1)
					if counted.Load() {
						latency.add(time.Since(at))
					}
				case runCtx.Err() == nil:
					m.fail(err)
					sleep(runCtx, 10*time.Millisecond)
				}
			}
		})
	}
	from := m.begin(ctx)
	counted.Store(true)
	m.watch(ctx, from, nil)
	counted.Store(false)
	r := m.result(from, m.read())
	cancel()
	wg.Wait()
	r.Latency = latency.latency()
	return r, nil
}
