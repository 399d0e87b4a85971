package test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// A key that is parked stays until somebody says what is to become of its message: it is
// handed out again, or set aside, and then those behind it come.
func TestParkedKeysAreRetriedOrSkipped(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 1)
	q := n.queues()
	q.group("g", "t", &tubev1.QueueSettings{
		MaxAttempts: proto.Int32(1), Order: proto.String("key"), AfterDead: proto.String("park"), Backoff: []*durationpb.Duration{durationpb.New(0)},
	})
	q.send("t", out("first", withKey("k"), withID("f")))
	q.send("t", out("second", withKey("k")))
	retry := func(skip bool, m *tubev1.MessageRef) *tubev1.ItemError {
		t.Helper()
		r := must(t, q.admin.RetryPending, &tubev1.RetryPendingRequest{Group: "g", Messages: []*tubev1.MessageRef{m}, Skip: skip})
		return r.Results[0].Error
	}
	at := func(offset int64) *tubev1.MessageRef {
		return &tubev1.MessageRef{Ref: &tubev1.MessageRef_At{At: &tubev1.PartitionOffset{Offset: offset}}}
	}
	park := func() {
		t.Helper()
		got := q.takeAll("g", "a", 1)
		if string(got[0].Value) != "first" || got[0].Attempt != 1 {
			t.Fatalf("%v", got)
		}
		q.nack("g", got[0], "no", 0)
		q.nothing("g", "a")
	}
	park()
	for _, x := range []struct {
		m    *tubev1.MessageRef
		want tubev1.QueueErrorDetail_Reason
	}{
		{at(1), tubev1.QueueErrorDetail_LEASE_UNKNOWN}, // it has not failed
		{at(9), tubev1.QueueErrorDetail_LEASE_UNKNOWN},
		{&tubev1.MessageRef{Ref: &tubev1.MessageRef_Id{Id: "none"}}, tubev1.QueueErrorDetail_UNKNOWN_MESSAGE},
	} {
		if e := retry(true, x.m); e.GetReason() != x.want {
			t.Errorf("%v: %v, want %v", x.m, e, x.want)
		}
	}
	q.nothing("g", "a")
	if e := retry(false, &tubev1.MessageRef{Ref: &tubev1.MessageRef_Id{Id: "f"}}); e != nil {
		t.Fatal(e)
	}
	park()
	if e := retry(true, at(0)); e != nil {
		t.Fatal(e)
	}
	got := q.takeAll("g", "a", 1)
	if string(got[0].Value) != "second" {
		t.Errorf("after the first was skipped comes %v", got)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if dead := must(t, q.admin.ListDead, &tubev1.ListDeadRequest{Group: "g"}).Messages; len(dead) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("what was skipped is no dead letter")
		}
	}
}
