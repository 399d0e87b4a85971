package broker

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

func (q *queueRig) acquire(who string, most int) (offsets []record.Offset, leases []queue.Lease) {
	q.t.Helper()
	taken, err := q.partition().QueueAcquire(testGroup, queue.Taking{Member: member(who), Max: most, MaxBytes: 1 << 20})
	if err != nil {
		q.t.Fatal(err)
	}
	for _, x := range taken {
		offsets, leases = append(offsets, x.Lease.Offset), append(leases, x.Lease)
	}
	return offsets, leases
}

// Who asks a partition by itself and who asks the group share its messages.
func TestAcquiredIsNobodyElses(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	q.send("a", "b", "c", "d")
	mine, leases := q.acquire("x", 2)
	if !slices.Equal(mine, []record.Offset{0, 1}) {
		t.Fatalf("acquired %v", mine)
	}
	want(t, q.receive("y", 10, 0), "c@2#1 d@3#1 ")
	if none, _ := q.acquire("z", 10); len(none) > 0 {
		t.Fatalf("acquired %v", none)
	}
	// By offset, whatever order they come back in.
	q.partition().QueueSettle(t.Context(), testGroup, []queue.Settlement{{Lease: leases[1], Verdict: queue.Release}, {Lease: leases[0], Verdict: queue.Nack}})
	if again, _ := q.acquire("z", 10); !slices.Equal(again, []record.Offset{0, 1}) {
		t.Fatalf("acquired %v", again)
	}
	if _, err := q.partition().QueueAcquire(99, queue.Taking{Member: member("x")}); !errors.Is(err, queue.ErrUnknownGroup) {
		t.Errorf("a group that is not there: %v", err)
	}
}

func TestBroadcastGroupsCannotBeAcquired(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), func(s *queue.Settings) { s.Broadcast = true })
	if _, err := q.partition().QueueAcquire(testGroup, queue.Taking{Member: member("x")}); !errors.Is(err, queue.ErrGroupMode) {
		t.Errorf("%v", err)
	}
}

// The batches of what was asked for, and no others, as far as there is room.
func TestBatchesOfOffsets(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	for range 4 {
		q.send("aaaa", "bbbb") // a batch each
	}
	bases := func(b []byte) (out []record.Offset) {
		for len(b) > 0 {
			h, err := record.ParseHeader(b)
			if err != nil {
				t.Fatal(err)
			}
			out, b = append(out, h.BaseOffset), b[h.SizeBytes():]
		}
		return out
	}
	one, n, err := q.partition().QueueBatches([]record.Offset{3}, 0)
	if err != nil || n != 1 || !slices.Equal(bases(one), []record.Offset{2}) {
		t.Fatalf("%v %d %v", bases(one), n, err)
	}
	for _, c := range []struct {
		ask   []record.Offset
		room  int
		bases []record.Offset
		n     int
	}{
		{[]record.Offset{0, 1, 2, 3, 4, 5, 6, 7}, 1 << 20, []record.Offset{0, 2, 4, 6}, 8},
		{[]record.Offset{1, 6}, 1 << 20, []record.Offset{0, 6}, 2},
		{[]record.Offset{1, 2, 3, 7}, 2 * len(one), []record.Offset{0, 2}, 3},
		{[]record.Offset{1, 7}, 2*len(one) - 1, []record.Offset{0}, 1},
	} {
		b, n, err := q.partition().QueueBatches(c.ask, c.room)
		if got := bases(b); err != nil || n != c.n || !slices.Equal(got, c.bases) {
			t.Errorf("%v in %d bytes: batches at %v with %d of them, %v; want %v with %d", c.ask, c.room, got, n, err, c.bases, c.n)
		}
	}
	if end, err := q.partition().QueueBatchEnd(4); err != nil || end != 6 {
		t.Errorf("the batch of offset 4 ends at %d, %v", end, err)
	}
}

// Who waits for several groups is woken by what comes for one of them, and who has
// looked passes the word on.
func TestWaiterForGroupsIsWoken(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	of := []QueueOf{{q.topic.ID, testGroup}, {q.topic.ID, 99}}
	a, b := q.QueueWaiter(of), q.QueueWaiter(of)
	defer a.Close()
	defer b.Close()
	a.Looking()
	b.Looking()
	q.send("a")
	woken := func(x *QueueWaiter) {
		t.Helper()
		select {
		case <-x.Woken():
		case <-time.After(10 * time.Second):
			t.Fatal("nobody was woken")
		}
	}
	woken(a)
	a.Looking()
	a.Looked()
	woken(b)
}

// What is acquired of a group that acknowledges by itself is leased: who hands it on
// acknowledges that, and what he does not hand on comes again.
func TestWhatIsAcquiredIsTheCallersToAcknowledge(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), func(s *queue.Settings) { s.AutoAck = true })
	take := func(want ...record.Offset) (leases []queue.Lease) {
		t.Helper()
		taken, err := q.partition().QueueAcquire(testGroup, queue.Taking{Member: member("x"), Max: 10, MaxBytes: 1 << 20})
		var got []record.Offset
		for _, x := range taken {
			got, leases = append(got, x.Lease.Offset), append(leases, x.Lease)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("offsets %v, %v; want %v", got, err, want)
		}
		return leases
	}
	q.send("a")
	q.send("b")
	leases := take(0, 1)
	errs := q.partition().QueueSettle(t.Context(), testGroup, []queue.Settlement{{Lease: leases[0], Verdict: queue.Acknowledge}, {Lease: leases[1], Verdict: queue.Release}})
	if errs[0] != nil || errs[1] != nil {
		t.Fatal(errs)
	}
	if c := q.partition().QueueCounts(testGroup); c.Floor != 1 || c.Backlog != 1 {
		t.Fatalf("%+v", c)
	}
	take(1)
}
