package test

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// A topic keeps what a queue group with retain-until-consumed is not done with, up to the
// hard limit. That the limit is near, and before messages go that they do, is in the
// cluster's events, in the metrics and in what the group is asked for.
func TestWhatRetentionTakesFromAQueueGroupIsToldBefore(t *testing.T) {
	n := newNode(t, "--retention-interval", "100ms")
	n.createTopic("orders", 1, "segment.bytes", "1048576", "retention.bytes", "1", "tube.queue.retain.bytes", "4194304", "tube.queue.retain.ms", "-1")
	q := n.queues()
	q.group("billing", "orders", &tubev1.QueueSettings{RetainUntilConsumed: proto.Bool(true)})
	told := func() (events, why string, used float64) {
		t.Helper()
		used, err := n.metric("tube_queue_retention_used_ratio")
		if err != nil {
			t.Fatal(err)
		}
		return n.says("cluster", "events"), n.says("queue", "why", "billing"), used
	}
	const sentence = "of what retention keeps"
	send := func(count int) {
		t.Helper()
		for range count {
			q.send("orders", out(string(bytes.Repeat([]byte("x"), 64<<10))))
		}
	}
	unsaid := func(when string) {
		t.Helper()
		events, why, used := told()
		if strings.Contains(events, "queue-retention-near") || strings.Contains(events, "queue-messages-lost") || strings.Contains(why, sentence) || used != 0 {
			t.Fatalf("%s: %v\n%s%s", when, used, why, events)
		}
	}
	send(16)
	unsaid("of 4 MiB 1 is there")

	// Four segments and a half: without the first it is 3.5 MiB.
	send(56)
	eventually(t, 30*time.Second, func() error {
		events, why, used := told()
		if !strings.Contains(events, "queue-retention-near") || !strings.Contains(why, sentence) || used < 0.8 || used >= 1 {
			return fmt.Errorf("of 4 MiB the last is in use, and it is told: %v\n%s%s", used, why, events)
		}
		return nil
	})
	if start := n.logStart("orders"); start != 0 || strings.Contains(n.says("cluster", "events"), "queue-messages-lost") {
		t.Fatalf("below the limit the log begins at %d", start)
	}

	// Beyond the limit. Once something is gone the event is there: it came before.
	send(32)
	start := int64(0)
	eventually(t, 30*time.Second, func() error {
		if start = n.logStart("orders"); start == 0 {
			return fmt.Errorf("nothing goes")
		}
		return nil
	})
	if events := n.says("cluster", "events"); !strings.Contains(events, "queue-messages-lost") || !strings.Contains(events, "of orders/0 that queue group billing is not done with") {
		t.Fatalf("messages went and there is no event:\n%s", events)
	}
	eventually(t, 30*time.Second, func() error {
		lost, err := n.metric("tube_queue_lost_messages_total")
		if start = n.logStart("orders"); err == nil && (lost != float64(start) || start < 16) {
			err = fmt.Errorf("%v messages are counted as lost, the log begins at %d", lost, start)
		}
		return err
	})

	// A group that is done with everything is not behind.
	for left := 104 - start; left > 0; {
		got := q.take("billing", "a", 100, 10*time.Second)
		q.ack("billing", got...)
		left -= int64(len(got))
	}
	eventually(t, 30*time.Second, func() error {
		if _, why, used := told(); strings.Contains(why, sentence) || used != 0 {
			return fmt.Errorf("the group is done with everything, and it is told: %v\n%s", used, why)
		}
		return nil
	})
}

// says is what a command of the command line prints.
func (n *node) says(args ...string) string {
	n.t.Helper()
	b, err := exec.Command(tubeBinary, append(args, "--http", n.http, "--kafka", n.kafka)...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("tube %s: %v\n%s", strings.Join(args, " "), err, b)
	}
	return string(b)
}

// logStart is where partition 0 begins.
func (n *node) logStart(topic string) int64 {
	n.t.Helper()
	l, err := n.admin().ListStartOffsets(timeout(n.t, 10*time.Second), topic)
	if err != nil {
		n.t.Fatal(err)
	}
	o, ok := l.Lookup(topic, 0)
	if !ok || o.Err != nil {
		n.t.Fatalf("%+v", l)
	}
	return o.Offset
}
