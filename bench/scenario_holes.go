package bench

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// queueHoles has two groups on one topic: one is done with everything, the other holds
// every second message. It compares the node's memory before and after the second came
// to hold them, and the rates at which both receive what comes behind.
func queueHoles(ctx context.Context, e *env, o *Outcome) error {
	long := func(s *tubev1.QueueSettings) {
		s.Lease, s.MaxInFlight = durationpb.New(12*time.Hour), new(int32(1_000_000))
	}
	node, remove, err := e.queueNode(ctx, 2, long)
	if err != nil {
		return err
	}
	defer remove()
	if err := e.fill(ctx, o, node, "bench", 100, 2*e.held); err != nil {
		return err
	}
	memory := func(group string, hold bool) (int64, error) {
		l := e.queueLoad(node, KindQueueHold, "bench", 100)
		l.Group, l.Records, l.Hold = group, 2*e.held, hold
		if _, err := e.run(ctx, o, node, group, l); err != nil {
			return 0, err
		}
		sleep(ctx, 5*time.Second) // what is not needed any more goes back to the system
		rss, _ := rssOf(node.pid)
		return rss, nil
	}
	without, err := memory("group-0", false)
	if err != nil {
		return err
	}
	with, err := memory("group-1", true)
	if err != nil {
		return err
	}
	filled := 0
	behind := func(group string) func(int) (*Result, error) {
		return func(i int) (*Result, error) {
			if i == filled { // both groups receive the same
				if err := e.fill(ctx, o, node, "bench", 100, e.messages); err != nil {
					return nil, err
				}
				filled++
				settle()
			}
			l := e.queueLoad(node, KindQueueReceive, "bench", 100)
			l.Group, l.Records = group, e.messages
			return e.run(ctx, o, node, pairName(i)+", "+group, l)
		}
	}
	as, bs, err := e.pair(behind("group-0"), behind("group-1"))
	if err != nil {
		return err
	}
	o.add("held", float64(e.held), "messages")
	o.add("RSS without", float64(without)/1e6, "MB")
	o.atMost("RSS more with them", float64(with-without)/1e6, 100, "MB")
	o.ratios("nothing held", as, fmt.Sprintf("%d held", e.held), bs, 0.8)
	return nil
}
