package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// More delayed messages than the node may keep the times of in memory: the others are on
// disk, none is gone after kill -9, and each comes when it is due.
func TestDelayedMessagesBeyondTheMemoryForThem(t *testing.T) {
	const calls, each, memory = 30, 10_000, 1 << 20
	n := newNode(t, "--delayed-memory=1MiB")
	n.createTopic("later", 1)
	q := n.queues()
	q.group("g", "later", nil)
	for call := range calls {
		list := make([]*tubev1.OutgoingMessage, each)
		for i := range list {
			list[i] = out("x", after(time.Hour+time.Duration(call*each+i)*time.Millisecond))
		}
		q.send("later", list...)
	}
	swapped := func() {
		t.Helper()
		eventually(t, 20*time.Second, func() error {
			out, err := n.metric("tube_delayed_swapped_messages")
			held, err2 := n.metric("tube_delayed_memory_bytes")
			if err != nil || err2 != nil || out < calls*each-memory/8 || held > memory+memory/8 {
				return fmt.Errorf("%.0f messages are out of memory, %.0f bytes in it: %w, %w", out, held, err, err2)
			}
			return nil
		})
		if l := must(t, q.admin.ListDelayed, &tubev1.ListDelayedRequest{Topic: "later"}); l.Total != calls*each {
			t.Fatalf("%d wait, %d were sent", l.Total, calls*each)
		}
	}
	swapped()
	n.kill()
	n.start()
	swapped()
	for _, o := range []int64{100_000, 200_000} {
		moved := must(t, q.admin.RescheduleDelayed, &tubev1.RescheduleDelayedRequest{
			Topic: "later", Messages: []*tubev1.MessageRef{{Ref: &tubev1.MessageRef_At{At: &tubev1.PartitionOffset{Offset: o}}}},
			When: &tubev1.RescheduleDelayedRequest_Delay{Delay: durationpb.New(time.Second)},
		})
		if moved.Results[0].Error != nil {
			t.Fatal(moved)
		}
	}
	for _, m := range q.takeAll("g", "w", 2) {
		if m.Offset != 100_000 && m.Offset != 200_000 {
			t.Errorf("message %d came", m.Offset)
		}
	}
	q.nothing("g", "w")
}

// How many messages wait is told of all partitions, however few are listed.
func TestDelayedMessagesOfAllPartitionsAreCounted(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 4)
	q := n.queues()
	for i := range 40 {
		q.send("t", out("later", withKey(strings.Repeat("k", i+1)), after(time.Hour)))
	}
	page := must(t, q.admin.ListDelayed, &tubev1.ListDelayedRequest{Topic: "t", Limit: 3})
	if page.Total != 40 || len(page.Messages) != 3 {
		t.Errorf("%d of %d are listed, want 3 of 40", len(page.Messages), page.Total)
	}
	seen, total := len(page.Messages), page.Total
	for page.NextPageToken != "" {
		page = must(t, q.admin.ListDelayed, &tubev1.ListDelayedRequest{Topic: "t", Limit: 3, PageToken: page.NextPageToken})
		seen, total = seen+len(page.Messages), total+page.Total
	}
	if seen != 40 || total != 40 {
		t.Errorf("%d are listed in all, %d counted", seen, total)
	}
}
