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
	// alwaysPending is for a broker that syncs each message by itself: as many as are
	// read at once are answered at once, so with many the first answer takes minutes.
	alwaysPending = 256
)

// broker is a connection to one of the brokers, for one topic or queue.
type broker interface {
	// publish sends a message. It waits while maxPending are not acknowledged.
	publish(value []byte) error
	// pending is how many are not acknowledged.
	pending() int64
	// flush waits until all are acknowledged and says how many were refused.
	flush() (failed int64)
	// receive receives so many messages and acknowledges each; it returns when the
	// broker has the acknowledgements.
	receive(ctx context.Context, messages int64) error
	close()
}

// openers by the scheme of the address.
var openers = map[string]func(ctx context.Context, host, topic string) (broker, error){
	"nats": func(ctx context.Context, host, topic string) (broker, error) {
		return openJetStream(ctx, host, topic, maxPending)
	},
	"nats-always": func(ctx context.Context, host, topic string) (broker, error) {
		return openJetStream(ctx, host, topic, alwaysPending)
	},
	"nsq":  openNSQ,
	"amqp": openRabbitMQ,
}

func (l load) run(ctx context.Context) (*result, error) {
	scheme, host, _ := strings.Cut(l.Brokers[0], "://")
	open := openers[scheme]
	if open == nil {
		return nil, fmt.Errorf("no client for %q", l.Brokers[0])
	}
	b, err := open(ctx, host, l.Topic)
	if err != nil {
		return nil, err
	}
	defer b.close()
	var r *result
	switch l.Kind {
	case "queue-send":
		r, err = l.send(ctx, b)
	case "fill":
		r, err = l.fill(b)
	case "queue-receive":
		r, err = l.receive(ctx, b)
	default:
		err = fmt.Errorf("unknown kind of load %q", l.Kind)
	}
	if err == nil {
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

// send publishes for the warm-up and the counted time. What is counted is what was
// published less what was not acknowledged then.
func (l load) send(ctx context.Context, b broker) (*result, error) {
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
			if err := b.publish(value); err != nil {
				ended <- err
				return
			}
			published.Add(1)
		}
	}()
	acked := func() int64 { return published.Load() - b.pending() }
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
	r.Errors = b.flush()
	return r, nil
}

func (l load) fill(b broker) (*result, error) {
	value := l.value()
	m := l.begin(0)
	for range l.Records {
		if err := b.publish(value); err != nil {
			return nil, fmt.Errorf("publish: %w", err)
		}
	}
	failed := b.flush()
	r := m.end(l.Records)
	r.Errors = failed
	return r, nil
}

func (l load) receive(ctx context.Context, b broker) (*result, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Duration+30*time.Second)
	defer cancel()
	m := l.begin(0)
	if err := b.receive(ctx, l.Records); err != nil {
		return nil, fmt.Errorf("receive: %w", err)
	}
	return m.end(l.Records), nil
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
