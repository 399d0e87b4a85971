package test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// trace is what groups have to do with a message of partition 0, by group.
func (q *queues) trace(topic string, offset int64) map[string]*tubev1.GroupTrace {
	q.t.Helper()
	out := map[string]*tubev1.GroupTrace{}
	at := &tubev1.MessageRef{Ref: &tubev1.MessageRef_At{At: &tubev1.PartitionOffset{Offset: offset}}}
	for _, g := range must(q.t, q.admin.TraceMessage, &tubev1.TraceMessageRequest{Topic: topic, Message: at}).Groups {
		out[g.Group] = g
	}
	return out
}

func (q *queues) why(group string) *tubev1.QueueCause {
	q.t.Helper()
	return must(q.t, q.admin.ExplainGroup, &tubev1.ExplainGroupRequest{Group: group}).Causes[0]
}

// Where a message of an ordered key is, and what it waits for, is told of each: who has
// its key, which failed and comes again, which one is dead, and where.
func TestWhatIsToldOfOrderedMessages(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 1)
	q := n.queues()
	q.group("g", "t", &tubev1.QueueSettings{MaxAttempts: proto.Int32(2), Order: proto.String("key"), Backoff: []*durationpb.Duration{durationpb.New(time.Hour)}})
	for _, v := range []string{"first", "second", "third"} {
		q.send("t", out(v, withKey("k")))
	}
	first := q.takeAll("g", "a", 1)[0]
	// Nobody has asked for the others yet; it is known all the same what they wait for.
	if x := q.trace("t", 2)["g"]; x.State != "blocked" || !strings.Contains(x.Text, "offset 0") {
		t.Errorf("the trace of the third: %v", x)
	}
	q.nothing("g", "a")
	blocked := func(last string) {
		t.Helper()
		if x := q.trace("t", 1)["g"]; x.State != "blocked" || !strings.Contains(x.Text, "offset 0") {
			t.Errorf("the trace of the second: %v", x)
		}
		list := must(t, q.admin.ListPending, &tubev1.ListPendingRequest{Group: "g", State: "blocked"}).Messages
		if len(list) != 2 || list[0].Offset != 1 || list[0].BlockedBy != 0 || list[1].BlockedBy != 0 {
			t.Errorf("blocked are: %v", list)
		}
		if c := q.why("g"); c.Kind != tubev1.QueueCause_KEY_BLOCKED || c.Offset != 0 || string(c.Key) != "k" || !strings.Contains(c.Text, last) {
			t.Errorf("why: %v", c)
		}
	}
	blocked(`consumer "a"`)
	q.nack("g", first, "not today", time.Hour)
	blocked("tried again")
	if x := q.trace("t", 0)["g"]; x.State != "backing-off" || x.Attempts != 1 || x.LastReason != "not today" {
		t.Errorf("the trace of the first: %v", x)
	}
	retry := &tubev1.RetryPendingRequest{Group: "g", Messages: []*tubev1.MessageRef{{Ref: &tubev1.MessageRef_At{At: &tubev1.PartitionOffset{}}}}}
	if e := must(t, q.admin.RetryPending, retry).Results[0].Error; e != nil {
		t.Fatal(e)
	}
	first = q.takeAll("g", "a", 1)[0]
	if e := must(t, q.Nack, &tubev1.NackRequest{Group: "g", Entries: []*tubev1.NackEntry{{LeaseId: first.LeaseId, Reason: "never", Dead: true}}}).Results[0].Error; e != nil {
		t.Fatal(e)
	}
	q.takeAll("g", "a", 1) // the second, as the first is dead
	if x := q.trace("t", 0)["g"]; x.State != "dead" || x.DeadLetter != "0/0" || x.LastReason != "never" || x.Attempts != 1 {
		t.Errorf("the trace of the dead: %v", x)
	}
	if g := must(t, q.admin.GetGroup, &tubev1.GetGroupRequest{Group: "g"}); g.Partitions[0].Oldest == nil {
		t.Errorf("the oldest is not told: %v", g.Partitions[0])
	}
}

// A broadcast group that no consumer has come to is explained like any other.
func TestABroadcastGroupWithoutConsumersIsExplained(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 1)
	q := n.queues()
	q.group("g", "t", &tubev1.QueueSettings{Mode: proto.String("broadcast")})
	if c := q.why("g"); c.Kind != tubev1.QueueCause_NO_CONSUMER {
		t.Errorf("%v", c)
	}
}
