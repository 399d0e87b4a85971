package broker

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// retained sends 64 messages of 8 KiB to a partition of which 100 KiB are kept, has
// the group acknowledge all but the first, and looks at retention.
func retained(t *testing.T, hardBytes int64, retain bool) (start record.Offset) {
	t.Helper()
	r := retainRig(t, func(c *meta.TopicConfig) {
		c.RetentionBytes, c.QueueRetain, c.QueueRetainBytes = 100<<10, -1, hardBytes
	})
	q := withQueue(r, func(s *queue.Settings) { s.Retain = retain })
	for range 64 {
		q.sendAll([]queue.Outgoing{{Value: bytes.Repeat([]byte("x"), 8<<10), KeyNull: true}})
	}
	got := q.receive("a", 64, 0)
	q.ack(got[3:]...)
	q.Flush()
	if err := q.partition().retain(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	b, err := q.partition().Bounds()
	if err != nil {
		t.Fatal(err)
	}
	return b.LogStart
}

func retainRig(t *testing.T, change func(*meta.TopicConfig)) *rig {
	t.Helper()
	return start(t, t.TempDir(), testTopic(change))
}

func TestTheLogIsKeptForAGroupThatAsksForIt(t *testing.T) {
	if at := retained(t, -1, false); at < 32 {
		t.Errorf("a log of 512 KiB of which 100 are kept begins at %d", at)
	}
	if at := retained(t, -1, true); at > 0 {
		t.Errorf("the group is not done with 0, and the log begins at %d", at)
	}
	if at := retained(t, 200<<10, true); at < 16 || at > 45 {
		t.Errorf("with a hard limit of 200 KiB the log begins at %d", at)
	}
}

// What retention takes from a group is told before it goes, and when that is near.
func TestWhatRetentionTakesFromAGroupIsToldBefore(t *testing.T) {
	var q *queueRig
	var told []string
	hook := func(_ context.Context, r QueueRisk) {
		b, err := q.partition().Bounds()
		if err != nil {
			t.Error(err)
		}
		told = append(told, fmt.Sprintf("%s of %s/%d at %d %%, %d go, the log begins at %d", r.Name, r.Topic, r.Partition.Partition, r.UsedPercent, r.Goes, b.LogStart))
	}
	topic := testTopic(func(c *meta.TopicConfig) { c.RetentionBytes, c.QueueRetain, c.QueueRetainBytes = 1<<20, -1, -1 })
	q = withQueue(startWith(t, vfs.OS{}, t.TempDir(), topic, Config{ReserveBytes: 1, Queues: QueueHooks{Retention: hook}}), nil)
	defer q.stop()
	look := func(want string) {
		t.Helper()
		told = nil
		q.Flush()
		if err := q.partition().retain(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(told); got != want {
			t.Errorf("told %s, want %s", got, want)
		}
	}
	send := func(n int) {
		for range n {
			q.sendAll([]queue.Outgoing{{Value: bytes.Repeat([]byte("x"), 8<<10), KeyNull: true}})
		}
	}
	send(60)
	look("[]")
	send(55)
	look("[billing of orders/0 at 80 %, 0 go, the log begins at 0]")
	if r := q.QueueRisks(); len(r) != 1 || r[0].UsedPercent != 80 {
		t.Errorf("at risk is %+v", r)
	}
	send(40)
	q.ack(q.receive("a", 2, 0)...)
	look("[billing of orders/0 at 100 %, 26 go, the log begins at 0]")
	if b, _ := q.partition().Bounds(); b.LogStart != 28 {
		t.Errorf("the log begins at %d", b.LogStart)
	}
	for got := q.receive("a", 99, 0); len(got) > 0; got = q.receive("a", 99, 0) {
		q.ack(got...)
	}
	look("[]")
	if r := q.QueueRisks(); len(r) != 0 {
		t.Errorf("a group that is done with everything is at risk: %+v", r)
	}
}
