package test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// saramaVersions are protocol versions that sarama users pin: an old one, the
// default and the newest.
var saramaVersions = map[string]sarama.KafkaVersion{"0.11": sarama.V0_11_0_0, "2.8": sarama.V2_8_0_0, "newest": sarama.MaxVersion}

func saramaConfig(version sarama.KafkaVersion) *sarama.Config {
	c := sarama.NewConfig()
	c.Version = version
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Return.Errors = true
	return c
}

func eachSaramaVersion(t *testing.T, test func(t *testing.T, n *node, c *sarama.Config, topic string)) {
	n := newNode(t)
	for name, version := range saramaVersions {
		t.Run(name, func(t *testing.T) {
			n.use(t)
			topic := "t-" + name
			n.createTopic(topic, 2)
			test(t, n, saramaConfig(version), topic)
		})
	}
}

func saramaProduce(t *testing.T, n *node, c *sarama.Config, topic string, records int) {
	t.Helper()
	p, err := sarama.NewSyncProducer([]string{n.kafka}, c)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for i := range records {
		partition, offset, err := p.SendMessage(&sarama.ProducerMessage{
			Topic: topic, Partition: int32(i % 2), Key: sarama.StringEncoder(fmt.Sprint("k", i)), Value: sarama.StringEncoder(fmt.Sprint("v", i)),
			Headers: []sarama.RecordHeader{{Key: []byte("h"), Value: []byte("x")}},
		})
		if err != nil || partition != int32(i%2) || offset != int64(i/2) {
			t.Fatalf("record %d went to partition %d offset %d, %v, want partition %d offset %d", i, partition, offset, err, i%2, i/2)
		}
	}
}

func TestSaramaProducesAndConsumes(t *testing.T) {
	eachSaramaVersion(t, func(t *testing.T, n *node, c *sarama.Config, topic string) {
		saramaProduce(t, n, c, topic, 20)
		consumer, err := sarama.NewConsumer([]string{n.kafka}, c)
		if err != nil {
			t.Fatal(err)
		}
		defer consumer.Close()
		for partition := range int32(2) {
			pc, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 10 {
				select {
				case m := <-pc.Messages():
					want := fmt.Sprint("v", 2*i+int(partition))
					if m.Offset != int64(i) || string(m.Value) != want || len(m.Headers) != 1 {
						t.Fatalf("partition %d: offset %d is %q with %d headers, want %q", partition, m.Offset, m.Value, len(m.Headers), want)
					}
				case err := <-pc.Errors():
					t.Fatal(err)
				case <-time.After(20 * time.Second):
					t.Fatalf("partition %d: nothing more after %d records", partition, i)
				}
			}
			if pc.HighWaterMarkOffset() != 10 {
				t.Errorf("the high watermark is %d, want 10", pc.HighWaterMarkOffset())
			}
			pc.Close()
		}
	})
}

func TestSaramaProducesIdempotently(t *testing.T) {
	eachSaramaVersion(t, func(t *testing.T, n *node, c *sarama.Config, topic string) {
		c.Producer.Idempotent, c.Net.MaxOpenRequests = true, 1
		saramaProduce(t, n, c, topic, 20)
		if got := n.readAll(topic); len(got[0]) != 10 || len(got[1]) != 10 {
			t.Errorf("%d and %d records, want 10 each", len(got[0]), len(got[1]))
		}
	})
}

func TestSaramaProducesWithEveryCompression(t *testing.T) {
	n := newNode(t)
	for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD} {
		topic := "t-" + codec.String()
		n.createTopic(topic, 2)
		c := saramaConfig(sarama.V2_8_0_0)
		c.Producer.Compression = codec
		saramaProduce(t, n, c, topic, 10)
		if got := n.readAll(topic); len(got[0])+len(got[1]) != 10 {
			t.Errorf("%v: %d records, want 10", codec, len(got[0])+len(got[1]))
		}
	}
}

// saramaReader marks and counts what its group gets.
type saramaReader struct {
	mu  sync.Mutex
	got map[string]int
}

func (*saramaReader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*saramaReader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r *saramaReader) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			r.mu.Lock()
			r.got[string(m.Value)]++
			r.mu.Unlock()
			s.MarkMessage(m, "")
		case <-s.Context().Done():
			return nil
		}
	}
}

func TestSaramaReadsInAGroup(t *testing.T) {
	eachSaramaVersion(t, func(t *testing.T, n *node, c *sarama.Config, topic string) {
		saramaProduce(t, n, c, topic, 20)
		reader := &saramaReader{got: map[string]int{}}
		run := func(until func(read int) bool) {
			t.Helper()
			g, err := sarama.NewConsumerGroup([]string{n.kafka}, "g-"+topic, c)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			wg.Go(func() {
				for err := range g.Errors() {
					t.Errorf("group: %v", err)
				}
			})
			wg.Go(func() {
				for ctx.Err() == nil {
					if err := g.Consume(ctx, []string{topic}, reader); err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) && ctx.Err() == nil {
						t.Errorf("consume: %v", err)
						return
					}
				}
			})
			eventually(t, 30*time.Second, func() error {
				reader.mu.Lock()
				defer reader.mu.Unlock()
				if !until(len(reader.got)) {
					return fmt.Errorf("%d records read", len(reader.got))
				}
				return nil
			})
			cancel()
			g.Close() // commits what is marked, and leaves
			wg.Wait()
		}
		run(func(read int) bool { return read == 20 })
		saramaProduceMore(t, n, c, topic)
		run(func(read int) bool { return read == 21 })
		for value, times := range reader.got {
			if times != 1 {
				t.Errorf("%s was read %d times", value, times)
			}
		}
	})
}

func saramaProduceMore(t *testing.T, n *node, c *sarama.Config, topic string) {
	t.Helper()
	p, err := sarama.NewSyncProducer([]string{n.kafka}, c)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("more")}); err != nil {
		t.Fatal(err)
	}
}

func TestSaramaAdministersTopics(t *testing.T) {
	n := newNode(t)
	for name, version := range saramaVersions {
		t.Run(name, func(t *testing.T) {
			admin, err := sarama.NewClusterAdmin([]string{n.kafka}, saramaConfig(version))
			if err != nil {
				t.Fatal(err)
			}
			defer admin.Close()
			topic, hour := "a-"+name, "3600000"
			if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &hour}}, false); err != nil {
				t.Fatalf("create: %v", err)
			}
			topics, err := admin.ListTopics()
			if err != nil || topics[topic].NumPartitions != 2 {
				t.Errorf("list: %+v, %v", topics[topic], err)
			}
			if version.IsAtLeast(sarama.V1_0_0_0) {
				if err := admin.CreatePartitions(topic, 3, nil, false); err != nil {
					t.Errorf("add a partition: %v", err)
				}
			}
			//lint:ignore SA1019 what most programs still call
			entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
			if err != nil {
				t.Errorf("describe settings: %v", err)
			}
			found := false
			for _, e := range entries {
				found = found || e.Name == "retention.ms" && e.Value == hour
			}
			if !found {
				t.Errorf("retention.ms=%s is not among %d settings", hour, len(entries))
			}
			if err := admin.DeleteTopic(topic); err != nil {
				t.Errorf("delete: %v", err)
			}
		})
	}
}
