package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// load has the names of bench.Load.
type load struct {
	Kind        string        `json:"kind"`
	Brokers     []string      `json:"brokers"`
	Topic       string        `json:"topic"`
	RecordBytes int           `json:"record_bytes"`
	Records     int64         `json:"records"`
	Warmup      time.Duration `json:"warmup"`
	Duration    time.Duration `json:"duration"`
	ServerPID   int           `json:"server_pid"`
}

// result has the names of bench.Result.
type result struct {
	Records          int64   `json:"records"`
	Seconds          float64 `json:"seconds"`
	PerSecond        float64 `json:"per_second"`
	MiBPerSecond     float64 `json:"mib_per_second"`
	Errors           int64   `json:"errors"`
	FirstError       string  `json:"first_error,omitempty"`
	ClientCPUSeconds float64 `json:"client_cpu_seconds"`
	ServerCPUSeconds float64 `json:"server_cpu_seconds"`
}

// Of publishes that are not acknowledged, and of messages that are asked for and not
// acknowledged. More was not faster.
const (
	maxPending = 16_384
	window     = 20_000
)

func (l load) run(ctx context.Context) (*result, error) {
	nc, err := nats.Connect("nats://" + l.Brokers[0])
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer nc.Close()
	var failed atomic.Int64
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(maxPending),
		jetstream.WithPublishAsyncErrHandler(func(jetstream.JetStream, *nats.Msg, error) { failed.Add(1) }))
	if err != nil {
		return nil, err
	}
	_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: l.Topic, Subjects: []string{l.Topic}, Storage: jetstream.FileStorage})
	if err != nil {
		return nil, fmt.Errorf("create the stream: %w", err)
	}
	var r *result
	switch l.Kind {
	case "queue-send":
		r, err = l.send(ctx, js)
	case "fill":
		r, err = l.fill(js)
	case "queue-receive":
		r, err = l.receive(ctx, js)
	default:
		err = fmt.Errorf("unknown kind of load %q", l.Kind)
	}
	if err == nil {
		r.Errors += failed.Load()
		r.MiBPerSecond = r.PerSecond * float64(l.RecordBytes) / (1 << 20)
	}
	return r, err
}

func (l load) value() []byte {
	v := make([]byte, l.RecordBytes)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(v)
	return v
}

// send publishes asynchronously for the warm-up and the counted time. What is counted
// is what was published less what was not acknowledged then.
func (l load) send(ctx context.Context, js jetstream.JetStream) (*result, error) {
	value := l.value()
	var published atomic.Int64
	stop := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if _, err := js.PublishAsync(l.Topic, value, jetstream.WithStallWait(30*time.Second)); err != nil {
				ended <- err
				return
			}
			published.Add(1)
		}
	}()
	acked := func() int64 { return published.Load() - int64(js.PublishAsyncPending()) }
	time.Sleep(l.Warmup)
	m := l.begin(acked())
	select {
	case <-time.After(l.Duration):
	case <-ctx.Done():
	}
	r := m.end(acked())
	close(stop)
	if err := <-ended; err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	<-js.PublishAsyncComplete()
	return r, nil
}

func (l load) fill(js jetstream.JetStream) (*result, error) {
	value := l.value()
	m := l.begin(0)
	for range l.Records {
		if _, err := js.PublishAsync(l.Topic, value, jetstream.WithStallWait(30*time.Second)); err != nil {
			return nil, err
		}
	}
	<-js.PublishAsyncComplete()
	return m.end(l.Records), nil
}

// receive pulls all messages and acknowledges each, until the server has all
// acknowledgements.
func (l load) receive(ctx context.Context, js jetstream.JetStream) (*result, error) {
	cons, err := js.CreateConsumer(ctx, l.Topic, jetstream.ConsumerConfig{
		Durable: fmt.Sprintf("bench-%d", time.Now().UnixNano()), AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: window})
	if err != nil {
		return nil, fmt.Errorf("create the consumer: %w", err)
	}
	m := l.begin(0)
	done := make(chan struct{})
	var count, failed int64
	c, err := cons.Consume(func(msg jetstream.Msg) {
		if msg.Ack() != nil {
			failed++
		}
		if count++; count == l.Records {
			close(done)
		}
	}, jetstream.PullMaxMessages(window))
	if err != nil {
		return nil, fmt.Errorf("consume: %w", err)
	}
	defer c.Stop()
	select {
	case <-done:
	case <-time.After(l.Duration + 30*time.Second):
		return nil, fmt.Errorf("not all messages came in time")
	}
	for {
		info, err := cons.Info(ctx)
		if err != nil {
			return nil, fmt.Errorf("look at the consumer: %w", err)
		}
		if info.NumAckPending == 0 && info.NumPending == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	r := m.end(l.Records)
	r.Errors = failed
	return r, nil
}

// measuring is a reading at the beginning of the counted time.
type measuring struct {
	at             time.Time
	count          int64
	pid            int
	client, server time.Duration
}

func (l load) begin(count int64) measuring {
	return measuring{time.Now(), count, l.ServerPID, ownCPU(), cpuOf(l.ServerPID)}
}

func (m measuring) end(count int64) *result {
	r := &result{
		Records: count - m.count, Seconds: time.Since(m.at).Seconds(),
		ClientCPUSeconds: (ownCPU() - m.client).Seconds(), ServerCPUSeconds: (cpuOf(m.pid) - m.server).Seconds(),
	}
	r.PerSecond = float64(r.Records) / r.Seconds
	return r
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cpuOf is what a process has used, by /proc; 0 if that cannot be told.
func cpuOf(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}
