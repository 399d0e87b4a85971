package broker

import (
	"testing"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// Small batches are bounded by their number: those that were used last stay.
func TestCachedBatchesAreCounted(t *testing.T) {
	c, p := newBatchCache(queueCacheBytes), &Partition{queue: &queueLog{}}
	put := func(o record.Offset) {
		c.put(p, &cachedBatch{base: o, messages: []queue.Message{{Offset: o}}, bytes: 1})
	}
	for o := range record.Offset(maxCachedBatches) {
		put(o)
	}
	if ms, _ := c.find(p, 0); ms == nil {
		t.Fatal("the first is gone though there is room")
	}
	put(maxCachedBatches)
	if n := c.order.Len(); n != maxCachedBatches || len(p.queue.cached) != n {
		t.Errorf("%d batches are kept, %d of the partition, want %d", n, len(p.queue.cached), maxCachedBatches)
	}
	if ms, _ := c.find(p, 0); ms == nil {
		t.Error("what was used last is gone")
	}
	if ms, _ := c.find(p, 1); ms != nil {
		t.Error("what was used longest ago is still there")
	}
}
