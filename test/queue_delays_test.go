package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// sendLater sends messages that are due in an hour and more, a millisecond apart.
func sendLater(q *queues, topic string, calls, each int) {
	for call := range calls {
		list := make([]*tubev1.OutgoingMessage, each)
		for i := range list {
			list[i] = out("x", after(time.Hour+time.Duration(call*each+i)*time.Millisecond))
		}
		q.send(topic, list...)
	}
}

// More delayed messages than the node may keep the times of in memory: the others are on
// disk, none is gone after kill -9, and each comes when it is due.
func TestDelayedMessagesBeyondTheMemoryForThem(t *testing.T) {
	const calls, each, memory = 30, 10_000, 1 << 20
	n := newNode(t, "--delayed-memory=1MiB")
	n.createTopic("later", 1)
	q := n.queues()
	q.group("g", "later", nil)
	sendLater(q, "later", calls, each)
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
		if moved := must(t, q.admin.RescheduleDelayed, reschedule("later", time.Second, o)); moved.Results[0].Error != nil {
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

// The file with what the leader does not keep in memory rots: whoever needs a block of it
// finds out, another replica leads, with all that waits, and the damaged one is made anew.
func TestDamagedDelaysAreCopiedFromTheOthers(t *testing.T) {
	const calls, each, memory = 20, 10_000, 1 << 20
	c := newCluster(t, 3, "--delayed-memory=1MiB")
	c.createTopic("later", 1)
	q := c.node(1).queues()
	q.group("g", "later", nil)
	sendLater(q, "later", calls, each)
	lead := c.leader("later", 0)
	damaged := c.node(lead)
	eventually(t, 20*time.Second, func() error {
		if n, err := damaged.metric("tube_delayed_swapped_messages"); err != nil || n < calls*each-memory/8 {
			return fmt.Errorf("%.0f messages are out of memory: %w", n, err)
		}
		return nil
	})
	rot(t, filepath.Join(damaged.dir, "delayed.swap"))
	// Which are out of memory depends on when the node looked. A third of them is, so some of 20
	// that are spread over all are.
	var some []int64
	for o := int64(0); o < calls*each; o += calls * each / 20 {
		some = append(some, o)
	}
	list := func() error {
		r, err := ask(t.Context(), q.admin.ListDelayed, &tubev1.ListDelayedRequest{Topic: "later"})
		if err == nil && r.Total != calls*each {
			err = fmt.Errorf("%d wait, %d were sent", r.Total, calls*each)
		}
		return err
	}
	eventually(t, 30*time.Second, func() error {
		if _, err := ask(t.Context(), q.admin.RescheduleDelayed, reschedule("later", time.Hour, some...)); err != nil {
			return err
		}
		if !damaged.log.contains("swapped block of the index of delayed messages is damaged") {
			return fmt.Errorf("the damage is not found: %s", damaged.log)
		}
		if !damaged.log.contains("replica brought up to date by a copy") {
			return errors.New("the damaged replica is not made anew")
		}
		return list()
	})
	c.waitWhole("later", 3)
	damaged.alive()
	c.must(1, "cluster", "transfer-leader", "later/0", fmt.Sprint(lead))
	eventually(t, 20*time.Second, list)
	must(t, q.admin.RescheduleDelayed, reschedule("later", time.Second, 100, calls*each-100))
	for _, m := range q.takeAll("g", "w", 2) {
		if m.Offset != 100 && m.Offset != calls*each-100 {
			t.Errorf("message %d came", m.Offset)
		}
	}
	q.nothing("g", "w")
}

// rot changes a byte in every KiB of a file that somebody uses.
func rot(t *testing.T, name string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	for at := int64(100); ; at += 1024 {
		if n, _ := f.ReadAt(b, at); n == 0 {
			return
		}
		b[0] ^= 0x10
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
}

func reschedule(topic string, delay time.Duration, offsets ...int64) *tubev1.RescheduleDelayedRequest {
	q := &tubev1.RescheduleDelayedRequest{Topic: topic, When: &tubev1.RescheduleDelayedRequest_Delay{Delay: durationpb.New(delay)}}
	for _, o := range offsets {
		q.Messages = append(q.Messages, &tubev1.MessageRef{Ref: &tubev1.MessageRef_At{At: &tubev1.PartitionOffset{Offset: o}}})
	}
	return q
}
