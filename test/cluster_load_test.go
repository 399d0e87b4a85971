package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// load is what runs while a cluster suffers: writers that note what was
// acknowledged, and readers that follow each partition.
type load struct {
	c          *cluster
	topic      string
	partitions int
	book       *ledger
	stop       context.CancelFunc
	given      context.Context // ends when a test has failed and nothing is waited for
	wg         sync.WaitGroup
	watchers   []*watcher

	mu    sync.Mutex
	waits []time.Duration // from handing a record over to its acknowledgement; guarded by mu
}

// loadConfig says how much.
type loadConfig struct {
	writers  int
	every    time.Duration // between two bundles of a writer
	bundle   int           // records in one
	watchers int
}

// lightLoad leaves most of a small machine to the nodes.
var lightLoad = loadConfig{writers: 3, every: 20 * time.Millisecond, bundle: 10, watchers: 2}

// startLoad begins writing and following a topic that is there.
func (c *cluster) startLoad(topic string, partitions int, how loadConfig) *load {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	given, giveUp := context.WithCancel(context.Background())
	l := &load{c: c, topic: topic, partitions: partitions, book: newLedger(), stop: cancel, given: given}
	c.t.Cleanup(func() { cancel(); giveUp(); l.wg.Wait() })
	for w := range how.writers {
		l.wg.Go(func() { l.write(ctx, uint32(w+1), how) })
	}
	for range how.watchers {
		w := newWatcher(c, topic)
		l.watchers = append(l.watchers, w)
		l.wg.Go(func() { w.run(ctx) })
	}
	return l
}

// write sends numbered messages through an idempotent client until the context
// ends, then waits for what is under way.
func (l *load) write(ctx context.Context, writer uint32, how loadConfig) {
	t := l.c.t
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(l.c.all()...), kgo.DefaultProduceTopic(l.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxBufferedRecords(5000), kgo.ProducerLinger(time.Millisecond), kgo.RetryTimeout(time.Minute), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RequestTimeoutOverhead(5*time.Second))
	if err != nil {
		t.Error(err)
		return
	}
	defer cl.Close()
	for {
		if _, _, err := cl.ProducerID(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	random := rand.New(rand.NewPCG(uint64(writer), 99))
	tick := time.NewTicker(how.every)
	defer tick.Stop()
	for number := uint64(0); ctx.Err() == nil; {
		for range how.bundle {
			s, at := sent{writer, number}, time.Now()
			r := &kgo.Record{Partition: int32(random.IntN(l.partitions)), Value: message(writer, number)}
			number++
			cl.Produce(l.given, r, func(r *kgo.Record, err error) {
				if l.given.Err() != nil {
					return
				}
				var eof *kgo.ErrFirstReadEOF
				if errors.As(err, &eof) {
					return // a node died at a connection's first request: the client takes it for a wrong protocol
				}
				if err != nil {
					t.Errorf("writer %d: message %d for partition %d: %v", s.writer, s.number, r.Partition, err)
					return
				}
				l.book.ack(r, s)
				l.took(time.Since(at))
			})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	flushCtx, cancel := context.WithTimeout(l.given, time.Minute)
	defer cancel()
	if err := cl.Flush(flushCtx); err != nil && l.given.Err() == nil {
		t.Errorf("writer %d: flush: %v", writer, err)
	}
}

func (l *load) took(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits = append(l.waits, d)
}

// latencies returns how long acknowledgements took since the last call.
func (l *load) latencies() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.waits
	l.waits = nil
	return out
}

// flowing waits until more has been acknowledged.
func (l *load) flowing(records int) {
	l.c.t.Helper()
	before := l.book.count()
	eventually(l.c.t, 60*time.Second, func() error {
		if now := l.book.count(); now < before+records {
			return fmt.Errorf("%d records were acknowledged, waiting for %d", now-before, records)
		}
		return nil
	})
}

// finish ends the load and compares what was acknowledged, what the followers of
// the partitions saw, and what two full reads find.
func (l *load) finish() {
	t := l.c.t
	t.Helper()
	l.stop()
	l.wg.Wait()
	l.check()
	t.Logf("%d records acknowledged", l.book.count())
}

func (l *load) check() {
	t := l.c.t
	t.Helper()
	stored := l.c.readAll(l.topic)
	l.book.check(t, stored)
	for _, w := range l.watchers {
		w.check(t, stored)
	}
	again := l.c.readAll(l.topic)
	for p, records := range stored {
		if len(again[p]) < len(records) {
			t.Errorf("partition %d: %d records at the second reading, %d at the first", p, len(again[p]), len(records))
			continue
		}
		for i, r := range records {
			if string(again[p][i].Value) != string(r.Value) || again[p][i].Offset != r.Offset {
				t.Errorf("partition %d offset %d: two readings differ", p, r.Offset)
				break
			}
		}
	}
}

// readAll reads a topic to its present end, by way of any node.
func (c *cluster) readAll(topic string, opts ...kgo.Opt) map[int32][]*kgo.Record {
	c.t.Helper()
	for _, id := range c.order {
		if c.nodes[id].up() {
			return c.nodes[id].readAll(topic, opts...)
		}
	}
	c.t.Fatal("no node runs")
	return nil
}

// watcher follows all partitions of a topic. It notes what it saw at each offset,
// and that the high watermark does not go back.
type watcher struct {
	cl *kgo.Client

	mu    sync.Mutex
	saw   map[place]sent
	high  map[int32]int64
	wrong []string
}

func newWatcher(c *cluster, topic string) *watcher {
	c.t.Helper()
	return &watcher{
		saw: map[place]sent{}, high: map[int32]int64{},
		cl: c.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(500*time.Millisecond),
			kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond })),
	}
}

func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := w.cl.PollFetches(ctx)
		w.mu.Lock()
		for _, e := range fetches.Errors() {
			var lost *kgo.ErrDataLoss
			if errors.As(e.Err, &lost) || errors.Is(e.Err, kerr.OffsetOutOfRange) {
				w.wrong = append(w.wrong, fmt.Sprintf("a reader of partition %d was told: %v", e.Partition, e.Err))
			}
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if p.Err == nil && p.HighWatermark >= 0 {
				if p.HighWatermark < w.high[p.Partition] {
					w.wrong = append(w.wrong, fmt.Sprintf("partition %d: the high watermark went back from %d to %d", p.Partition, w.high[p.Partition], p.HighWatermark))
				}
				w.high[p.Partition] = max(w.high[p.Partition], p.HighWatermark)
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			writer, number, err := parseMessage(r.Value)
			if err != nil {
				w.wrong = append(w.wrong, fmt.Sprintf("a reader got at partition %d offset %d: %v", r.Partition, r.Offset, err))
				return
			}
			at := place{r.Partition, r.Offset}
			if old, ok := w.saw[at]; ok && old != (sent{writer, number}) {
				w.wrong = append(w.wrong, fmt.Sprintf("partition %d offset %d was message %v, then %v", at.partition, at.offset, old, sent{writer, number}))
			}
			w.saw[at] = sent{writer, number}
		})
		w.mu.Unlock()
	}
}

// check compares with everything that is stored: what was seen once stays.
func (w *watcher) check(t *testing.T, stored map[int32][]*kgo.Record) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	wrong := slices.Clone(w.wrong)
	for at, s := range w.saw {
		records := stored[at.partition]
		if at.offset >= int64(len(records)) {
			wrong = append(wrong, fmt.Sprintf("message %v was read at partition %d offset %d and is gone", s, at.partition, at.offset))
			continue
		}
		if writer, number, err := parseMessage(records[at.offset].Value); err != nil || (sent{writer, number}) != s {
			wrong = append(wrong, fmt.Sprintf("partition %d offset %d: was read as message %v, stored is message %d of writer %d", at.partition, at.offset, s, number, writer))
		}
	}
	for _, p := range wrong[:min(len(wrong), 10)] {
		t.Error(p)
	}
}

// percentile of durations; they are sorted by it.
func percentile(d []time.Duration, p float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(len(d)-1, int(p*float64(len(d))))].Round(100 * time.Microsecond)
}

// prober asks, without any client's patience, when a partition takes writes.
type prober struct {
	cl    *kgo.Client
	topic string
	acked atomic.Int64
}

// checkProbe compares how many writes of a prober are there with how many were
// acknowledged; those that failed may be there.
func (c *cluster) checkProbe(topic string, p *prober) {
	c.t.Helper()
	n := 0
	for _, records := range c.readAll(topic) {
		n += len(records)
	}
	if int64(n) < p.acked.Load() {
		c.t.Errorf("%d records are in %s, %d were acknowledged", n, topic, p.acked.Load())
	}
}

func (c *cluster) prober(topic string) *prober {
	return &prober{cl: c.client(kgo.RequestRetries(0), kgo.DialTimeout(time.Second)), topic: topic}
}

// write sends one record to the node that is said to lead.
func (p *prober) write(ctx context.Context, c *cluster, id int, partition int32) error {
	leader, err := p.leader(ctx, c, id, partition)
	if err != nil {
		return err
	}
	return p.writeTo(ctx, leader, partition)
}

// leader asks one node, by a connection that is kept.
func (p *prober) leader(ctx context.Context, _ *cluster, id int, partition int32) (int, error) {
	req := kmsg.NewPtrMetadataRequest()
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = &p.topic
	req.Topics = append(req.Topics, mt)
	r, err := p.cl.Broker(id).Request(ctx, req)
	if err != nil {
		return -1, err
	}
	for _, tp := range r.(*kmsg.MetadataResponse).Topics {
		for _, pp := range tp.Partitions {
			if pp.Partition == partition && pp.Leader >= 0 {
				return int(pp.Leader), nil
			}
		}
	}
	return -1, kerr.LeaderNotAvailable
}

// writeTo sends one record to a node, whoever leads.
func (p *prober) writeTo(ctx context.Context, id int, partition int32) error {
	req := kmsg.NewPtrProduceRequest()
	req.Version = 9
	req.Acks, req.TimeoutMillis = -1, 5000
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, oneRecordBatch()
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = p.topic
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	r, err := p.cl.Broker(id).Request(ctx, versioned{req, 9})
	if err != nil {
		return err
	}
	topics := r.(*kmsg.ProduceResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return errors.New("an answer without a partition")
	}
	code := topics[0].Partitions[0].ErrorCode
	if code == 0 {
		p.acked.Add(1)
	}
	return kerr.ErrorForCode(code)
}

// versioned is a request of no newer than a version: later ones name topics by id.
type versioned struct {
	kmsg.Request
	max int16
}

func (v versioned) MaxVersion() int16 { return v.max }

// endAt asks one node for the end of a partition.
func endAt(ctx context.Context, cl *kgo.Client, id int, topic string, partition int32) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = partition, -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	r, err := cl.Broker(id).Request(ctx, req)
	if err != nil {
		return -1, err
	}
	topics := r.(*kmsg.ListOffsetsResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return -1, errors.New("an answer without a partition")
	}
	return topics[0].Partitions[0].Offset, kerr.ErrorForCode(topics[0].Partitions[0].ErrorCode)
}
