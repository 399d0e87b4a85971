package bench

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

// KindQueueHold receives Records messages, call by call, and acknowledges them; with
// Hold only every second one, the others stay in hand: a lease that was given by a call
// outlives the connection.
const KindQueueHold = "queue-hold"

// takeTogether messages come with one call.
const takeTogether = 5000

func (m *meter) queueHold(ctx context.Context) (*Result, error) {
	runCtx, cancel := context.WithTimeout(ctx, m.load.Duration+10*flushTimeout)
	defer cancel()
	client := queueClient(m.load.HTTP)
	from := m.read()
	odd := false
	for m.count.Load() < m.load.Records {
		resp, err := client.Receive(runCtx, connect.NewRequest(&tubev1.ReceiveRequest{
			Group: m.load.Group, ConsumerId: "holder", MaxMessages: takeTogether, MaxBytes: 4 << 20, Wait: durationpb.New(10 * time.Second),
		}))
		if err != nil {
			return nil, fmt.Errorf("receive: %w", err)
		}
		if len(resp.Msg.Messages) == 0 {
			return nil, fmt.Errorf("%d of %d messages came", m.count.Load(), m.load.Records)
		}
		var done []string
		for _, q := range resp.Msg.Messages {
			if odd = !odd; odd || !m.load.Hold {
				done = append(done, q.LeaseId)
			}
		}
		if err := m.acknowledge(runCtx, client, done); err != nil {
			return nil, err
		}
		n := m.count.Add(int64(len(resp.Msg.Messages)))
		m.report(Progress{float64(n) / float64(m.load.Records), n})
	}
	return m.result(from, m.read()), nil
}

// acknowledge settles leases of a group.
func (m *meter) acknowledge(ctx context.Context, client tubev1connect.QueueServiceClient, leases []string) error {
	resp, err := client.Acknowledge(ctx, connect.NewRequest(&tubev1.AcknowledgeRequest{Group: m.load.Group, LeaseIds: leases}))
	if err != nil {
		return fmt.Errorf("acknowledge: %w", err)
	}
	for _, r := range resp.Msg.Results {
		if r.Error != nil {
			m.fail(fmt.Errorf("acknowledge: %s", r.Error.Message))
		}
	}
	return nil
}
