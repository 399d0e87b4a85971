package test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestOffsetsAreFoundByTime(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 1)
	at := func(seconds int64) time.Time { return time.Unix(1_700_000_000+seconds, 0) }
	// The largest time is not the last: offset 2.
	for _, seconds := range []int64{10, 20, 50, 30} {
		n.mustProduce("t", []*kgo.Record{{Value: []byte("v"), Timestamp: at(seconds)}})
	}
	adm, ctx := n.admin(), timeout(t, 30*time.Second)
	for _, c := range []struct{ seconds, want int64 }{{0, 0}, {10, 0}, {11, 1}, {20, 1}, {21, 2}, {50, 2}} {
		got, err := adm.ListOffsetsAfterMilli(ctx, at(c.seconds).UnixMilli(), "t")
		if err = errors.Join(err, got.Error()); err != nil {
			t.Fatal(err)
		}
		if o, _ := got.Lookup("t", 0); o.Offset != c.want {
			t.Errorf("second %d gives offset %d, want %d", c.seconds, o.Offset, c.want)
		}
	}
	// After the last there is none; the client then takes the end.
	got, err := adm.ListOffsetsAfterMilli(ctx, at(51).UnixMilli(), "t")
	if o, _ := got.Lookup("t", 0); err != nil || o.Offset != 4 {
		t.Errorf("after the largest time: offset %d, %v, want the end, 4", o.Offset, err)
	}
	newest, err := adm.ListMaxTimestampOffsets(ctx, "t")
	if err = errors.Join(err, newest.Error()); err != nil {
		t.Fatal(err)
	}
	if o, _ := newest.Lookup("t", 0); o.Offset != 2 || o.Timestamp != at(50).UnixMilli() {
		t.Errorf("the largest time is %d at offset %d, want offset 2", o.Timestamp, o.Offset)
	}
}

func TestDeletedRecordsAreGoneAndTheRestStays(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 1)
	n.mustProduce("t", values(0, 100))
	adm, ctx := n.admin(), timeout(t, 30*time.Second)
	var upTo kadm.Offsets
	upTo.Add(kadm.Offset{Topic: "t", Partition: 0, At: 40})
	deleted, err := adm.DeleteRecords(ctx, upTo)
	if err = errors.Join(err, deleted.Error()); err != nil {
		t.Fatal(err)
	}
	if d, _ := deleted.Lookup("t", 0); d.LowWatermark != 40 {
		t.Errorf("the low watermark is %d, want 40", d.LowWatermark)
	}
	check := func(when string) {
		t.Helper()
		got := n.readAll("t")[0]
		if len(got) != 60 || got[0].Offset != 40 || string(got[0].Value) != "value 40" || got[59].Offset != 99 {
			t.Errorf("%s: %d records from offset %d, want 60 from 40", when, len(got), got[0].Offset)
		}
	}
	check("after deleting")
	n.kill()
	n.start()
	check("after a kill")

	var beyond kadm.Offsets
	beyond.Add(kadm.Offset{Topic: "t", Partition: 0, At: 1000})
	refused, err := n.admin().DeleteRecords(ctx, beyond)
	if err = errors.Join(err, refused.Error()); !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Errorf("deleting beyond the end: %v, want OFFSET_OUT_OF_RANGE", err)
	}
}

func TestPartitionsAreAddedAndNeverTakenAway(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 2)
	adm, ctx := n.admin(), timeout(t, 30*time.Second)
	grown, err := adm.UpdatePartitions(ctx, 5, "t")
	if err = errors.Join(err, grown.Error()); err != nil {
		t.Fatal(err)
	}
	topics, err := n.admin().ListTopics(ctx, "t")
	if err != nil || len(topics["t"].Partitions) != 5 {
		t.Fatalf("%d partitions, %v, want 5", len(topics["t"].Partitions), err)
	}
	n.mustProduce("t", []*kgo.Record{{Partition: 4, Value: []byte("v")}})
	shrunk, err := adm.UpdatePartitions(ctx, 3, "t")
	if err = errors.Join(err, shrunk.Error()); !errors.Is(err, kerr.InvalidPartitions) {
		t.Errorf("fewer partitions: %v, want INVALID_PARTITIONS", err)
	}
}

func TestTopicsAreCreatedDescribedAndDeleted(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 3)
	adm, ctx := n.admin(), timeout(t, 30*time.Second)
	again, err := adm.CreateTopic(ctx, 1, 1, nil, "t")
	if err = errors.Join(err, again.Err); !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Errorf("creating it again: %v, want TOPIC_ALREADY_EXISTS", err)
	}
	for _, name := range []string{"", ".", "..", "a b", "a/b", "ü", strings.Repeat("x", 250)} {
		bad, err := adm.CreateTopic(ctx, 1, 1, nil, name)
		if err = errors.Join(err, bad.Err); !errors.Is(err, kerr.InvalidTopicException) {
			t.Errorf("topic name %.20q: %v, want INVALID_TOPIC_EXCEPTION", name, err)
		}
	}
	n.mustProduce("t", values(0, 10))
	first, err := adm.ListTopics(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := adm.DeleteTopic(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	n.createTopic("t", 1)
	second, err := n.admin().ListTopics(ctx, "t") // adm has the old answer in its cache
	if err != nil {
		t.Fatal(err)
	}
	if first["t"].ID == second["t"].ID {
		t.Error("the new topic has the id of the deleted one")
	}
	if got := n.readAll("t")[0]; len(got) != 0 {
		t.Errorf("the new topic has %d records of the deleted one", len(got))
	}
}

func TestSettingsAreReadChangedAndChecked(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 1, "retention.ms", "3600000")
	adm, ctx := n.admin(), timeout(t, 30*time.Second)
	setting := func(name string) kadm.Config {
		t.Helper()
		all, err := adm.DescribeTopicConfigs(ctx, "t")
		if err != nil || len(all) != 1 || all[0].Err != nil {
			t.Fatalf("describe: %v, %+v", err, all)
		}
		for _, c := range all[0].Configs {
			if c.Key == name {
				return c
			}
		}
		t.Fatalf("setting %s is not described", name)
		return kadm.Config{}
	}
	if got := setting("retention.ms"); got.MaybeValue() != "3600000" {
		t.Errorf("retention.ms is %q, want 3600000", got.MaybeValue())
	}
	change := func(name, value string, op kadm.IncrementalOp) error {
		got, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: op, Name: name, Value: &value}}, "t")
		if err == nil && len(got) == 1 {
			err = got[0].Err
		}
		return err
	}
	if err := change("retention.ms", "7200000", kadm.SetConfig); err != nil {
		t.Fatal(err)
	}
	n.kill()
	n.start()
	if got := setting("retention.ms"); got.MaybeValue() != "7200000" {
		t.Errorf("after a change and a kill retention.ms is %q, want 7200000", got.MaybeValue())
	}
	if err := change("retention.ms", "", kadm.DeleteConfig); err != nil {
		t.Fatal(err)
	}
	if got := setting("retention.ms"); got.MaybeValue() != "604800000" {
		t.Errorf("the default of retention.ms is %q, want 604800000", got.MaybeValue())
	}
	for name, value := range map[string]string{"retention.ms": "soon", "no.such.setting": "1", "cleanup.policy": "burn", "max.message.bytes": "-5"} {
		if err := change(name, value, kadm.SetConfig); !errors.Is(err, kerr.InvalidConfig) {
			t.Errorf("%s=%s: %v, want INVALID_CONFIG", name, value, err)
		}
	}
	brokers, err := adm.DescribeBrokerConfigs(ctx, 1)
	if err != nil || len(brokers) != 1 || brokers[0].Err != nil {
		t.Fatalf("the node's settings: %v, %+v", err, brokers)
	}
	found := false
	for _, c := range brokers[0].Configs {
		found = found || c.Key == "num.partitions" && c.MaybeValue() == "4"
	}
	if !found {
		t.Error("the node's settings have no num.partitions=4")
	}
}

func TestRetentionBySizeDeletesOldSegments(t *testing.T) {
	n := newNode(t, "--retention-interval=200ms", "--tail-memory=8MiB")
	n.createTopic("t", 1, "retention.bytes", "10485760", "segment.bytes", "1048576")
	value := make([]byte, 100_000)
	for i := range 500 {
		n.mustProduceOne("t", fmt.Append(nil, i), value)
	}
	adm, ctx := n.admin(), timeout(t, 2*time.Minute)
	eventually(t, time.Minute, func() error {
		starts, err := adm.ListStartOffsets(ctx, "t")
		if err = errors.Join(err, starts.Error()); err != nil {
			return err
		}
		if o, _ := starts.Lookup("t", 0); o.Offset < 380 || o.Offset > 420 {
			return fmt.Errorf("the first offset is %d, want about 400", o.Offset)
		}
		return nil
	})
	got := n.readAll("t")[0]
	if last := got[len(got)-1]; last.Offset != 499 || string(last.Key) != "499" {
		t.Errorf("the last record is %q at offset %d, want 499", last.Key, last.Offset)
	}
}

// mustProduceOne sends one record in a batch of its own, uncompressed.
func (n *node) mustProduceOne(topic string, key, value []byte) {
	n.t.Helper()
	if n.shared == nil {
		n.shared = n.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
	}
	r := &kgo.Record{Topic: topic, Key: key, Value: value}
	if err := n.shared.ProduceSync(timeout(n.t, time.Minute), r).FirstErr(); err != nil {
		n.t.Fatalf("produce to %s: %v", topic, err)
	}
}
