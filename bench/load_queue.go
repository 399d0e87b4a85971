package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// Kinds of load on queues. They need Load.HTTP, and but for send a Group.
const (
	KindQueueSend    = "queue-send"    // Producers calls of Batch messages are under way
	KindQueueReceive = "queue-receive" // Records messages are received and acknowledged
	KindQueueE2E     = "queue-e2e"     // time from send to handler, at a rate
	KindQueueDelayed = "queue-delayed" // Records messages are sent with a delay, and Due of them are awaited
)

// outgoing are messages of the load's size, which may be sent again and again.
func (m *meter) outgoing(n int) []*tubev1.OutgoingMessage {
	value := make([]byte, m.load.RecordBytes)
	fill(value, 1)
	list := make([]*tubev1.OutgoingMessage, n)
	for i := range list {
		list[i] = &tubev1.OutgoingMessage{Value: value}
	}
	return list
}

// stored counts a call's messages that are stored.
func (m *meter) stored(resp *connect.Response[tubev1.SendResponse], err error) (n int64) {
	if err != nil {
		m.fail(err)
		return 0
	}
	for _, r := range resp.Msg.Results {
		if r.Error != nil {
			m.fail(fmt.Errorf("send: %s: %s", r.Error.Code, r.Error.Message))
			continue
		}
		n++
	}
	return n
}

// queueSend has some calls under way all the time.
func (m *meter) queueSend(ctx context.Context) (*Result, error) {
	client := queueClient(m.load.HTTP)
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for range max(m.load.Producers, 1) {
		req := &tubev1.SendRequest{Topic: m.load.Topic, Messages: m.outgoing(max(m.load.Batch, 1))}
		wg.Go(func() {
			for runCtx.Err() == nil {
				// A call under way at the end is let finish.
				m.count.Add(m.stored(client.Send(ctx, connect.NewRequest(req))))
			}
		})
	}
	from := m.begin(ctx)
	m.watch(ctx, from, nil)
	r := m.result(from, m.read())
	cancel()
	wg.Wait()
	return r, nil
}

// queueReceive is timed from the opening of the stream until all messages are
// acknowledged.
func (m *meter) queueReceive(ctx context.Context) (*Result, error) {
	runCtx, cancel := context.WithTimeout(ctx, m.load.Duration+flushTimeout)
	defer cancel()
	c := m.queueConsumer(runCtx, func([]byte) {})
	done := make(chan struct{})
	c.acked = func(n int) {
		if m.count.Add(int64(n)) >= m.load.Records {
			close(done)
			c.acked = func(int) {}
		}
	}
	from := m.read()
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() { failed = c.run(runCtx, m.load.Group) })
	select {
	case <-done:
	case <-runCtx.Done():
		m.fail(fmt.Errorf("%d of %d messages were acknowledged in time", m.count.Load(), m.load.Records))
	}
	r := m.result(from, m.read())
	cancel()
	wg.Wait()
	return r, failed
}

// queueEndToEnd measures from the call of send to the handler. Each message is a
// call of its own; the moment of sending travels in the value.
func (m *meter) queueEndToEnd(ctx context.Context) (*Result, error) {
	if m.load.RecordBytes < 8 {
		return nil, errors.New("messages of less than 8 bytes cannot carry the time they were sent at")
	}
	origin := time.Now()
	latency := new(histogram)
	var countFrom atomic.Int64
	countFrom.Store(1 << 62)
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := m.queueConsumer(runCtx, func(value []byte) {
		at := int64(binary.BigEndian.Uint64(value))
		if at >= countFrom.Load() {
			latency.add(time.Since(origin) - time.Duration(at))
		}
	})
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() { failed = c.run(runCtx, m.load.Group) })

	client := queueClient(m.load.HTTP)
	var calls sync.WaitGroup
	var late time.Duration
	wg.Go(func() {
		late = pace(runCtx, m.load.PerSecond, m.load.Warmup+m.load.Duration+time.Second, func(int64) bool {
			value := make([]byte, m.load.RecordBytes)
			binary.BigEndian.PutUint64(value, uint64(time.Since(origin)))
			calls.Go(func() {
				m.stored(client.Send(ctx, connect.NewRequest(&tubev1.SendRequest{Topic: m.load.Topic, Messages: []*tubev1.OutgoingMessage{{Value: value}}})))
			})
			return true
		})
		calls.Wait()
	})
	from := m.begin(ctx)
	countFrom.Store(int64(time.Since(origin)))
	m.watch(ctx, from, nil)
	r := m.result(from, m.read())
	cancel()
	wg.Wait()
	r.Latency, r.PacerLateMS, r.Errors = latency.latency(), millis(late), m.errors.Load()
	return r, failed
}

// queueDelayed sends Records messages, Due of which come due PerSecond a second from
// dueIn on and the others in a day; then it measures how late each of the former is.
func (m *meter) queueDelayed(ctx context.Context) (*Result, error) {
	dueIn := 10*time.Second + time.Duration(m.load.Records/20_000)*time.Second // sending takes a while
	serverFirst, _ := rssOf(m.load.ServerPID)
	base := time.Now().Add(dueIn)
	if err := m.sendDelayed(ctx, base); err != nil {
		return nil, err
	}
	if left := time.Until(base); left < 3*time.Second {
		return nil, fmt.Errorf("sending took too long: the first is due in %v", left)
	}
	sleep(ctx, time.Until(base)-2*time.Second)
	pending, _ := rssOf(m.load.ServerPID)

	runCtx, cancel := context.WithTimeout(ctx, m.load.Duration+2*flushTimeout)
	defer cancel()
	late, early := new(histogram), int64(0)
	c := m.queueConsumer(runCtx, func(value []byte) {
		d := time.Since(time.UnixMilli(int64(binary.BigEndian.Uint64(value))))
		if d < 0 {
			early++
		}
		late.add(d)
	})
	done := make(chan struct{})
	c.acked = func(n int) {
		if m.count.Add(int64(n)) == m.load.Due {
			close(done)
		}
	}
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() { failed = c.run(runCtx, m.load.Group) })
	sleep(ctx, time.Until(base))
	from := m.read()
	select {
	case <-done:
	case <-runCtx.Done():
		m.fail(fmt.Errorf("%d of %d messages came", m.count.Load(), m.load.Due))
	}
	r := m.result(from, m.read())
	cancel()
	wg.Wait()
	if early > 0 {
		m.fail(fmt.Errorf("%d messages came before they were due", early))
	}
	r.Latency, r.Errors, r.ServerRSSFirst, r.ServerRSSBytes = late.latency(), m.errors.Load(), serverFirst, pending
	return r, failed
}

// sendDelayed sends the messages, four calls at a time.
func (m *meter) sendDelayed(ctx context.Context, base time.Time) error {
	client := queueClient(m.load.HTTP)
	batch := int64(max(m.load.Batch, 1))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			list := m.outgoing(int(batch))
			for {
				at := next.Add(batch) - batch
				if at >= m.load.Records || ctx.Err() != nil {
					return
				}
				n := min(batch, m.load.Records-at)
				for k, o := range list[:n] {
					due := base.Add(24 * time.Hour)
					if i := at + int64(k); i < m.load.Due {
						due = base.Add(time.Duration(float64(i) / m.load.PerSecond * float64(time.Second)))
					}
					o.Value = make([]byte, m.load.RecordBytes)
					binary.BigEndian.PutUint64(o.Value, uint64(due.UnixMilli()))
					o.When = &tubev1.OutgoingMessage_DeliverAt{DeliverAt: timestamppb.New(due)}
				}
				m.stored(client.Send(ctx, connect.NewRequest(&tubev1.SendRequest{Topic: m.load.Topic, Messages: list[:n]})))
				m.report(Progress{float64(at) / float64(m.load.Records), at})
			}
		})
	}
	wg.Wait()
	if m.errors.Load() > 0 {
		return fmt.Errorf("send delayed messages: %w", m.first)
	}
	return ctx.Err()
}
