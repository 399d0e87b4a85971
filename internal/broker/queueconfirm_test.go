package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/queue"
)

// What was taken and not confirmed has not left the node: others have it at once, as
// the same attempt, and the lease that nobody heard of settles nothing. (Who must be
// confirmed, and by whom, is the simulator's.)
func TestWhatIsNotConfirmedIsGivenBack(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	q.send("a", "b")
	g := q.queues.group(q.topic.ID, testGroup)
	round := g.round(&queue.Receiving{Member: member("x"), Max: 10, MaxBytes: 1 << 20})
	lost := append([]queue.Delivery(nil), round.out...)
	want(t, lost, "a@0#1 b@1#1 ")
	want(t, q.receive("y", 10, 0), "")
	round.giveBack(nil)
	want(t, round.out, "a@0#1 b@1#1 ")
	round.giveBack(map[*Partition]error{q.partition(): ErrNotLeader})
	if want(t, round.out, ""); !errors.Is(round.err, ErrNotLeader) {
		t.Errorf("it says %v", round.err)
	}
	again := q.receive("y", 10, 0)
	want(t, again, "a@0#1 b@1#1 ")
	for _, err := range q.settle(queue.Extend, lost...) {
		if !errors.Is(err, queue.ErrLeaseExpired) && !errors.Is(err, queue.ErrLeaseUnknown) {
			t.Errorf("a lease that was given back: %v", err)
		}
	}
	q.ack(again...)
}

// Whoever goes away before the answer holds nothing.
func TestWhoGoesAwayBeforeTheAnswerHoldsNothing(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	q.send("a")
	g := q.queues.group(q.topic.ID, testGroup)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 20 { // the answer, which one replica gives at once, is as good as the end
		round := g.round(&queue.Receiving{Member: member("x"), Max: 10, MaxBytes: 1 << 20})
		if len(round.out) != 1 {
			t.Fatalf("try %d: %d messages", i, len(round.out))
		}
		if err := round.confirmed(gone); err == nil {
			round.giveBack(map[*Partition]error{q.partition(): ErrNotLeader})
		}
	}
	want(t, q.receive("y", 10, time.Second), "a@0#1 ")
}
