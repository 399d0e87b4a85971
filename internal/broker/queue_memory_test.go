package broker

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// Memory is used again for batches that are sent and for those that are read. What a
// consumer was given stays as it was sent all the same, whatever is sent and read
// meanwhile, from memory or from files.
func TestWhatIsHandedOutStaysAsItWasSent(t *testing.T) {
	record.PoisonReleased(true)
	defer record.PoisonReleased(false)
	value := func(i int) []byte {
		return bytes.Repeat(fmt.Appendf(nil, "%d-", i), 1+i%97*100)
	}
	for _, memory := range []bool{false, true} {
		q := withQueue(start(t, t.TempDir(), testTopic(func(c *meta.TopicConfig) { c.MemoryOnly, c.SegmentBytes = memory, 1<<30 })),
			func(s *queue.Settings) { s.MaxInFlight = 10_000 })
		q.queues.cache.maxBytes = 3 << 20
		n := 0
		send := func(calls int) {
			for range calls {
				var list []queue.Outgoing
				for range 1 + n%20 {
					m := queue.Outgoing{Value: value(n), KeyNull: true}
					if n%7 == 0 {
						m.ID = fmt.Sprint(n)
					}
					list = append(list, m)
					n++
				}
				q.sendAll(list)
			}
		}
		var got []queue.Delivery
		receive := func() {
			for more := true; more; {
				some := q.receive("x", 100, 0)
				got, more = append(got, some...), len(some) > 0
			}
			runtime.GC()
		}
		send(60)
		if err := q.partition().settle(); err != nil {
			t.Fatal(err)
		}
		receive()
		send(60)
		receive()
		if len(got) != n {
			t.Fatalf("%d of %d messages came", len(got), n)
		}
		for i, d := range got {
			if !bytes.Equal(d.Value, value(int(d.Lease.Offset))) {
				t.Fatalf("message %d, at %d, is not what was sent", i, d.Lease.Offset)
			}
		}
		q.stop()
	}
}
