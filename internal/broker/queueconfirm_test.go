package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// What was taken and not confirmed has not left the node: others have it at once, as
// the same attempt, and the lease that nobody heard of settles nothing. (Who must be
// confirmed, and by whom, is the simulator's.)
func TestWhatIsNotConfirmedIsGivenBack(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	q.send("a", "b")
	g := q.queues.group(q.topic.ID, testGroup)
	round := g.round(&queue.Receiving{Member: member("x"), Max: 10, MaxBytes: 1 << 20}, nil)
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
		round := g.round(&queue.Receiving{Member: member("x"), Max: 10, MaxBytes: 1 << 20}, nil)
		if len(round.out) != 1 {
			t.Fatalf("try %d: %d messages", i, len(round.out))
		}
		if err := round.confirmed(gone); err == nil {
			round.giveBack(map[*Partition]error{q.partition(): ErrNotLeader})
		}
	}
	want(t, q.receive("y", 10, time.Second), "a@0#1 ")
}

// Of what a group takes that acknowledges by itself, one partition may not commit: what
// the others have acknowledged is handed out all the same, else it were lost.
func TestWhatIsAcknowledgedByItselfIsHandedOut(t *testing.T) {
	topic := testTopic(nil)
	topic.Partitions = append(topic.Partitions, meta.Placement{Group: 1001, Replicas: topic.Partitions[0].Replicas})
	q := withQueue(start(t, t.TempDir(), topic), func(s *queue.Settings) { s.AutoAck = true })
	if err := q.Host(topic, 1); err != nil {
		t.Fatal(err)
	}
	q.tell()
	other, _ := q.Partition(record.TopicPartition{Topic: topic.ID, Partition: 1})
	eventually(t, func() bool { return other.QueueReady(t.Context(), testGroup) == nil })
	q.send("a")
	if sent := other.QueueSend(t.Context(), []queue.Outgoing{{Value: []byte("b"), KeyNull: true}}); sent[0].Err != nil {
		t.Fatal(sent[0].Err)
	}
	var commits []trusting
	round := q.queues.group(topic.ID, testGroup).round(&queue.Receiving{Member: member("x"), Max: 10, MaxBytes: 1 << 20}, func(p *Partition) func(error) {
		done := make(committing, 1)
		commits = append(commits, trusting{p, done})
		return func(err error) {
			if p == q.partition() {
				err = ErrUnknownOutcome
			}
			done <- err
		}
	})
	if len(round.out) != 2 || len(commits) != 2 {
		t.Fatalf("%d messages of %d partitions", len(round.out), len(commits))
	}
	round.acknowledged(t.Context(), commits)
	if want(t, round.out, "b@0#1 "); !errors.Is(round.err, ErrUnknownOutcome) {
		t.Errorf("of the other it says %v", round.err)
	}
}

// newQueueTrio is a trio with a group whose leader has a message for it.
func newQueueTrio(t *testing.T) (x *trio, leader *Partition) {
	x = newTrio(t)
	spec := QueueTopic{ID: x.topic.ID, Name: x.topic.Name, Partitions: 1, LastID: testGroup,
		Groups: []QueueGroup{{ID: testGroup, Name: "billing", Settings: queueSettings(nil)}}}
	for _, b := range x.brokers {
		b.SetQueueGroups(spec)
	}
	eventually(t, func() bool {
		leader, _ = x.roles()
		return leader.QueueReady(t.Context(), testGroup) == nil
	})
	leader.put(t, "a")
	return x, leader
}

// A leader that is cut off hands out nothing, though its desk is full: what it took is
// not confirmed, and is there for its successor's consumers.
func TestALeaderThatIsCutOffHandsOutNothing(t *testing.T) {
	for name, ask := range map[string]func(*trio, *Partition) (int, error){
		"receive": func(x *trio, p *Partition) (int, error) {
			got, err := p.broker.QueueReceive(x.t.Context(), testGroup, x.topic.ID, queue.Receiving{Member: member("x"), Max: 10})
			return len(got), err
		},
		"acquire": func(x *trio, p *Partition) (int, error) {
			got, err := p.QueueAcquire(testGroup, queue.Taking{Member: member("x"), Max: 10, MaxBytes: 1 << 20})
			return len(got), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			x, leader := newQueueTrio(t)
			x.hear(leader.broker.cfg.Node, false) // it may speak, and hears no answer
			if n, err := ask(x, leader); n > 0 || err == nil {
				t.Fatalf("cut off, it hands out %d messages (%v)", n, err)
			}
			x.hear(leader.broker.cfg.Node, true)
			eventually(t, func() bool {
				leader, _ = x.roles()
				n, _ := ask(x, leader)
				return n == 1
			})
		})
	}
}

// A leader that is cut off refuses nothing either: its successor may know better.
func TestALeaderThatIsCutOffRefusesNothing(t *testing.T) {
	x, leader := newQueueTrio(t)
	got, err := leader.broker.QueueReceive(t.Context(), testGroup, x.topic.ID, queue.Receiving{Member: member("x"), Max: 1})
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	stranger := got[0].Lease
	stranger.Nonce++
	refused := func() error {
		return leader.QueueSettle(t.Context(), testGroup, []queue.Settlement{{Lease: stranger, Verdict: queue.Acknowledge}})[0]
	}
	if err := refused(); !errors.Is(err, queue.ErrLeaseUnknown) && !errors.Is(err, queue.ErrLeaseExpired) {
		t.Fatalf("a majority confirms it, and it says %v", err)
	}
	x.hear(leader.broker.cfg.Node, false) // it may speak, and hears no answer
	if err := refused(); !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("cut off, it says %v", err)
	}
}
