package broker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// retry asks for the retry of a message and returns the answer.
func (q *queueRig) retry(o record.Offset, skip bool) error {
	return q.partition().QueueRetry(q.t.Context(), testGroup, o, skip)
}

func (q *queueRig) mustRetry(o record.Offset, skip bool) {
	q.t.Helper()
	if err := q.retry(o, skip); err != nil {
		q.t.Fatal(err)
	}
}

// fail refuses messages, to be delivered after the group's back-off.
func (q *queueRig) fail(list ...queue.Delivery) {
	q.t.Helper()
	for _, d := range list {
		if err := q.partition().QueueSettle(q.t.Context(), testGroup, []queue.Settlement{{Lease: d.Lease, Verdict: queue.Nack, Delay: -1, Reason: "no"}})[0]; err != nil {
			q.t.Fatal(err)
		}
	}
}

// What waits for its back-off comes at once when it is retried, as one that never failed:
// once, and to whoever leads after a kill. Nothing else is retried.
func TestARetriedMessageNeverFailed(t *testing.T) {
	mem := vfs.NewMem()
	q := withQueue(startOn(t, mem, "/d", testTopic(nil)), func(s *queue.Settings) {
		s.MaxAttempts, s.Backoff = 2, []time.Duration{time.Hour}
	})
	q.dir = "/d"
	q.send("a", "b", "c", "d")
	got := q.receive("x", 3, 0)
	for _, o := range []record.Offset{3, 9} { // never handed out; not there
		if err := q.retry(o, false); !errors.Is(err, queue.ErrLeaseUnknown) {
			t.Errorf("retry of %d: %v", o, err)
		}
	}
	q.fail(got[0], got[1])
	q.ack(got[2])
	if err := q.retry(2, false); !errors.Is(err, queue.ErrLeaseUnknown) {
		t.Errorf("retry of what is done: %v", err)
	}
	want(t, q.receive("x", 9, 0), "d@3#1 ")

	q.mustRetry(0, false)
	again := q.receive("x", 9, 0)
	want(t, again, "a@0#1 ")
	for _, skip := range []bool{false, true} {
		if err := q.retry(3, skip); !errors.Is(err, queue.ErrLeaseExpired) {
			t.Errorf("retry of what is in hand: %v", err)
		}
	}
	// All its attempts are there again.
	q.fail(again...)
	q.mustRetry(0, false)
	again = q.receive("x", 9, 0)
	want(t, again, "a@0#1 ")
	q.ack(again...)
	want(t, q.receive("x", 9, 0), "")

	q.mustRetry(1, false)
	killed := mem.CrashCopy(1, vfs.CrashLose)
	q.stop()
	n := q.again(killed)
	defer n.stop()
	want(t, n.receive("y", 9, 0), "b@1#1 d@3#1 ")
	if err := n.retry(0, false); !errors.Is(err, queue.ErrLeaseUnknown) {
		t.Errorf("retry of what is done: %v", err)
	}
}

// A message that is retried while it waits is handed out once, also when its back-off
// ends meanwhile.
func TestARetryAndTheBackoffAreOneDelivery(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), func(s *queue.Settings) { s.Backoff = []time.Duration{50 * time.Millisecond} })
	defer q.stop()
	q.send("a")
	q.fail(q.receive("x", 1, 0)...)
	q.mustRetry(0, false)
	got := q.receive("x", 9, 0)
	want(t, got, "a@0#1 ")
	want(t, q.receive("y", 9, 200*time.Millisecond), "")
	q.ack(got...)
	want(t, q.receive("y", 9, 0), "")
	q.eventually(func(e queue.Explanation) bool { return e.Backlog == 0 })
}

// A parked key waits for a word about its message: retried it is the first of the key
// again; skipped it is a dead letter, then done, and those behind it come.
func TestAParkedKeyIsRetriedOrSkipped(t *testing.T) {
	box := &letters{wrote: make(chan struct{}, 1)}
	r := startWith(t, vfs.OS{}, t.TempDir(), testTopic(nil), Config{ReserveBytes: 1, Queues: QueueHooks{DeadLetters: box}})
	q := withQueue(r, func(s *queue.Settings) {
		s.MaxAttempts, s.OrderByKey, s.ParkKey, s.DeadLetter = 1, true, true, "graves"
	})
	defer q.stop()
	key := []byte("k")
	q.sendAll([]queue.Outgoing{{Value: []byte("first"), Key: key}, {Value: []byte("second"), Key: key}})
	for range 2 {
		got := q.receive("x", 9, 0)
		want(t, got, "first@0#1 ")
		q.fail(got...)
		want(t, q.receive("x", 9, 0), "")
		if err := q.retry(1, true); !errors.Is(err, queue.ErrLeaseUnknown) {
			t.Errorf("skipped is what never failed: %v", err)
		}
		if len(box.got) != 0 {
			t.Fatalf("a parked message is a dead letter: %+v", box.got)
		}
		q.eventually(func(e queue.Explanation) bool { return e.Parked == 1 })
		q.mustRetry(0, false)
		q.eventually(func(e queue.Explanation) bool { return e.Parked == 0 })
	}
	got := q.receive("x", 9, 0)
	want(t, got, "first@0#1 ")
	q.fail(got...)
	q.mustRetry(0, true)
	<-box.wrote
	if d := box.got[0]; d.To != "graves" || string(d.Message.Value) != "first" || d.Attempts != 1 {
		t.Errorf("dead letter %+v", d)
	}
	got = q.receive("x", 9, 10*time.Second)
	want(t, got, "second@1#1 ")
	q.ack(got...)
	q.eventually(func(e queue.Explanation) bool { return e.Backlog == 0 && e.Counts.Dead == 1 })
}

// In a broadcast group each member that the message failed with gets it again, and
// nobody else.
func TestARetryIsForEachMemberThatFailed(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), func(s *queue.Settings) {
		s.Broadcast, s.Backoff = true, []time.Duration{time.Hour}
	})
	defer q.stop()
	q.send("a")
	q.fail(q.receive("x", 9, 10*time.Second)...)
	q.fail(q.receive("y", 9, 10*time.Second)...)
	q.ack(q.receive("z", 9, 10*time.Second)...)
	q.mustRetry(0, false)
	want(t, q.receive("z", 9, 0), "")
	for _, who := range []string{"x", "y"} {
		want(t, q.receive(who, 9, 10*time.Second), "a@0#1 ")
	}
}

// What is skipped is handed out no more from then on, though its dead letter cannot be
// written; retried in that time it is a message like others, and no dead letter.
func TestASkippedMessageIsRetriedWhileItsDeadLetterWaits(t *testing.T) {
	box := &letters{wrote: make(chan struct{}, 1), fails: 1}
	r := startWith(t, vfs.OS{}, t.TempDir(), testTopic(nil), Config{ReserveBytes: 1, Queues: QueueHooks{DeadLetters: box}})
	q := withQueue(r, func(s *queue.Settings) { s.DeadLetter, s.Backoff = "graves", nil })
	defer q.stop()
	q.send("a")
	q.fail(q.receive("x", 1, 0)...)
	q.mustRetry(0, true)
	want(t, q.receive("x", 9, 0), "")
	q.eventually(func(e queue.Explanation) bool { return strings.Contains(e.Sentence, "cannot be written") })
	q.mustRetry(0, false)
	q.eventually(func(e queue.Explanation) bool { return e.Dying == 0 })
	got := q.receive("x", 9, 0)
	want(t, got, "a@0#1 ")
	q.ack(got...)
	q.eventually(func(e queue.Explanation) bool { return e.Backlog == 0 && e.Counts.Dead == 0 })
	if len(box.got) != 0 {
		t.Errorf("dead letters %+v", box.got)
	}
}
