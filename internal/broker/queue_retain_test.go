package broker

import (
	"bytes"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
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
