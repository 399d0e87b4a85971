package tube_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	tube "github.com/tube-mq/tube/client"
)

// A worker: each message of topic "orders" goes to one member of the group "billing",
// again and again until a handler returns nil or the limit of attempts is reached.
func ExampleQueue() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	p, err := tube.NewProducer(tube.ToTopic("orders"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close(ctx)
	if _, err := p.Send(ctx, &tube.Outgoing{Value: []byte("two coffees"), Key: []byte("customer-7")}); err != nil {
		fmt.Println(err)
		return
	}

	q, err := tube.Queue("example-billing", tube.OnTopic("orders"),
		tube.CreateGroup(tube.GroupSettings{MaxAttempts: 5, Backoff: []time.Duration{time.Millisecond}, From: tube.Start()}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close()
	err = q.Run(ctx, func(ctx context.Context, m *tube.Message) error {
		if m.Attempt == 1 {
			return errors.New("the till is closed") // again after the back-off
		}
		fmt.Printf("%s, attempt %d\n", m.Value, m.Attempt)
		cancel() // this example ends here; Run finishes what is in hand
		return nil
	})
	fmt.Println(err)
	// Output:
	// two coffees, attempt 2
	// <nil>
}

// By hand: take, look, say what becomes of it.
func ExampleQueueGroup_Receive() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	p, _ := tube.NewProducer(tube.ToTopic("mails"))
	defer p.Close(ctx)
	if _, err := p.Send(ctx, &tube.Outgoing{Value: []byte("hello"), ID: "mail-1"}); err != nil {
		fmt.Println(err)
		return
	}
	q, _ := tube.Queue("example-mailer", tube.OnTopic("mails"), tube.CreateGroup(tube.GroupSettings{From: tube.Start()}))
	defer q.Close()
	m, err := q.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(m.Value), m.ID)
	fmt.Println(m.Extend(ctx, time.Minute), m.Ack(ctx), m.Ack(ctx)) // twice is a success
	// Output:
	// hello mail-1
	// <nil> <nil> <nil>
}

// Many messages at a time: they go in batches, and in order.
func ExampleProducer_SendAsync() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	p, err := tube.NewProducer(tube.ToTopic("metrics"))
	if err != nil {
		fmt.Println(err)
		return
	}
	stored := 0
	for i := range 1000 {
		p.SendAsync(ctx, &tube.Outgoing{Value: fmt.Append(nil, i)}, func(_ tube.Result, err error) {
			if err == nil {
				stored++ // the callbacks of a topic come one after the other
			}
		})
	}
	fmt.Println(p.Close(ctx), stored)
	// Output: <nil> 1000
}

// A message that is handed out later.
func ExampleProducer_Send_delayed() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	p, _ := tube.NewProducer()
	defer p.Close(ctx)
	r, err := p.Send(ctx, &tube.Outgoing{Topic: "reminders", Value: []byte("call back"), ID: "call-42", Delay: 10 * time.Minute,
		Headers: map[string]string{"priority": "high"}})
	fmt.Println(r.ID, r.Duplicate, err)
	// Output: call-42 false <nil>
}

// What a handler's error may say.
func ExampleRetryAfter() {
	handler := func(ctx context.Context, m *tube.Message) error {
		switch {
		case len(m.Value) == 0:
			return tube.Dead("there is nothing in it") // never again
		case m.Headers["not-before"] != "":
			return tube.ReleaseAfter(time.Minute) // later, and it does not count
		case m.Attempt > 3:
			return fmt.Errorf("the bank does not answer: %w", tube.RetryAfter(time.Hour))
		}
		return nil
	}
	fmt.Println(handler(context.Background(), &tube.Message{}))
	fmt.Println(handler(context.Background(), &tube.Message{Value: []byte("x"), Attempt: 4}))
	// Output:
	// there is nothing in it
	// the bank does not answer: again in 1h0m0s
}

// Middleware goes around the handler of Run, the first one outermost.
func ExampleUse() {
	q, err := tube.Queue("billing", tube.OnTopic("orders"), tube.Concurrency(50), tube.Use(
		tube.Logging(slog.Default()),
		tube.Tracing(nil),            // passes traces on
		tube.Dedupe(100_000),         // drops repeats, by message id
		tube.PerKey(1),               // one of a customer at a time
		tube.Retry(3, 5*time.Second), // before the server hears of a failure
	))
	fmt.Println(q != nil, err)
	// Output: true <nil>
}

// A stream: every record, in the order of its partition, with a position that the group
// keeps.
func ExampleNewConsumer() {
	ctx := context.Background()
	c, err := tube.NewConsumer(tube.Topics("orders"), tube.Group("archive"), tube.From(tube.Start()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	for {
		records, err := c.Poll(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, r := range records {
			fmt.Println(r.Topic, r.Partition, r.Offset, string(r.Value))
		}
		if err := c.Confirm(ctx, records...); err != nil {
			fmt.Println(err)
		}
	}
}
