package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// serveJetStream is nats-server -js -sd DIR, with sync_interval: always or without.
func serveJetStream(always bool) func(context.Context, string, func(string, int)) error {
	return func(ctx context.Context, dir string, ready func(string, int)) error {
		s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoSigs: true, SyncAlways: always})
		if err != nil {
			return fmt.Errorf("make the server: %w", err)
		}
		s.Start()
		if !s.ReadyForConnections(30 * time.Second) {
			return errors.New("the server was not ready in time")
		}
		scheme := "nats://"
		if always {
			scheme = "nats-always://"
		}
		ready(scheme+s.Addr().String(), os.Getpid())
		<-ctx.Done()
		s.Shutdown()
		s.WaitForShutdown()
		return nil
	}
}

type jetStream struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	topic  string
	failed atomic.Int64
}

// openJetStream opens it with so many publishes under way.
func openJetStream(ctx context.Context, host, topic string, underWay int) (broker, error) {
	nc, err := nats.Connect("nats://" + host)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	b := &jetStream{nc: nc, topic: topic}
	b.js, err = jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(underWay),
		jetstream.WithPublishAsyncErrHandler(func(jetstream.JetStream, *nats.Msg, error) { b.failed.Add(1) }))
	if err != nil {
		return nil, err
	}
	_, err = b.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: topic, Subjects: []string{topic}, Storage: jetstream.FileStorage})
	if err != nil {
		return nil, fmt.Errorf("create the stream: %w", err)
	}
	return b, nil
}

func (b *jetStream) publish(value []byte) error {
	_, err := b.js.PublishAsync(b.topic, value, jetstream.WithStallWait(30*time.Second))
	return err
}

func (b *jetStream) pending() int64 { return int64(b.js.PublishAsyncPending()) }

func (b *jetStream) flush() int64 {
	<-b.js.PublishAsyncComplete()
	return b.failed.Load()
}

// receive pulls the messages.
func (b *jetStream) receive(ctx context.Context, messages int64) error {
	cons, err := b.js.CreateConsumer(ctx, b.topic, jetstream.ConsumerConfig{
		Durable: fmt.Sprintf("bench-%d", time.Now().UnixNano()), AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: window})
	if err != nil {
		return fmt.Errorf("create the consumer: %w", err)
	}
	done := make(chan error, 1)
	count := int64(0)
	c, err := cons.Consume(func(msg jetstream.Msg) {
		if err := msg.Ack(); err != nil && len(done) == 0 {
			done <- err
		}
		if count++; count == messages {
			done <- nil
		}
	}, jetstream.PullMaxMessages(window))
	if err != nil {
		return err
	}
	defer c.Stop()
	select {
	case err := <-done:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return errors.New("not all messages came in time")
	}
	for {
		info, err := cons.Info(ctx)
		if err != nil {
			return fmt.Errorf("look at the consumer: %w", err)
		}
		if info.NumAckPending == 0 && info.NumPending == 0 {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}

func (b *jetStream) close() { b.nc.Close() }
