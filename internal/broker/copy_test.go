package broker

import (
	"testing"

	"github.com/tube-mq/tube/internal/record"
)

// DeleteRecords has a log begin anywhere, also within a batch: the first batch of a
// copy then begins before that.
func TestACopyBeginsWithTheBatchThatTheStartLiesIn(t *testing.T) {
	for before, want := range map[record.Offset][2]record.Offset{
		0: {0, 6}, 1: {0, 6}, 3: {3, 6}, 4: {3, 6}, 5: {3, 6}, 6: {6, 6},
	} {
		from, to := start(t, t.TempDir(), testTopic(nil)), start(t, t.TempDir(), testTopic(nil))
		from.produce(batchOf(-1, 0, 1, "a", "b", "c"))
		from.produce(batchOf(-1, 0, 1, "d", "e", "f"))
		if _, err := from.partition().DeleteRecords(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		c := &copying{p: to.partition()}
		if err := from.ServeCopy(t.Context(), 1000, 0, c); err != nil || c.next != 6 {
			t.Errorf("a copy of what begins at %d ends at %d: %v", before, c.next, err)
		}
		if start, end := to.partition().log.Bounds(); start != want[0] || end != want[1] {
			t.Errorf("a copy of what begins at %d has [%d, %d), want %v", before, start, end, want)
		}
		from.stop()
		to.stop()
	}
}
