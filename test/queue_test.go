package test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// What a queue group can do, one by one, against one node.
func TestQueues(t *testing.T) {
	n := newNode(t)
	for name, f := range map[string]func(*testing.T, *node, *queues){
		"order by key":     queueOrder,
		"broadcast":        queueBroadcast,
		"dead letters":     queueDead,
		"operator":         queueOperator,
		"memory topic":     queueMemory,
		"auto acknowledge": queueAuto,
		"filter":           queueFilter,
		"rate":             queueRate,
		"leases":           queueLeases,
	} {
		t.Run(name, func(t *testing.T) {
			n.use(t)
			f(t, n, n.queues())
			n.alive()
		})
	}
}

// One message of a key at a time, in the order they were sent; a key that fails
// blocks itself and no other.
func queueOrder(t *testing.T, n *node, q *queues) {
	n.createTopic("order", 3)
	q.group("order", "order", &tubev1.QueueSettings{Order: proto.String("key"), MaxAttempts: proto.Int32(2)})
	for i := range 3 {
		q.send("order", out(fmt.Sprint("a", i), withKey("a")), out(fmt.Sprint("b", i), withKey("b")))
	}
	first := q.takeAll("order", "w", 2)
	slices.SortFunc(first, func(x, y *tubev1.QueueMessage) int { return strings.Compare(string(x.Value), string(y.Value)) })
	expectValues(t, first, "a0", "b0")
	q.nothing("order", "w")
	q.nack("order", first[0], "not now", time.Hour) // a waits, b goes on
	q.ack("order", first[1])
	b1 := q.takeAll("order", "w", 1)
	expectValues(t, b1, "b1")
	q.ack("order", b1...)
	b2 := q.takeAll("order", "w", 1)
	expectValues(t, b2, "b2")
	q.ack("order", b2...)
	q.nothing("order", "w")
}

// Each consumer id has everything, once, and finds its place again.
func queueBroadcast(t *testing.T, n *node, q *queues) {
	n.createTopic("news", 2)
	q.group("news", "news", &tubev1.QueueSettings{Mode: proto.String("broadcast")})
	q.send("news", out("1", withKey("k")), out("2", withKey("k")))
	for _, who := range []string{"x", "y"} {
		q.ack("news", q.takeAll("news", who, 2)...)
		q.nothing("news", who)
	}
	x := q.take("news", "z", 2, 5*time.Second)
	got, err := ask(t.Context(), q.Receive, &tubev1.ReceiveRequest{Group: "news"})
	if reasonOf(err) != tubev1.QueueErrorDetail_INVALID_FIELD {
		t.Errorf("a nameless consumer of a broadcast group gets %v, %v", got, err)
	}
	q.ack("news", x...)
}

// After its attempts a message is a dead letter with the record of each, which can
// be listed, sent again and dropped.
func queueDead(t *testing.T, n *node, q *queues) {
	n.createTopic("jobs", 1)
	q.group("jobs", "jobs", &tubev1.QueueSettings{MaxAttempts: proto.Int32(2), Backoff: []*durationpb.Duration{durationpb.New(0)}})
	q.send("jobs", out("poison", withKey("k"), withID("p-1"), withHeader("source", "web")), out("drop me"))
	for attempt := 1; attempt <= 2; attempt++ {
		for _, m := range q.takeAll("jobs", fmt.Sprint("worker-", attempt), 2) {
			if int(m.Attempt) != attempt {
				t.Errorf("%s comes as attempt %d, want %d", m.Value, m.Attempt, attempt)
			}
			q.nack("jobs", m, fmt.Sprint("reason ", attempt), 0)
		}
	}
	var dead []*tubev1.DeadMessage
	eventually(t, 10*time.Second, func() error {
		dead = must(t, q.admin.ListDead, &tubev1.ListDeadRequest{Group: "jobs", Values: true}).Messages
		if len(dead) != 2 {
			return fmt.Errorf("%d dead letters, want 2", len(dead))
		}
		return nil
	})
	q.nothing("jobs", "w")
	d := dead[slices.IndexFunc(dead, func(d *tubev1.DeadMessage) bool { return string(d.Value) == "poison" })]
	if d.Id != "p-1" || string(d.Key) != "k" || d.Headers["source"] != "web" || d.Topic != "jobs" || d.SourceOffset != 0 {
		t.Errorf("the dead letter is %v", d)
	}
	if len(d.Attempts) != 2 || d.Attempts[0].ConsumerId != "worker-1" || d.Attempts[1].Error != "reason 2" || d.Attempts[0].Address == "" || d.Attempts[0].Time == nil {
		t.Errorf("its attempts are %v", d.Attempts)
	}
	only := func(d *tubev1.DeadMessage) []*tubev1.PartitionOffset {
		return []*tubev1.PartitionOffset{{Partition: d.Partition, Offset: d.Offset}}
	}
	if r := must(t, q.admin.RedriveDead, &tubev1.RedriveDeadRequest{Group: "jobs", Filter: `key == "k"`, DryRun: true}); r.Matched != 1 || r.Redriven != 0 {
		t.Errorf("a dry run answers %v", r)
	}
	if r := must(t, q.admin.RedriveDead, &tubev1.RedriveDeadRequest{Group: "jobs", Messages: only(d)}); r.Redriven != 1 {
		t.Errorf("redrive answers %v", r)
	}
	again := q.takeAll("jobs", "w", 1)
	expectValues(t, again, "poison")
	if m := again[0]; m.Attempt != 1 || string(m.Key) != "k" || m.Headers["source"] != "web" || !strings.HasPrefix(m.Id, "redriven-") {
		t.Errorf("redriven as %v", m)
	}
	q.ack("jobs", again...)
	if r := must(t, q.admin.DropDead, &tubev1.DropDeadRequest{Group: "jobs"}); r.Dropped != 1 {
		t.Errorf("drop answers %v", r)
	}
	if l := must(t, q.admin.ListDead, &tubev1.ListDeadRequest{Group: "jobs"}); len(l.Messages) != 0 {
		t.Errorf("after redrive and drop there are %v", l.Messages)
	}
	if r := must(t, q.admin.RedriveDead, &tubev1.RedriveDeadRequest{Group: "jobs"}); r.Redriven != 0 {
		t.Errorf("what was sent again is sent once more: %v", r)
	}
}

// Pause, resume, why, seek, purge and trace.
func queueOperator(t *testing.T, n *node, q *queues) {
	n.createTopic("ops", 1)
	q.group("ops", "ops", nil)
	why := func(want tubev1.QueueCause_Kind) {
		t.Helper()
		eventually(t, 10*time.Second, func() error {
			r := must(t, q.admin.ExplainGroup, &tubev1.ExplainGroupRequest{Group: "ops"})
			if !slices.ContainsFunc(r.Causes, func(c *tubev1.QueueCause) bool { return c.Kind == want }) || r.Summary == "" {
				return fmt.Errorf("why says %q, %v; want %v", r.Summary, r.Causes, want)
			}
			return nil
		})
	}
	why(tubev1.QueueCause_NOTHING_NEW)
	q.send("ops", out("1"), out("2"), out("3"))
	must(t, q.admin.PauseGroup, &tubev1.PauseGroupRequest{Group: "ops"})
	eventually(t, 5*time.Second, func() error {
		if r := must(t, q.admin.ExplainGroup, &tubev1.ExplainGroupRequest{Group: "ops"}); len(r.Causes) == 0 || r.Causes[0].Kind != tubev1.QueueCause_PAUSED {
			return fmt.Errorf("why says %v", r)
		}
		return nil
	})
	q.nothing("ops", "w")
	must(t, q.admin.ResumeGroup, &tubev1.ResumeGroupRequest{Group: "ops"})
	got := q.takeAll("ops", "w", 3)
	why(tubev1.QueueCause_ALL_LEASED)
	q.ack("ops", got...)
	seek := func(to *tubev1.Position) {
		t.Helper()
		must(t, q.admin.SeekGroup, &tubev1.SeekGroupRequest{Group: "ops", To: to})
	}
	seek(&tubev1.Position{At: &tubev1.Position_Start{Start: true}})
	expectValues(t, q.takeAll("ops", "w", 3), "1", "2", "3")
	seek(&tubev1.Position{At: &tubev1.Position_Offset{Offset: &tubev1.PartitionOffset{Offset: 2}}})
	held := q.takeAll("ops", "w", 1)
	expectValues(t, held, "3")
	if tr := must(t, q.admin.TraceMessage, &tubev1.TraceMessageRequest{Topic: "ops", Message: &tubev1.MessageRef{Ref: &tubev1.MessageRef_At{At: &tubev1.PartitionOffset{Offset: 2}}}}); len(tr.Groups) != 1 || tr.Groups[0].State != "leased" || tr.Groups[0].ConsumerId != "w" || !tr.Stored {
		t.Errorf("traced as %v", tr)
	}
	q.ack("ops", held...)
	q.send("ops", out("4"), out("5"))
	if r := must(t, q.admin.PurgeGroup, &tubev1.PurgeGroupRequest{Group: "ops"}); r.Purged != 2 {
		t.Errorf("purge answers %v", r)
	}
	q.nothing("ops", "w")
}

// A topic in memory is empty after a restart, and goes on.
func queueMemory(t *testing.T, n *node, q *queues) {
	n.createTopic("ram", 1, "tube.storage", "memory")
	q.group("ram", "ram", nil)
	q.send("ram", out("gone"), out("held"))
	q.take("ram", "w", 1, time.Second)
	n.kill()
	n.start()
	q.send("ram", out("new"))
	got := q.takeAll("ram", "w", 1)
	expectValues(t, got, "new")
	q.ack("ram", got...)
	q.nothing("ram", "w")
}

// Handed out counts as acknowledged: there is no lease, and it does not come again.
func queueAuto(t *testing.T, n *node, q *queues) {
	n.createTopic("trust", 2)
	q.group("trust", "trust", &tubev1.QueueSettings{Ack: proto.String("auto")})
	q.send("trust", out("1"), out("2"), out("3"))
	for _, m := range q.takeAll("trust", "w", 3) {
		if m.LeaseId != "" {
			t.Errorf("%s has lease %s", m.Value, m.LeaseId)
		}
	}
	n.kill()
	n.start()
	q.nothing("trust", "w")
}

// What a filter does not want is done with.
func queueFilter(t *testing.T, n *node, q *queues) {
	n.createTopic("lands", 1)
	q.group("lands", "lands", &tubev1.QueueSettings{Filter: proto.String(`"country" in headers && headers["country"] == "at"`)})
	q.send("lands", out("1", withHeader("country", "de")), out("2", withHeader("country", "at")), out("3"))
	got := q.takeAll("lands", "w", 1)
	expectValues(t, got, "2")
	q.ack("lands", got...)
	q.nothing("lands", "w")
	eventually(t, 5*time.Second, func() error {
		if g := must(t, q.admin.GetGroup, &tubev1.GetGroupRequest{Group: "lands"}); g.Total.Backlog != 0 {
			return fmt.Errorf("the backlog is %v", g.Total)
		}
		return nil
	})
	n.createTopic("parts", 2)
	q.group("second", "parts", &tubev1.QueueSettings{Filter: proto.String(`partition == 1 && topic == "parts" && offset >= 0 && size == 1`)})
	for range 2 { // calls take turns between partitions
		q.send("parts", out("x"))
	}
	if got := q.takeAll("second", "w", 1); got[0].Partition != 1 {
		t.Errorf("a filter for partition 1 lets %v through", got)
	}
	_, err := ask(t.Context(), q.admin.CreateGroup, &tubev1.CreateGroupRequest{Group: "bad", Topic: "lands", Settings: &tubev1.QueueSettings{Filter: proto.String("size >")}})
	if reasonOf(err) != tubev1.QueueErrorDetail_FILTER_INVALID {
		t.Errorf("a broken filter is answered with %v", err)
	}
}

// A group's rate is kept, over all its consumers.
func queueRate(t *testing.T, n *node, q *queues) {
	n.createTopic("slow", 1)
	q.group("slow", "slow", &tubev1.QueueSettings{MessagesPerSecond: proto.Float64(20)})
	var ms []*tubev1.OutgoingMessage
	for i := range 60 {
		ms = append(ms, out(fmt.Sprint(i)))
	}
	q.send("slow", ms...)
	begin := time.Now()
	q.ack("slow", q.takeAll("slow", "w", 50)...)
	// The first second's worth comes at once: 50 take no less than 1.5 s.
	if took := time.Since(begin); took < 1400*time.Millisecond {
		t.Errorf("50 messages at 20/s took %v", took)
	}
}

// A lease is the group's that gave it, and one at a time.
func queueLeases(t *testing.T, n *node, q *queues) {
	n.createTopic("leases", 1)
	q.group("one", "leases", &tubev1.QueueSettings{Lease: durationpb.New(time.Second), Backoff: []*durationpb.Duration{durationpb.New(0)}})
	q.group("two", "leases", nil)
	q.send("leases", out("m"))
	first := q.takeAll("one", "a", 1)
	for _, id := range []string{first[0].LeaseId, "0-0-1-9f3c", "0-0-1-1-1", "nonsense", ""} {
		r := must(t, q.Acknowledge, &tubev1.AcknowledgeRequest{Group: "two", LeaseIds: []string{id}}).Results[0]
		if r.Error == nil || r.Error.Reason != tubev1.QueueErrorDetail_LEASE_UNKNOWN {
			t.Errorf("lease %q of another group is answered with %v", id, r.Error)
		}
	}
	second := q.takeAll("one", "b", 1) // the first ran out
	if second[0].Attempt != 2 {
		t.Errorf("after a lease ran out it comes as attempt %d", second[0].Attempt)
	}
	r := must(t, q.Acknowledge, &tubev1.AcknowledgeRequest{Group: "one", LeaseIds: leaseIDs(first)}).Results[0]
	if r.Error == nil || r.Error.Reason != tubev1.QueueErrorDetail_LEASE_EXPIRED {
		t.Errorf("a lease that ended is answered with %v", r.Error)
	}
	q.ack("one", second...)
	q.ack("one", second...)
	q.nothing("one", "a")
	expectValues(t, q.takeAll("two", "c", 1), "m")
}

// An id's window counts from when the group is done, too: in a node as it is started, which
// comes to that a moment after its start.
func TestAnIDIsRememberedForItsWindowFromWhenTheGroupIsDone(t *testing.T) {
	n := newNode(t)
	q := n.queues()
	const window = time.Second
	n.createTopic("once", 1, "tube.dedupe.window", "1000")
	q.group("once", "once", nil)
	for i, deadline := 0, time.Now().Add(30*time.Second); ; i++ {
		id := withID(fmt.Sprint("id-", i))
		q.send("once", out("m", id))
		<-time.After(window + 100*time.Millisecond)
		q.ack("once", q.takeAll("once", "w", 1)...)
		if q.send("once", out("again", id))[0].Duplicate {
			eventually(t, 10*time.Second, func() error {
				if q.send("once", out("again", id))[0].Duplicate {
					return errors.New("the id is remembered still")
				}
				return nil
			})
			return
		}
		q.ack("once", q.takeAll("once", "w", 1)...)
		if time.Now().After(deadline) {
			t.Fatal("an id is forgotten as soon as its group is done")
		}
	}
}

// What was promised before kill -9 is kept after it: ids that are known, times that
// have not come, failures and what is done with.
func TestQueuesAfterAKill(t *testing.T) {
	n := newNode(t)
	q := n.queues()
	n.createTopic("once", 2, "tube.dedupe.window", "3600000")
	n.createTopic("later", 1)
	q.group("once", "once", &tubev1.QueueSettings{Backoff: []*durationpb.Duration{durationpb.New(0)}})
	q.group("later", "later", nil)
	first := q.send("once", out("a", withID("id-a")), out("b", withID("id-b")))
	got := q.takeAll("once", "w", 2)
	q.ack("once", got[0])
	q.nack("once", got[1], "failed", 0)
	q.send("later", out("cancelled", after(2*time.Second)), out("due", after(3*time.Second)), out("far", after(time.Hour)))
	due := time.Now().Add(3 * time.Second) // no less than what the node has
	cancelled := must(t, q.admin.CancelDelayed, &tubev1.CancelDelayedRequest{Topic: "later", Messages: []*tubev1.MessageRef{{Ref: &tubev1.MessageRef_At{At: &tubev1.PartitionOffset{}}}}})
	if cancelled.Results[0].Error != nil {
		t.Fatal(cancelled)
	}
	n.kill()
	n.start()
	again := q.send("once", out("a again", withID("id-a")), out("b again", withID("id-b")))
	for i := range again {
		if !again[i].Duplicate || again[i].Partition != first[i].Partition || again[i].Offset != first[i].Offset {
			t.Errorf("sent again it is answered with %v, the first time with %v", again[i], first[i])
		}
	}
	b := q.takeAll("once", "w", 1)
	if string(b[0].Value) != string(got[1].Value) || b[0].Attempt != 2 {
		t.Errorf("after the kill comes %v, want the one that failed", b)
	}
	q.ack("once", b...)
	q.nothing("once", "w")
	m := q.takeAll("later", "w", 1)
	expectValues(t, m, "due")
	if early := time.Until(due); early > 100*time.Millisecond { // what the calls above took
		t.Errorf("a delayed message came %v early", early)
	}
	q.ack("later", m...)
	eventually(t, 5*time.Second, func() error {
		l := must(t, q.admin.ListDelayed, &tubev1.ListDelayedRequest{Topic: "later"})
		if l.Total != 1 || len(l.Messages) != 1 || l.Messages[0].Offset != 2 {
			return errors.New(l.String())
		}
		return nil
	})
	moved := must(t, q.admin.RescheduleDelayed, &tubev1.RescheduleDelayedRequest{
		Topic: "later", Messages: []*tubev1.MessageRef{{Ref: &tubev1.MessageRef_At{At: &tubev1.PartitionOffset{Offset: 2}}}},
		When: &tubev1.RescheduleDelayedRequest_Delay{Delay: durationpb.New(0)},
	})
	if moved.Results[0].Error != nil {
		t.Fatal(moved)
	}
	expectValues(t, q.takeAll("later", "w", 1), "far")
}
