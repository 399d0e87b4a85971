package kafka

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// listen makes a door to a fake cluster that real clients can use.
func listen(t *testing.T, cfg Config) (*fakeCluster, *Door, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	cl := newFakeCluster()
	cl.change(func(im *meta.Image) { im.Nodes[1] = &meta.Node{ID: 1, Kafka: addr, State: meta.NodeUp} })
	d := newTestDoor(t, cl, cfg)
	if err := d.Start(l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := d.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return cl, d, addr
}

func kgoClient(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.DisableIdempotentWrite(), kgo.AllowAutoTopicCreation(), kgo.DisableClientMetrics()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestFranzGoProducesAndConsumes(t *testing.T) {
	record.PoisonReleased(true)
	defer record.PoisonReleased(false)
	cl, _, addr := listen(t, Config{AutoCreateTopics: true})
	ctx := testContext(t)
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		topic := fmt.Sprintf("t%d", i)
		producer := kgoClient(t, addr, kgo.ProducerBatchCompression(codec))
		const n = 500
		for k := range n {
			producer.Produce(ctx, &kgo.Record{
				Topic: topic, Key: fmt.Appendf(nil, "k%d", k%7), Value: fmt.Appendf(nil, "%d %s", k, strings.Repeat("x", 200)),
				Headers: []kgo.RecordHeader{{Key: "h", Value: []byte{byte(k)}}},
			}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		if err := producer.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		b := cl.part(cl.image().ByName[topic], 0).batches[0]
		if h, err := record.Verify(b); err != nil || h.Attributes&record.CompressionMask != int16(i) {
			t.Fatalf("stored with compression %d, %v; sent with %d", h.Attributes&record.CompressionMask, err, i)
		}
		consumer := kgoClient(t, addr, kgo.ConsumeTopics(topic))
		last := map[int32]int64{0: -1, 1: -1}
		for got := 0; got < n; {
			fs := consumer.PollFetches(ctx)
			if err := fs.Err(); err != nil {
				t.Fatalf("after %d records: %v", got, err)
			}
			fs.EachRecord(func(r *kgo.Record) {
				if got++; r.Offset != last[r.Partition]+1 || !strings.HasSuffix(string(r.Value), "xxx") || len(r.Headers) != 1 {
					t.Fatalf("%+v after offset %d", r, last[r.Partition])
				}
				last[r.Partition] = r.Offset
			})
		}
		producer.Close()
		consumer.Close()
	}
}

func TestFranzGoIsWokenByARecord(t *testing.T) {
	cl, d, addr := listen(t, Config{})
	cl.addTopic("t", 50)
	ctx := testContext(t)
	consumer := kgoClient(t, addr, kgo.ConsumeTopics("t"), kgo.FetchMaxWait(15*time.Second))
	producer := kgoClient(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("t"))
	for i := range 20 {
		began := time.Now()
		if err := producer.ProduceSync(ctx, &kgo.Record{Partition: int32(i % 50), Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		fs := consumer.PollFetches(ctx)
		if err := fs.Err(); err != nil || fs.NumRecords() != 1 || string(fs.Records()[0].Value) != fmt.Sprint(i) {
			t.Fatalf("record %d: %v, %d records", i, err, fs.NumRecords())
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Fatalf("record %d came after %v: nobody woke the fetch", i, took)
		}
	}
	if n := d.sessionPartitions.Load(); n != 50 {
		t.Errorf("%d partitions in sessions, want 50", n)
	}
	consumer.Close()
	for deadline := time.Now().Add(30 * time.Second); d.sessionPartitions.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the consumer's session is still there")
		}
	}
}

func TestFranzGoReadsLargeBatches(t *testing.T) {
	_, _, addr := listen(t, Config{AutoCreateTopics: true})
	ctx := testContext(t)
	c := kgoClient(t, addr, kgo.ProducerBatchMaxBytes(20<<20), kgo.BrokerMaxWriteBytes(30<<20), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ConsumeTopics("big"), kgo.DefaultProduceTopic("big"), kgo.FetchMaxPartitionBytes(1<<10), kgo.FetchMaxBytes(1<<10))
	for range 3 {
		if err := c.ProduceSync(ctx, &kgo.Record{Key: []byte("k"), Value: make([]byte, 10<<20)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for got := 0; got < 3; {
		fs := c.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if got++; len(r.Value) != 10<<20 {
				t.Fatalf("%d bytes", len(r.Value))
			}
		})
	}
}
