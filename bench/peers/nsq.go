package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	gonsq "github.com/nsqio/go-nsq"
	"github.com/nsqio/nsq/nsqd"
)

// serveNSQ is nsqd -data-path=DIR. The address is that for clients and, behind a
// comma, that of its statistics.
func serveNSQ(ctx context.Context, dir string, ready func(string, int)) error {
	opts := nsqd.NewOptions()
	opts.TCPAddress, opts.HTTPAddress, opts.DataPath = "127.0.0.1:0", "127.0.0.1:0", dir
	opts.Logger = log.New(io.Discard, "", 0)
	d, err := nsqd.New(opts)
	if err != nil {
		return fmt.Errorf("make the server: %w", err)
	}
	go func() { _ = d.Main() }()
	ready("nsq://"+d.RealTCPAddr().String()+","+d.RealHTTPAddr().String(), os.Getpid())
	<-ctx.Done()
	d.Exit()
	return nil
}

const nsqChannel = "bench"

type nsq struct {
	tcp, http, topic string
	producer         *gonsq.Producer
	done             chan *gonsq.ProducerTransaction
	slots            chan struct{}
	failed           atomic.Int64
}

func openNSQ(_ context.Context, host, topic string) (broker, error) {
	b := &nsq{topic: topic, done: make(chan *gonsq.ProducerTransaction, 1024), slots: make(chan struct{}, maxPending)}
	b.tcp, b.http, _ = strings.Cut(host, ",")
	var err error
	if b.producer, err = gonsq.NewProducer(b.tcp, gonsq.NewConfig()); err != nil {
		return nil, err
	}
	b.producer.SetLoggerLevel(gonsq.LogLevelMax)
	go func() {
		for t := range b.done {
			if t.Error != nil {
				b.failed.Add(1)
			}
			<-b.slots
		}
	}()
	return b, b.producer.Ping()
}

func (b *nsq) publish(value []byte) error {
	b.slots <- struct{}{}
	return b.producer.PublishAsync(b.topic, value, b.done)
}

func (b *nsq) pending() int64 { return int64(len(b.slots)) }

func (b *nsq) flush() int64 {
	for len(b.slots) > 0 {
		time.Sleep(time.Millisecond)
	}
	return b.failed.Load()
}

// receive has as many in flight as nsqd allows.
func (b *nsq) receive(ctx context.Context, messages int64) error {
	cfg := gonsq.NewConfig()
	cfg.MaxInFlight = 2500
	c, err := gonsq.NewConsumer(b.topic, nsqChannel, cfg)
	if err != nil {
		return err
	}
	c.SetLoggerLevel(gonsq.LogLevelMax)
	var count atomic.Int64
	done := make(chan struct{})
	c.AddHandler(gonsq.HandlerFunc(func(*gonsq.Message) error { // nil finishes the message
		if count.Add(1) == messages {
			close(done)
		}
		return nil
	}))
	if err := c.ConnectToNSQD(b.tcp); err != nil {
		return err
	}
	defer c.Stop()
	select {
	case <-done:
	case <-ctx.Done():
		return errors.New("not all messages came in time")
	}
	for {
		left, err := b.left(ctx)
		if err != nil || left == 0 {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// left is how many messages are not finished.
func (b *nsq) left(ctx context.Context) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.http+"/stats?format=json&topic="+b.topic, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("look at the channel: %w", err)
	}
	defer resp.Body.Close()
	var stats struct {
		Topics []struct {
			Channels []struct {
				Depth    int64 `json:"depth"`
				InFlight int64 `json:"in_flight_count"`
			} `json:"channels"`
		} `json:"topics"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&stats); err != nil {
		return 0, fmt.Errorf("look at the channel: %w", err)
	}
	if len(stats.Topics) != 1 || len(stats.Topics[0].Channels) != 1 {
		return 0, errors.New("look at the channel: it is not there")
	}
	c := stats.Topics[0].Channels[0]
	return c.Depth + c.InFlight, nil
}

func (b *nsq) close() { b.producer.Stop() }
