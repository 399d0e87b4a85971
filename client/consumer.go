package tube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type consumerConfig struct {
	brokers []string
	group   string
	topics  []string
	trust   bool
	most    int
	opts    []kgo.Opt
}

// Brokers names the Kafka addresses of nodes, host:port. Default: TUBE_KAFKA (several
// with commas), else 127.0.0.1:9092.
func Brokers(addresses ...string) ConsumerOption {
	return consumerOption(func(c *consumerConfig) error { c.brokers = addresses; return nil })
}

// Topics are those to be read.
func Topics(topics ...string) ConsumerOption {
	return consumerOption(func(c *consumerConfig) error { c.topics = append(c.topics, topics...); return nil })
}

// Group shares the partitions with the other consumers of a stream group and keeps the
// positions with the server. Default: none; the consumer reads all partitions, and
// keeps no positions.
func Group(name string) ConsumerOption {
	return consumerOption(func(c *consumerConfig) error { c.group = name; return nil })
}

// From is where a partition is read from of which the group has no position. Default:
// End, with what comes from now on.
func From(p Position) ConsumerOption {
	return consumerOption(func(c *consumerConfig) error {
		offset := kgo.NewOffset().AtEnd()
		switch {
		case p.at.GetStart():
			offset = kgo.NewOffset().AtStart()
		case p.at.GetTime() != nil:
			offset = kgo.NewOffset().AfterMilli(p.at.GetTime().AsTime().UnixMilli())
		}
		c.opts = append(c.opts, kgo.ConsumeResetOffset(offset))
		return nil
	})
}

// Trust confirms records as they are handed out: fast, and what is in hand when the
// process dies does not come again. Without it they are confirmed by Confirm.
func Trust() ConsumerOption {
	return consumerOption(func(c *consumerConfig) error { c.trust = true; return nil })
}

// PollSize is how many records Poll returns at the most; default 500.
func PollSize(n int) ConsumerOption {
	return consumerOption(func(c *consumerConfig) error { c.most = n; return within("PollSize", n, 1, 1_000_000) })
}

// Kafka passes options on to the Kafka client that does the work: TLS, SASL, sizes. They
// are franz-go's, and not part of what this package promises.
func Kafka(opts ...kgo.Opt) ConsumerOption {
	return consumerOption(func(c *consumerConfig) error { c.opts = append(c.opts, opts...); return nil })
}

// Record is one message of a stream.
type Record struct {
	Topic      string
	Partition  int32
	Offset     int64
	Key, Value []byte
	Headers    []Header
	Time       time.Time

	epoch int32
}

// Consumer reads topics as streams. Make it with NewConsumer, end it with Close. One
// goroutine polls at a time.
type Consumer struct {
	client *kgo.Client
	cfg    consumerConfig
}

// NewConsumer makes a consumer. It does not wait for a connection.
func NewConsumer(opts ...ConsumerOption) (*Consumer, error) {
	c := consumerConfig{most: 500, opts: []kgo.Opt{kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd())}}
	for _, o := range opts {
		if err := o.applyConsumer(&c); err != nil {
			return nil, err
		}
	}
	if len(c.brokers) == 0 {
		c.brokers = fromEnv("TUBE_KAFKA", defaultKafka)
	}
	if len(c.topics) == 0 {
		return nil, errors.New("NewConsumer: Topics are missing")
	}
	if c.trust && c.group == "" {
		return nil, errors.New("NewConsumer: Trust without a Group, which positions are kept for")
	}
	all := []kgo.Opt{kgo.SeedBrokers(c.brokers...), kgo.ConsumeTopics(c.topics...)}
	if c.group != "" {
		all = append(all, kgo.ConsumerGroup(c.group), kgo.BlockRebalanceOnPoll())
		if c.trust {
			all = append(all, kgo.GreedyAutoCommit())
		} else {
			all = append(all, kgo.DisableAutoCommit())
		}
	}
	client, err := kgo.NewClient(append(all, c.opts...)...)
	if err != nil {
		return nil, fmt.Errorf("NewConsumer: %w", err)
	}
	return &Consumer{client, c}, nil
}

// Poll returns the next records, and waits until there are some or ctx ends. In a group
// no partition is taken away from this consumer between one Poll and the next, so that
// what was returned can be confirmed; who handles it for longer than a minute loses
// them all the same. What one partition could not be read for is returned beside the
// records of others.
func (c *Consumer) Poll(ctx context.Context) ([]Record, error) {
	if c.cfg.group != "" {
		c.client.AllowRebalance()
	}
	f := c.client.PollRecords(ctx, c.cfg.most)
	if f.IsClientClosed() {
		return nil, ErrClosed
	}
	var out []Record
	f.EachRecord(func(r *kgo.Record) {
		x := Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Time: r.Timestamp, epoch: r.LeaderEpoch}
		for _, h := range r.Headers {
			x.Headers = append(x.Headers, Header{h.Key, h.Value})
		}
		out = append(out, x)
	})
	if err := ctx.Err(); err != nil && len(out) == 0 {
		return nil, err
	}
	var errs []error
	f.EachError(func(topic string, partition int32, err error) {
		errs = append(errs, fmt.Errorf("read %s/%d: %w", topic, partition, err))
	})
	return out, errors.Join(errs...)
}

// Confirm makes the group go on behind these records, in each of their partitions: it
// confirms all that is before them too. Confirming nothing is a success. Errors: the
// group's, after a rebalance; then whoever has the partition now reads the records again.
func (c *Consumer) Confirm(ctx context.Context, records ...Record) error {
	if c.cfg.group == "" {
		return errors.New("confirm: the consumer has no Group, which positions are kept for")
	}
	if len(records) == 0 {
		return nil
	}
	all := make([]*kgo.Record, len(records))
	for i, r := range records {
		all[i] = &kgo.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, LeaderEpoch: r.epoch}
	}
	if err := c.client.CommitRecords(ctx, all...); err != nil {
		return fmt.Errorf("confirm: %w", err)
	}
	return nil
}

// Positions are the offsets that the group has confirmed, by topic and partition, as far
// as this consumer reads them.
func (c *Consumer) Positions() map[string]map[int32]int64 {
	out := map[string]map[int32]int64{}
	for topic, ps := range c.client.CommittedOffsets() {
		out[topic] = map[int32]int64{}
		for p, at := range ps {
			out[topic][p] = at.Offset
		}
	}
	return out
}

// Seek goes on reading a partition from offset. Nothing is confirmed by it.
func (c *Consumer) Seek(topic string, partition int32, offset int64) {
	c.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{topic: {partition: {Epoch: -1, Offset: offset}}})
}

// Close leaves the group. What was returned and not confirmed comes again.
func (c *Consumer) Close() {
	c.client.CloseAllowingRebalance()
}
