package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A killed node has lost nothing that it acknowledged, and repeats nothing.
func TestNothingAcknowledgedIsLostByKilling(t *testing.T) {
	const topic, group, partitions, writers, readers = "ledger", "readers", 6, 3, 2
	kills := 20
	if testing.Short() {
		kills = 3
	}
	n := newNode(t)
	n.createTopic(topic, partitions)
	book := newLedger()

	ctx, stopWriters := context.WithCancel(context.Background())
	defer stopWriters()
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() { write(t, ctx, n, book, topic, partitions, uint32(w+1)) })
	}
	crowd := startReaders(t, n, topic, group, readers)

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for kill := range kills {
		before := book.count()
		time.Sleep(100*time.Millisecond + time.Duration(random.Int64N(int64(900*time.Millisecond))))
		eventually(t, 30*time.Second, func() error {
			if book.count() == before {
				return errors.New("nothing was acknowledged since the last start")
			}
			return nil
		})
		n.kill()
		ends, committed := book.ends(), crowd.acknowledged()
		n.start()
		checkNotBack(t, n, topic, group, ends, committed)
		if t.Failed() {
			t.Fatalf("after kill %d", kill+1)
		}
	}

	stopWriters()
	writing.Wait()
	crowd.waitFor(t, book.count())
	crowd.stop()
	checkNotBack(t, n, topic, group, book.ends(), crowd.acknowledged())
	book.check(t, n.readAll(topic))
	t.Logf("%d records acknowledged, %d kills", book.count(), kills)

	// And once more from the disk alone, after a clean stop.
	if code := n.stop(); code != 0 {
		t.Errorf("a clean stop exits with %d, want 0", code)
	}
	n.start()
	book.check(t, n.readAll(topic))
	checkNotBack(t, n, topic, group, book.ends(), crowd.acknowledged())
}

// write sends numbered messages through an idempotent client until the context
// ends, then waits for what is under way.
func write(t *testing.T, ctx context.Context, n *node, book *ledger, topic string, partitions int, writer uint32) {
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(n.kafka), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxBufferedRecords(1000), kgo.ProducerLinger(time.Millisecond), kgo.RetryTimeout(time.Minute),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Error(err)
		return
	}
	defer cl.Close()
	random := rand.New(rand.NewPCG(uint64(writer), 99))
	// About 3,000 a second from each writer: enough for every kill to hit some.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for number := uint64(0); ctx.Err() == nil; {
		for range 30 {
			s := sent{writer, number}
			r := &kgo.Record{Partition: int32(random.IntN(partitions)), Value: message(writer, number)}
			number++
			cl.Produce(context.Background(), r, func(r *kgo.Record, err error) {
				if err != nil {
					t.Errorf("writer %d: message %d: %v", s.writer, s.number, err)
					return
				}
				book.ack(r, s)
			})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	flushCtx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := cl.Flush(flushCtx); err != nil {
		t.Errorf("writer %d: flush: %v", writer, err)
	}
}

// checkNotBack compares ends of partitions and offsets of the group with what
// was acknowledged before.
func checkNotBack(t *testing.T, n *node, topic, group string, ends, committed map[int32]int64) {
	t.Helper()
	ctx := timeout(t, 30*time.Second)
	now, err := n.admin().ListEndOffsets(ctx, topic)
	if err = errors.Join(err, now.Error()); err != nil {
		t.Fatalf("end offsets: %v", err)
	}
	for partition, end := range ends {
		if got, _ := now.Lookup(topic, partition); got.Offset < end {
			t.Errorf("partition %d ends at %d, but %d was acknowledged", partition, got.Offset, end-1)
		}
	}
	stored, err := n.admin().FetchOffsets(ctx, group)
	if err != nil {
		t.Fatalf("offsets of the group: %v", err)
	}
	for partition, want := range committed {
		if got, ok := stored.Lookup(topic, partition); !ok || got.At < want {
			t.Errorf("the group's offset for partition %d is %d (there: %v), but %d was committed", partition, got.At, ok, want)
		}
	}
}

// crowd is a group of readers that commit what they have read.
type crowd struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	committed map[int32]int64 // acknowledged commits; guarded by mu
	delivered map[place]bool  // guarded by mu
}

func startReaders(t *testing.T, n *node, topic, group string, readers int) *crowd {
	ctx, cancel := context.WithCancel(context.Background())
	c := &crowd{cancel: cancel, committed: map[int32]int64{}, delivered: map[place]bool{}}
	t.Cleanup(c.stop)
	for range readers {
		cl, err := kgo.NewClient(
			kgo.SeedBrokers(n.kafka), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(500*time.Millisecond),
			kgo.BlockRebalanceOnPoll())
		if err != nil {
			t.Fatal(err)
		}
		c.wg.Go(func() {
			defer cl.CloseAllowingRebalance()
			for ctx.Err() == nil {
				c.readOnce(t, ctx, cl)
				cl.AllowRebalance()
			}
		})
	}
	return c
}

// readOnce polls, notes what came, and commits it.
func (c *crowd) readOnce(t *testing.T, ctx context.Context, cl *kgo.Client) {
	fetches := cl.PollRecords(ctx, 5000)
	if ctx.Err() != nil {
		return
	}
	// Errors while the node is away are expected; the client goes on by itself.
	next := map[int32]int64{}
	fetches.EachRecord(func(r *kgo.Record) {
		if _, _, err := parseMessage(r.Value); err != nil {
			t.Errorf("delivered to the group: partition %d offset %d: %v", r.Partition, r.Offset, err)
		}
		next[r.Partition] = r.Offset + 1
	})
	c.note(fetches)
	if len(next) == 0 {
		return
	}
	if err := cl.CommitRecords(ctx, fetches.Records()...); err != nil {
		return // unknown: it may be stored or not
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for partition, offset := range next {
		c.committed[partition] = max(c.committed[partition], offset)
	}
}

func (c *crowd) note(fetches kgo.Fetches) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fetches.EachRecord(func(r *kgo.Record) { c.delivered[place{r.Partition, r.Offset}] = true })
}

// acknowledged returns the highest offsets whose commit was answered.
func (c *crowd) acknowledged() map[int32]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := map[int32]int64{}
	for p, o := range c.committed {
		m[p] = o
	}
	return m
}

// waitFor waits until so many different records have been delivered.
func (c *crowd) waitFor(t *testing.T, records int) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.delivered) < records {
			return fmt.Errorf("the group has got %d of %d records", len(c.delivered), records)
		}
		return nil
	})
}

func (c *crowd) stop() {
	c.cancel()
	c.wg.Wait()
}

// Offsets that were committed by hand survive a kill, with their metadata.
func TestCommittedOffsetsSurviveKilling(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 3)
	var want kadm.Offsets
	for p := range int32(3) {
		want.Add(kadm.Offset{Topic: "t", Partition: p, At: int64(p) * 10, LeaderEpoch: -1, Metadata: fmt.Sprint("note ", p)})
	}
	ctx := timeout(t, time.Minute)
	if err := n.admin().CommitAllOffsets(ctx, "g", want); err != nil {
		t.Fatal(err)
	}
	n.kill()
	n.start()
	got, err := n.admin().FetchOffsets(ctx, "g")
	if err != nil {
		t.Fatal(err)
	}
	want.Each(func(w kadm.Offset) {
		if g, ok := got.Lookup(w.Topic, w.Partition); !ok || g.At != w.At || g.Metadata != w.Metadata {
			t.Errorf("partition %d: offset %d with %q (there: %v), want %d with %q", w.Partition, g.At, g.Metadata, ok, w.At, w.Metadata)
		}
	})
}
