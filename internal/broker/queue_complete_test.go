package broker

import (
	"errors"
	"testing"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/vfs"
)

func TestCompleteAcknowledgesAllOrNothingAndKeepsTheIntent(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	q.send("a", "b", "c")
	got := q.receive("w", 3, 0)
	q.ack(got[0])
	complete := func(id string, list ...queue.Delivery) []error {
		t.Helper()
		var leases []queue.Lease
		for _, d := range list {
			leases = append(leases, d.Lease)
		}
		errs, err := q.partition().QueueComplete(t.Context(), testGroup, leases, id, []byte("send "+id))
		if err != nil {
			t.Fatal(err)
		}
		return errs
	}
	if errs := complete("one", got[0], got[1]); errs[0] == nil || errs[1] != nil {
		t.Errorf("one of them was done: %v", errs)
	}
	if n := len(q.partition().intents()); n != 0 {
		t.Fatalf("%d intents of what was refused", n)
	}
	want(t, q.receive("w", 3, 0), "") // b and c are held still
	if errs := complete("two", got[1], got[2]); errs[0] != nil || errs[1] != nil {
		t.Fatal(errs)
	}
	q.stop()
	q = q.again(vfs.OS{})
	if got := string(q.partition().intents()["two"]); got != "send two" {
		t.Fatalf("after a restart the intent is %q", got)
	}
	want(t, q.receive("w", 3, 0), "")
	if err := q.partition().QueueIntended(t.Context(), "two"); err != nil || len(q.partition().intents()) != 0 {
		t.Fatal(err, q.partition().intents())
	}
}

func TestIntentsAreBounded(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	q.send("a")
	got := q.receive("w", 1, 0)
	_, err := q.partition().QueueComplete(t.Context(), testGroup, []queue.Lease{got[0].Lease}, "x", make([]byte, queue.MaxIntentBytes+1))
	if !errors.Is(err, queue.ErrMessageTooLarge) {
		t.Error(err)
	}
	if errs := q.settle(queue.Extend, got...); errs[0] != nil {
		t.Errorf("the lease was touched: %v", errs)
	}
}

// A OnceID counts in a topic that does not look for repeats, and looks at no ID.
func TestWhatIsSentOnceIsStoredOnce(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	twice := []queue.Outgoing{
		{Value: []byte("sent"), KeyNull: true, OnceID: "intent 1"},
		{Value: []byte("a"), KeyNull: true, ID: "same"}, {Value: []byte("b"), KeyNull: true, ID: "same"},
	}
	first, second := q.sendAll(twice), q.sendAll(twice)
	if second[0].Offset != first[0].Offset || !second[0].Duplicate {
		t.Errorf("sent again: %+v, first %+v", second[0], first[0])
	}
	for _, s := range append(first[1:], second[1:]...) {
		if s.Duplicate {
			t.Errorf("an id was looked at in a topic without a window: %+v", s)
		}
	}
}
