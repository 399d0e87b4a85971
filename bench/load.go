package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Kinds of load.
const (
	KindProduce = "produce" // as fast as the client can, or at a rate
	KindSingle  = "single"  // each producer waits for its record before the next
	KindConsume = "consume" // everything in the topic, again and again
	KindBoth    = "both"    // produce at a rate, consume at the same time
	KindE2E     = "e2e"     // time from produce to consume, at a rate
	KindAck     = "ack"     // time from produce to acknowledgement, at a rate
	KindFill    = "fill"    // so many records, then stop
	KindMembers = "members" // idle group members with heartbeats
	KindJoins   = "joins"   // one more member of a consumer group, again and again
)

// Load is one piece of work against one broker.
type Load struct {
	Kind        string        `json:"kind"`
	Brokers     []string      `json:"brokers"`
	Topic       string        `json:"topic"`
	RecordBytes int           `json:"record_bytes"`
	PerSecond   float64       `json:"per_second,omitempty"` // records; 0 is as many as possible
	Records     int64         `json:"records,omitempty"`    // fill: how many; consume: how many a pass, 0 for no end; joins: how often
	Warmup      time.Duration `json:"warmup"`               // not counted
	Duration    time.Duration `json:"duration"`             // counted
	Linger      time.Duration `json:"linger"`
	Producers   int           `json:"producers,omitempty"`   // single: goroutines
	Clients     int           `json:"clients,omitempty"`     // single: 1, or one for each producer
	RoundRobin  bool          `json:"round_robin,omitempty"` // spread evenly, record by record
	Acks1       bool          `json:"acks1,omitempty"`       // acks=1 and not idempotent
	Members     *Members      `json:"members,omitempty"`
	ServerPID   int           `json:"server_pid,omitempty"` // 0: not on this machine

	// Of queues. A peer's load is given the same.
	HTTP       string `json:"http,omitempty"`        // address of the queue services
	Group      string `json:"group,omitempty"`       // what is consumed
	Batch      int    `json:"batch,omitempty"`       // messages in one call
	Due        int64  `json:"due,omitempty"`         // delayed: how many come due soon
	SingleAcks bool   `json:"single_acks,omitempty"` // a frame for each acknowledgement
	Hold       bool   `json:"hold,omitempty"`        // queue-hold: every second message is not acknowledged
}

// Result is what a load measured, over the counted time alone.
type Result struct {
	Records      int64    `json:"records"`
	Seconds      float64  `json:"seconds"`
	PerSecond    float64  `json:"per_second"`
	MiBPerSecond float64  `json:"mib_per_second"`
	Latency      *Latency `json:"latency,omitempty"`
	PacerLateMS  float64  `json:"pacer_late_ms,omitempty"` // how late the sender itself was, at most
	LagEndMS     float64  `json:"lag_end_ms,omitempty"`    // both: from the last acknowledgement to the last record read
	Errors       int64    `json:"errors"`
	FirstError   string   `json:"first_error,omitempty"`

	ClientCPUSeconds   float64 `json:"client_cpu_seconds"`
	ServerCPUSeconds   float64 `json:"server_cpu_seconds"`
	ClientRSSPeakBytes int64   `json:"client_rss_peak_bytes"`
	ServerRSSPeakBytes int64   `json:"server_rss_peak_bytes"`
	ServerRSSBytes     int64   `json:"server_rss_bytes"`        // at the end
	ServerRSSFirst     int64   `json:"server_rss_first_bytes"`  // at the beginning
	ReadyMembers       int     `json:"ready_members,omitempty"` // members
}

// flushTimeout is the longest wait for what is still on its way at the end of a load.
const flushTimeout = 30 * time.Second

// meter counts for one load.
type meter struct {
	load   Load
	report func(Progress)

	count  atomic.Int64
	errors atomic.Int64

	mu    sync.Mutex
	first error // guarded by mu
}

// Progress is what a load says while it runs.
type Progress struct {
	Done    float64 `json:"done"` // 0 to 1
	Records int64   `json:"records"`
}

// Run does the work and reports what it measured. report, which may be nil, is
// called a few times a second. The result is an error only when the work could
// not be done at all; single failures are counted.
func (l Load) Run(ctx context.Context, report func(Progress)) (*Result, error) {
	if report == nil {
		report = func(Progress) {}
	}
	if len(l.Brokers) == 0 {
		return nil, errors.New("no broker to connect to")
	}
	if l.RecordBytes < 1 || l.RecordBytes > 1<<30 {
		return nil, fmt.Errorf("record size %d is not from 1 to %d", l.RecordBytes, 1<<30)
	}
	m := &meter{load: l, report: report}
	switch l.Kind {
	case KindProduce, KindAck:
		return m.produce(ctx)
	case KindFill:
		return m.fill(ctx)
	case KindSingle:
		return m.single(ctx)
	case KindConsume:
		return m.consume(ctx)
	case KindBoth:
		return m.both(ctx)
	case KindE2E:
		return m.endToEnd(ctx)
	case KindMembers:
		return m.members(ctx)
	case KindJoins:
		return m.joins(ctx)
	case KindQueueSend:
		return m.queueSend(ctx)
	case KindQueueReceive:
		return m.queueReceive(ctx)
	case KindQueueHold:
		return m.queueHold(ctx)
	case KindQueueE2E:
		return m.queueEndToEnd(ctx)
	case KindQueueDelayed:
		return m.queueDelayed(ctx)
	}
	return nil, fmt.Errorf("unknown kind of load %q", l.Kind)
}

// client is what every load connects with: idempotent, acks=all, no compression.
func (m *meter) client(opts ...kgo.Opt) (*kgo.Client, error) {
	base := []kgo.Opt{
		kgo.SeedBrokers(m.load.Brokers...),
		kgo.ClientID("tube-bench"),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(m.load.Linger),
		kgo.AllowAutoTopicCreation(),
		// Enough that the client is never short of work while requests are under way.
		kgo.MaxBufferedRecords(200_000),
		kgo.MaxBufferedBytes(64 << 20),
		kgo.RecordDeliveryTimeout(2 * time.Minute),
	}
	if m.load.RoundRobin {
		base = append(base, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	}
	if m.load.Acks1 {
		base = append(base, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	}
	return kgo.NewClient(append(base, opts...)...)
}

func (m *meter) fail(err error) {
	m.errors.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.first == nil {
		m.first = err
	}
}

// reading is the state of all counters at one moment.
type reading struct {
	at             time.Time
	count          int64
	client, server time.Duration
}

func (m *meter) read() reading {
	return reading{time.Now(), m.count.Load(), cpuOf(os.Getpid()), cpuOf(m.load.ServerPID)}
}

// begin waits for the end of the warm-up and takes the first reading.
func (m *meter) begin(ctx context.Context) reading {
	sleep(ctx, m.load.Warmup)
	resetPeak(os.Getpid())
	resetPeak(m.load.ServerPID)
	return m.read()
}

// watch reports progress for the counted time, or until the work is over.
func (m *meter) watch(ctx context.Context, from reading, over <-chan struct{}) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(m.load.Duration)
	defer end.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-over:
			return
		case <-end.C:
			return
		case <-tick.C:
			m.report(Progress{min(1, float64(time.Since(from.at))/float64(m.load.Duration)), m.count.Load() - from.count})
		}
	}
}

// result is what happened between two readings.
func (m *meter) result(from, to reading) *Result {
	r := &Result{
		Records: to.count - from.count, Seconds: to.at.Sub(from.at).Seconds(), Errors: m.errors.Load(),
		ClientCPUSeconds: (to.client - from.client).Seconds(), ServerCPUSeconds: (to.server - from.server).Seconds(),
	}
	if r.Seconds > 0 {
		r.PerSecond = float64(r.Records) / r.Seconds
		r.MiBPerSecond = r.PerSecond * float64(m.load.RecordBytes) / (1 << 20)
	}
	_, r.ClientRSSPeakBytes = rssOf(os.Getpid())
	r.ServerRSSBytes, r.ServerRSSPeakBytes = rssOf(m.load.ServerPID)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.first != nil {
		r.FirstError = m.first.Error()
	}
	return r
}

// sleep waits for d or the end of the context.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
