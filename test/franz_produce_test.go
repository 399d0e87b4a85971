package test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// produce sends the records and returns the first error.
func (n *node) produce(topic string, records []*kgo.Record, opts ...kgo.Opt) error {
	n.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(n.kafka), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.AllowAutoTopicCreation()}, opts...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	defer cl.Close()
	return cl.ProduceSync(timeout(n.t, time.Minute), records...).FirstErr()
}

func (n *node) mustProduce(topic string, records []*kgo.Record, opts ...kgo.Opt) {
	n.t.Helper()
	if err := n.produce(topic, records, opts...); err != nil {
		n.t.Fatalf("produce to %s: %v", topic, err)
	}
}

// values makes records of so many numbered values for partition 0.
func values(from, to int) (records []*kgo.Record) {
	for i := from; i < to; i++ {
		records = append(records, &kgo.Record{Value: fmt.Append(nil, "value ", i)})
	}
	return records
}

func TestEveryCompressionPassesThrough(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 1)
	codecs := map[int]kgo.CompressionCodec{0: kgo.NoCompression(), 1: kgo.GzipCompression(), 2: kgo.SnappyCompression(), 3: kgo.Lz4Compression(), 4: kgo.ZstdCompression()}
	value := []byte(strings.Repeat("compressible ", 1000))
	for id := range 5 {
		n.mustProduce("t", []*kgo.Record{{Key: fmt.Append(nil, id), Value: value}}, kgo.ProducerBatchCompression(codecs[id]))
	}
	got := n.readAll("t")[0]
	if len(got) != 5 {
		t.Fatalf("%d records, want 5", len(got))
	}
	for id, r := range got {
		if string(r.Key) != fmt.Sprint(id) || !bytes.Equal(r.Value, value) {
			t.Errorf("record %d has key %q and %d bytes", id, r.Key, len(r.Value))
		}
		if int(r.Attrs.CompressionType()) != id {
			t.Errorf("record %d is stored with compression %d, want %d", id, r.Attrs.CompressionType(), id)
		}
	}
}

func TestARecordComesBackAsItWasSent(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 1)
	at := time.UnixMilli(1_600_000_000_123)
	records := []*kgo.Record{
		{Key: []byte("k"), Value: []byte("v"), Timestamp: at, Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "empty", Value: []byte{}}, {Key: "null"}}},
		{Key: []byte("tombstone"), Value: nil, Timestamp: at.Add(time.Millisecond)},
		{Key: nil, Value: []byte{}, Timestamp: at.Add(time.Second)},
		{Key: []byte{0, 0xff}, Value: []byte{0, 1, 2, 0xfe}, Timestamp: at.Add(-time.Hour)},
	}
	n.mustProduce("t", records)
	got := n.readAll("t")[0]
	if len(got) != len(records) {
		t.Fatalf("%d records, want %d", len(got), len(records))
	}
	for i, r := range got {
		want := records[i]
		if !same(r.Key, want.Key) || !same(r.Value, want.Value) || !r.Timestamp.Equal(want.Timestamp) || r.Offset != int64(i) {
			t.Errorf("record %d: offset %d key %q value %q (null: %v) at %v", i, r.Offset, r.Key, r.Value, r.Value == nil, r.Timestamp)
		}
		if len(r.Headers) != len(want.Headers) {
			t.Fatalf("record %d has headers %v", i, r.Headers)
		}
		for j, h := range r.Headers {
			if h.Key != want.Headers[j].Key || !same(h.Value, want.Headers[j].Value) {
				t.Errorf("record %d header %d is %q=%q", i, j, h.Key, h.Value)
			}
		}
	}
}

// same tells null from empty.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func TestRecordsUpToTheLimitAreTakenAndOthersRefused(t *testing.T) {
	const limit = 300_000
	n := newNode(t)
	n.createTopic("t", 1, "max.message.bytes", fmt.Sprint(limit))
	big := func(size int) []*kgo.Record { return []*kgo.Record{{Value: bytes.Repeat([]byte{7}, size)}} }
	// The client would refuse by itself at its default of 1 MB; a little more than
	// the topic's limit still goes over the wire.
	large := []kgo.Opt{kgo.ProducerBatchMaxBytes(8 << 20), kgo.ProducerBatchCompression(kgo.NoCompression())}
	if err := n.produce("t", big(limit-200), large...); err != nil {
		t.Errorf("just below the limit: %v", err)
	}
	if err := n.produce("t", big(limit+200), large...); !errors.Is(err, kerr.MessageTooLarge) {
		t.Errorf("just above the limit: %v, want MESSAGE_TOO_LARGE", err)
	}
	if err := n.produce("t", big(limit-300), large...); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
	got := n.readAll("t", kgo.FetchMaxPartitionBytes(10_000))[0]
	if len(got) != 2 || len(got[0].Value) != limit-200 || len(got[1].Value) != limit-300 {
		t.Errorf("%d records are stored, want the two that were taken", len(got))
	}

	n.createTopic("huge", 1, "max.message.bytes", fmt.Sprint(20<<20))
	if err := n.produce("huge", big(16<<20), kgo.ProducerBatchMaxBytes(17<<20), kgo.ProducerBatchCompression(kgo.NoCompression())); err != nil {
		t.Fatalf("16 MiB in a topic that allows 20: %v", err)
	}
	if got := n.readAll("huge", kgo.FetchMaxPartitionBytes(1<<20))[0]; len(got) != 1 || len(got[0].Value) != 16<<20 {
		t.Errorf("%d records are stored, want the one of 16 MiB", len(got))
	}
}

func TestAppendTimeReplacesTheSendersTime(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 1, "message.timestamp.type", "LogAppendTime")
	before := time.Now().Add(-time.Second)
	n.mustProduce("t", []*kgo.Record{{Value: []byte("v"), Timestamp: time.UnixMilli(1000)}})
	r := n.readAll("t")[0][0]
	if r.Timestamp.Before(before) || r.Timestamp.After(time.Now().Add(time.Second)) {
		t.Errorf("the time is %v, want now", r.Timestamp)
	}
	if r.Attrs.TimestampType() != 1 {
		t.Errorf("the timestamp's type is %d, want 1: append time", r.Attrs.TimestampType())
	}
}

func TestAcksOneAndNoneAndNoIdempotenceWork(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 1)
	n.mustProduce("t", values(0, 10), kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	n.mustProduce("t", values(10, 20), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.DisableIdempotentWrite())
	n.mustProduce("t", values(20, 30), kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	eventually(t, 10*time.Second, func() error {
		if got := len(n.readAll("t")[0]); got != 30 {
			return fmt.Errorf("%d records, want 30", got)
		}
		return nil
	})
}

func TestATopicIsCreatedOnFirstUse(t *testing.T) {
	n := newNode(t)
	n.mustProduce("fresh", values(0, 3))
	topics, err := n.admin().ListTopics(timeout(t, 10*time.Second), "fresh")
	if err != nil {
		t.Fatal(err)
	}
	if got := len(topics["fresh"].Partitions); got != 4 {
		t.Errorf("%d partitions, want 4", got)
	}
	if topics["fresh"].ID == ([16]byte{}) {
		t.Error("the topic's id is zero")
	}
}

func TestATopicIsNotCreatedWhenThatIsSwitchedOff(t *testing.T) {
	n := newNode(t, "--auto-create-topics=false")
	if err := n.produce("fresh", values(0, 1), kgo.UnknownTopicRetries(2)); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("producing to a topic that is not there: %v, want UNKNOWN_TOPIC_OR_PARTITION", err)
	}
}
