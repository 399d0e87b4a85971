package test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// newZones starts three nodes, in the zones z1, z2 and z3.
func newZones(t *testing.T) *cluster {
	t.Helper()
	c := prepareCluster(t, 3)
	for _, id := range c.order {
		c.nodes[id].flags = append(c.nodes[id].flags, "--zone", zone(id))
	}
	c.start(c.order...)
	return c
}

func zone(id int) string { return "z" + strconv.Itoa(id) }

// followed is how many answers of followers a node has given to consumers.
func (n *node) followed() float64 {
	n.t.Helper()
	v, err := n.metric("tube_kafka_follower_fetches_total")
	if err != nil {
		n.t.Fatal(err)
	}
	return v
}

// inOrder notes the offsets that a consumer of one partition gets.
type inOrder struct {
	mu    sync.Mutex
	next  int64
	wrong error
}

func (o *inOrder) got(offset int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if offset != o.next && o.wrong == nil {
		o.wrong = fmt.Errorf("offset %d comes after %d", offset, o.next-1)
	}
	o.next = offset + 1
}

func (o *inOrder) upTo(offset int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.wrong == nil && o.next < offset {
		return fmt.Errorf("the consumer is at offset %d of %d", o.next, offset)
	}
	return nil
}

// zoneConsumers read partition 0 of a topic from its start, as consumers in a zone,
// until stop is called.
var zoneConsumers = map[string]func(t *testing.T, c *cluster, topic, zone string, o *inOrder) (stop func()){
	"franz-go": franzInZone, "sarama": saramaInZone, "kcat": kcatInZone, "tube consume": tubeInZone,
}

func franzInZone(t *testing.T, c *cluster, topic, zone string, o *inOrder) func() {
	cl := c.client(kgo.Rack(zone), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RecheckPreferredReplicaInterval(2*time.Second), kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		high := int64(0)
		for ctx.Err() == nil {
			fetches := cl.PollFetches(ctx)
			fetches.EachError(func(_ string, _ int32, err error) {
				if ctx.Err() == nil {
					t.Errorf("the consumer is told: %v", err)
				}
			})
			fetches.EachPartition(func(p kgo.FetchTopicPartition) {
				if p.Err == nil && p.HighWatermark < high {
					t.Errorf("the high watermark goes back from %d to %d", high, p.HighWatermark)
				}
				high = max(high, p.HighWatermark)
			})
			fetches.EachRecord(func(r *kgo.Record) { o.got(r.Offset) })
		}
	})
	return func() { cancel(); wg.Wait(); cl.Close() }
}

func saramaInZone(t *testing.T, c *cluster, topic, zone string, o *inOrder) func() {
	cfg := saramaConfig(sarama.V2_8_0_0)
	cfg.RackID, cfg.Consumer.Retry.Backoff, cfg.Metadata.Retry.Backoff = zone, 200*time.Millisecond, 200*time.Millisecond
	cfg.Metadata.Retry.Max = 20
	consumer, err := sarama.NewConsumer(c.all(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	p, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for m := range p.Messages() {
			o.got(m.Offset)
		}
	})
	wg.Go(func() {
		for err := range p.Errors() {
			if errors.Is(err, sarama.ErrOffsetOutOfRange) {
				t.Errorf("the consumer is told: %v", err)
			}
		}
	})
	return func() {
		p.AsyncClose()
		wg.Wait()
		if err := consumer.Close(); err != nil {
			t.Error(err)
		}
	}
}

// linesOf runs a command that writes an offset a line.
func linesOf(t *testing.T, cmd *exec.Cmd, o *inOrder) (stop func()) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			offset, err := strconv.ParseInt(lines.Text(), 10, 64)
			if err != nil {
				t.Errorf("a line is %q", lines.Text())
			}
			o.got(offset)
		}
	})
	return func() {
		_ = cmd.Process.Kill()
		wg.Wait()
		_ = cmd.Wait() // killed
	}
}

func kcatInZone(t *testing.T, c *cluster, topic, zone string, o *inOrder) func() {
	needKcat(t)
	return linesOf(t, exec.Command("kcat", "-b", strings.Join(c.all(), ","), "-C", "-t", topic, "-p", "0", "-o", "beginning", "-u", "-f", `%o\n`,
		"-X", "client.rack="+zone, "-X", "reconnect.backoff.max.ms=500", "-X", "topic.metadata.refresh.interval.ms=1000"), o)
}

func tubeInZone(t *testing.T, c *cluster, topic, zone string, o *inOrder) func() {
	cmd := exec.Command(tubeBinary, "consume", topic, "--from", "start", "--format", `%o\n`, "--zone", zone, "--kafka", strings.Join(c.all(), ","))
	return linesOf(t, cmd, o)
}

// writeOn writes to partition 0 of a topic until stop is called; acked is the end
// that was acknowledged.
func (c *cluster) writeOn(topic string) (acked *atomic.Int64, stop func()) {
	cl := c.client(kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	ctx, cancel := context.WithCancel(context.Background())
	acked = &atomic.Int64{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			batch := make([]*kgo.Record, 20)
			for i := range batch {
				batch[i] = &kgo.Record{Value: []byte("a message of a few words")}
			}
			if r, err := cl.ProduceSync(context.Background(), batch...).First(); err != nil {
				c.t.Errorf("produce: %v", err)
			} else {
				acked.Store(r.Offset + int64(len(batch)))
			}
		}
	})
	return acked, func() { cancel(); wg.Wait() }
}

// Consumers of every kind read from the node in their zone, and lose, repeat and
// skip nothing when that node dies, and when the leader does.
func TestConsumersReadFromTheirZone(t *testing.T) {
	for name, start := range zoneConsumers {
		t.Run(name, func(t *testing.T) {
			if name == "kcat" {
				needKcat(t)
			}
			c := newZones(t)
			c.createTopic("t", 1)
			leader := c.leader("t", 0)
			near := c.others(leader)[0]
			acked, stopWriting := c.writeOn("t")
			defer stopWriting()
			o := &inOrder{}
			stop := start(t, c, "t", zone(near), o)
			goesOn := func(what string) {
				t.Helper()
				began, more := time.Now(), acked.Load()+500
				eventually(t, 60*time.Second, func() error {
					if acked.Load() < more {
						return fmt.Errorf("%d of %d are written", acked.Load(), more)
					}
					return o.upTo(more)
				})
				t.Logf("%s: 500 more messages after %v", what, time.Since(began).Round(time.Millisecond))
			}
			readsNear := func() {
				t.Helper()
				before := c.node(near).followed()
				eventually(t, 60*time.Second, func() error {
					if n := c.node(near).followed(); n < before+10 {
						return fmt.Errorf("node %d answered %v fetches as a follower", near, n-before)
					}
					return nil
				})
			}
			readsNear()
			goesOn("a follower that is near")
			c.node(near).kill()
			if name != "kcat" { // librdkafka waits for a replica that is gone for five minutes
				goesOn("without it")
			}
			c.start(near)
			goesOn("with it back")
			leader = c.leader("t", 0)
			if leader == near {
				t.Skip("the node in the zone leads now")
			}
			readsNear()
			c.node(leader).kill()
			goesOn("without the leader")
			stopWriting()
			eventually(t, 60*time.Second, func() error { return o.upTo(acked.Load()) })
			stop()
			if o.wrong != nil {
				t.Error(o.wrong)
			}
		})
	}
}

// One client that asks now the leader, now a follower, on connections that stay
// open, sees the high watermark grow only, and is told at no place that what it
// has seen is out of range.
func TestTheHighWatermarkGrowsFromWhereverItIsRead(t *testing.T) {
	c := newZones(t)
	c.createTopic("t", 1)
	_, stop := c.writeOn("t")
	defer stop()
	cl := c.client(kgo.RequestRetries(0))
	ctx := timeout(t, 2*time.Minute)
	high, epoch, byFollower, byLeader := int64(0), int32(-1), 0, 0
	ask := func(id int, sizeBytes int32) {
		d, err := c.metadata(id, "t")
		if err != nil {
			return
		}
		epoch = max(epoch, d.Partitions[0].LeaderEpoch)
		p, err := fetchAt(ctx, cl, id, "t", high, epoch, zone(id), sizeBytes)
		if err != nil {
			return
		}
		switch err := kerr.ErrorForCode(p.ErrorCode); {
		case errors.Is(err, kerr.OffsetOutOfRange):
			t.Fatalf("node %d: offset %d, a high watermark that was told, is out of range", id, high)
		case err == nil && p.HighWatermark < high:
			t.Fatalf("node %d: the high watermark goes back from %d to %d", id, high, p.HighWatermark)
		case err == nil:
			high = p.HighWatermark
			if int(d.Partitions[0].Leader) == id {
				byLeader++
			} else {
				byFollower++
			}
		}
	}
	rounds := func(n int) {
		for i := range n {
			for _, id := range c.order {
				if c.node(id).up() {
					ask(id, int32(1+i%2*100_000))
				}
			}
		}
	}
	rounds(100)
	first := c.leader("t", 0)
	c.node(first).kill()
	rounds(100)
	c.start(first)
	rounds(100)
	t.Logf("%d answers of the leader, %d of followers, up to offset %d", byLeader, byFollower, high)
	if byFollower < 100 || byLeader < 50 {
		t.Errorf("%d answers of the leader, %d of followers", byLeader, byFollower)
	}
}

// fetchAt asks a node for partition 0 of a topic, without a session.
func fetchAt(ctx context.Context, cl *kgo.Client, id int, topic string, offset int64, epoch int32, rack string, sizeBytes int32) (kmsg.FetchResponseTopicPartition, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch, req.Rack = 0, 1, sizeBytes, -1, rack
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = offset, sizeBytes, epoch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := cl.Broker(id).Request(ctx, versioned{req, 12})
	if err != nil {
		return kmsg.FetchResponseTopicPartition{}, err
	}
	r := resp.(*kmsg.FetchResponse)
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return kmsg.FetchResponseTopicPartition{}, fmt.Errorf("error %d, %d topics", r.ErrorCode, len(r.Topics))
	}
	return r.Topics[0].Partitions[0], nil
}
