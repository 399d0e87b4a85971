package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/vfs"
)

const testGroup = queue.GroupID(5)

func queueSettings(change func(*queue.Settings)) queue.Settings {
	s := queue.Settings{
		MaxAttempts: 3, Lease: 30 * time.Second, MaxHandling: time.Hour, MaxInFlight: 1000,
		IdleMember: time.Hour, StartAtMillis: queue.StartAtStart,
	}
	if change != nil {
		change(&s)
	}
	return s
}

// queueRig is a rig whose topic has one queue group.
type queueRig struct {
	*rig
	spec QueueTopic
}

func (q *queueRig) tell() {
	q.t.Helper()
	q.SetQueueGroups(q.spec)
	for _, g := range q.spec.Groups {
		if err := q.partition().QueueReady(q.t.Context(), g.ID); err != nil {
			q.t.Fatal(err)
		}
	}
}

func withQueue(r *rig, change func(*queue.Settings)) *queueRig {
	r.t.Helper()
	q := &queueRig{r, QueueTopic{ID: r.topic.ID, Name: r.topic.Name, Partitions: 1, LastID: testGroup}}
	q.spec.Groups = []QueueGroup{{ID: testGroup, Name: "billing", Settings: queueSettings(change)}}
	q.tell()
	return q
}

func (q *queueRig) again(fsys vfs.FS) *queueRig {
	q.t.Helper()
	n := &queueRig{startOn(q.t, fsys, q.dir, q.topic), q.spec}
	n.tell()
	return n
}

func member(id string) queue.Member {
	return queue.Member{ID: id, Session: "session of " + id, Node: 1, Address: "10.0.0.1:5"}
}

func (q *queueRig) send(values ...string) []queue.Sent {
	q.t.Helper()
	var list []queue.Outgoing
	for _, v := range values {
		list = append(list, queue.Outgoing{Value: []byte(v), KeyNull: true})
	}
	return q.sendAll(list)
}

func (q *queueRig) sendAll(list []queue.Outgoing) []queue.Sent {
	q.t.Helper()
	sent := q.partition().QueueSend(q.t.Context(), list)
	for _, s := range sent {
		if s.Err != nil {
			q.t.Fatal(s.Err)
		}
	}
	return sent
}

func (q *queueRig) receive(who string, max int, wait time.Duration) []queue.Delivery {
	q.t.Helper()
	got, err := q.QueueReceive(q.t.Context(), testGroup, q.topic.ID, queue.Receiving{Member: member(who), Max: max, Wait: wait})
	if err != nil {
		q.t.Fatal(err)
	}
	return got
}

func (q *queueRig) settle(v queue.Verdict, list ...queue.Delivery) []error {
	q.t.Helper()
	var all []queue.Settlement
	for _, d := range list {
		all = append(all, queue.Settlement{Lease: d.Lease, Verdict: v, Delay: -1})
	}
	return q.partition().QueueSettle(q.t.Context(), testGroup, all)
}

func (q *queueRig) ack(list ...queue.Delivery) {
	q.t.Helper()
	for i, err := range q.settle(queue.Acknowledge, list...) {
		if err != nil {
			q.t.Fatalf("lease %s: %v", list[i].Lease, err)
		}
	}
}

func describe(list []queue.Delivery) string {
	out := ""
	for _, d := range list {
		out += fmt.Sprintf("%s@%d#%d ", d.Value, d.Lease.Offset, d.Lease.Attempt)
	}
	return out
}

func want(t testing.TB, got []queue.Delivery, want string) {
	t.Helper()
	if s := describe(got); s != want {
		t.Fatalf("got %q, want %q", s, want)
	}
}

func TestSentIsReceivedAcknowledgedAndNeverAgain(t *testing.T) {
	for _, memory := range []bool{false, true} {
		q := withQueue(start(t, t.TempDir(), testTopic(func(c *meta.TopicConfig) { c.MemoryOnly = memory })), nil)
		if sent := q.send("a", "b", "c"); sent[2].Offset != 2 {
			t.Fatalf("sent at %d", sent[2].Offset)
		}
		first := q.receive("x", 2, 0)
		want(t, first, "a@0#1 b@1#1 ")
		want(t, q.receive("y", 5, 0), "c@2#1 ")
		q.ack(first...)
		q.ack(first[0]) // twice is a success
		want(t, q.receive("x", 5, 0), "")
		q.stop()
	}
}

func TestReceiveWaitsForWhatIsSent(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	defer q.stop()
	got := make(chan []queue.Delivery)
	go func() { got <- q.receive("x", 5, 10*time.Second) }()
	for q.Broker.queues.topic(q.topic.ID).receivers.Load() == 0 {
		time.Sleep(time.Millisecond) // polling: until it waits
	}
	q.send("a")
	want(t, <-got, "a@0#1 ")
}
