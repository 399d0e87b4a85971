package node

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tube-mq/tube/internal/config"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// trio is a cluster of three nodes in this process, each on a disk of its own that
// can fail. Node 1 is nodes[0].
type trio struct {
	t     *testing.T
	cfgs  [3]*config.Config
	disks [3]*vfs.Faulty
	nodes [3]*Node
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	c := &trio{t: t}
	var masters []string
	addrs := make([]string, 9)
	for i := range addrs { // held together, so that they are different ones
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addrs[i] = l.Addr().String()
	}
	for i := range c.cfgs {
		masters = append(masters, fmt.Sprintf("%d@%s", i+1, addrs[3*i+2]))
	}
	for i := range c.cfgs {
		cfg, err := config.Load(t.Context(), config.Sources{Flags: map[string]string{
			"node-id": fmt.Sprint(i + 1), "data": t.TempDir(), "masters": strings.Join(masters, ","),
			"kafka": addrs[3*i], "http": addrs[3*i+1], "peer": addrs[3*i+2],
		}})
		if err != nil {
			t.Fatal(err)
		}
		c.cfgs[i], c.disks[i] = cfg, vfs.NewFaulty(vfs.OS{})
	}
	return c
}

func (c *trio) start() {
	c.t.Helper()
	var wg sync.WaitGroup
	for i := range c.nodes {
		wg.Go(func() { c.startOne(i) })
	}
	wg.Wait()
	if c.t.Failed() {
		c.t.FailNow()
	}
}

func (c *trio) startOne(i int) {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	var err error
	if c.nodes[i], err = startOn(ctx, c.disks[i], c.cfgs[i], "test", slog.New(slog.DiscardHandler)); err != nil {
		c.t.Errorf("node %d: %v", i+1, err)
	}
}

func (c *trio) stop() {
	c.t.Helper()
	var wg sync.WaitGroup
	for _, n := range c.nodes {
		if n == nil {
			continue // it did not start
		}
		wg.Go(func() {
			if err := n.Stop(context.Background()); err != nil {
				c.t.Error(err)
			}
		})
	}
	wg.Wait()
}

func (c *trio) client(opts ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.cfgs[0].Kafka, c.cfgs[1].Kafka, c.cfgs[2].Kafka), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Close)
	return cl
}

// partition is what the metadata says of partition 0 of a topic, and who leads it.
func (c *trio) partition(topic string) (t *meta.Topic, p *meta.Placement, leader record.NodeID) {
	t = c.nodes[0].meta.Image().Topic(topic)
	if t == nil {
		return nil, nil, -1
	}
	p = &t.Partitions[0]
	leader, _ = c.nodes[0].leaders.of(p.Group)
	return t, p, leader
}

func (c *trio) produce(cl *kgo.Client, from, to int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	for i := from; i < to; i++ {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: fmt.Appendf(nil, "message %d", i)}).FirstErr(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// A sector of the leader's disk cannot be read any more: its replica goes out of service,
// another leads, readers find everything, and a new replica is copied in the place of
// the one that failed.
func TestAReplicaThatCannotBeReadIsReplaced(t *testing.T) {
	const messages = 60
	c := newTrio(t)
	c.start()
	cl := c.client()
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 3, nil, "t"); err != nil {
		t.Fatal(err)
	}
	c.produce(cl, 0, messages)
	c.stop() // all of it is in segments now, and none in memory
	c.start()
	defer c.stop()
	until(t, "there is a leader", func() bool { _, _, led := c.partition("t"); return led > 0 })
	topic, before, led := c.partition("t")
	sick, _ := before.Hosted(led)
	heal, hits := c.disks[led-1].Inject(vfs.Fault{Ops: vfs.OpRead, Path: fmt.Sprintf("/%s-0/", topic.ID), Err: syscall.EIO})
	reader := c.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var next int64
	read := func(to int64) {
		t.Helper()
		for next < to {
			fetches := reader.PollFetches(ctx)
			if ctx.Err() != nil {
				t.Fatalf("read up to %d of %d", next, to)
			}
			fetches.EachRecord(func(r *kgo.Record) {
				if want := fmt.Sprintf("message %d", next); r.Offset != next || string(r.Value) != want {
					t.Fatalf("offset %d holds %q, want offset %d and %q", r.Offset, r.Value, next, want)
				}
				next++
			})
		}
	}
	read(messages)
	if hits() == 0 {
		t.Fatal("nothing was read from the disk that fails: this shows nothing")
	}
	until(t, "another leads", func() bool { _, _, now := c.partition("t"); return now > 0 && now != led })
	heal()
	c.produce(cl, messages, messages+20)
	read(messages + 20)
	until(t, "a new replica has taken its place", func() bool {
		_, p, _ := c.partition("t")
		now, ok := p.Hosted(led)
		return ok && now.ID != sick.ID && p.Target == nil
	})
	until(t, "it has everything, and the cluster is well", func() bool {
		part, ok := c.nodes[led-1].broker.Partition(record.TopicPartition{Topic: topic.ID})
		end, known := c.nodes[led-1].broker.KnownEnd(record.TopicPartition{Topic: topic.ID})
		return ok && part != nil && known && end == messages+20 && len(cluster{c.nodes[led-1]}.Problems()) == 0
	})
}
