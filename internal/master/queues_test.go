package master

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/filter"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
)

func TestAGroupHasATopicForItsDeadLetters(t *testing.T) {
	c := newLog(t, "", "", "")
	m := c.master(1)
	if _, err := m.CreateTopic(t.Context(), TopicSpec{Name: "orders", Partitions: 4, ReplicationFactor: 3, Settings: map[string]string{"max.message.bytes": "5000"}}); err != nil {
		t.Fatal(err)
	}
	g, err := m.CreateQueueGroup(t.Context(), "billing", "orders", queue.DefaultSettings())
	if err != nil {
		t.Fatal(err)
	}
	dead := c.image().Topic("billing.dead-letter")
	if g.Settings.DeadLetter != "billing.dead-letter" || dead == nil || len(dead.Partitions) != 1 || len(dead.Partitions[0].Replicas) != 3 {
		t.Fatalf("%+v, %+v", g, dead)
	}
	if dead.Config.Retention >= 0 || dead.Config.MaxMessageBytes < 5000+1000 {
		t.Errorf("dead letters are kept for %v and have %d bytes", dead.Config.Retention, dead.Config.MaxMessageBytes)
	}
	// The group that comes after it finds the topic there.
	if err := m.DeleteQueueGroup(t.Context(), "billing"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.CreateQueueGroup(t.Context(), "billing", "orders", queue.DefaultSettings()); err != nil {
		t.Fatal(err)
	}
}

func TestAGroupThatIsRefusedMakesNoTopic(t *testing.T) {
	c := newLog(t, "")
	m := c.master(1)
	if _, err := m.CreateTopic(t.Context(), TopicSpec{Name: "orders", Partitions: 1, ReplicationFactor: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.CreateQueueGroup(t.Context(), "there", "orders", queue.DefaultSettings()); err != nil {
		t.Fatal(err)
	}
	before := c.proposals()
	for name, x := range map[string]struct {
		group, topic string
		change       func(*queue.Settings)
		want         error
	}{
		"name":        {"a b", "orders", func(*queue.Settings) {}, meta.ErrInvalidQueueName},
		"there":       {"there", "orders", func(*queue.Settings) {}, meta.ErrQueueGroupExists},
		"topic":       {"q", "nothing", func(*queue.Settings) {}, meta.ErrUnknownTopic},
		"setting":     {"q", "orders", func(s *queue.Settings) { s.Lease = 0 }, queue.ErrInvalidSetting},
		"filter":      {"q", "orders", func(s *queue.Settings) { s.Filter = "colour == 1" }, queue.ErrInvalidFilter},
		"dead letter": {"q", "orders", func(s *queue.Settings) { s.DeadLetter = "nothing" }, meta.ErrUnknownTopic},
		"itself":      {"q", "orders", func(s *queue.Settings) { s.DeadLetter = "orders" }, queue.ErrInvalidSetting},
		"too long":    {strings.Repeat("q", 240), "orders", func(*queue.Settings) {}, meta.ErrInvalidQueueName},
	} {
		s := queue.DefaultSettings()
		x.change(&s)
		_, err := m.CreateQueueGroup(t.Context(), x.group, x.topic, s)
		if !errors.Is(err, x.want) {
			t.Errorf("%s: %v", name, err)
		}
		var at *filter.SyntaxError
		if name == "filter" && (!errors.As(err, &at) || at.Column != 1) {
			t.Errorf("%v", err)
		}
	}
	if n := c.proposals(); n != before {
		t.Errorf("%d commands were proposed", n-before)
	}
}

// Two who change different settings at the same time both have their way.
func TestUpdatesDoNotUndoEachOther(t *testing.T) {
	c := newLog(t, "")
	m := c.master(1)
	if _, err := m.CreateTopic(t.Context(), TopicSpec{Name: "orders", Partitions: 1, ReplicationFactor: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.CreateQueueGroup(t.Context(), "q", "orders", queue.DefaultSettings()); err != nil {
		t.Fatal(err)
	}
	times := 0
	_, err := m.UpdateQueueGroup(t.Context(), "q", func(s *queue.Settings) error {
		if times++; times == 1 {
			if _, err := m.UpdateQueueGroup(t.Context(), "q", func(s *queue.Settings) error { s.MaxAttempts = 9; return nil }); err != nil {
				return err
			}
		}
		s.Lease = time.Minute
		return nil
	})
	g := c.image().QueueGroup("q")
	if err != nil || times != 2 || g.Settings.MaxAttempts != 9 || g.Settings.Lease != time.Minute {
		t.Fatalf("%v, %d times, %+v", err, times, g.Settings)
	}
	if _, err := m.PauseQueueGroup(t.Context(), "q", true); err != nil || !c.image().QueueGroup("q").Settings.Paused {
		t.Errorf("paused: %v", err)
	}
	_, err = m.UpdateQueueGroup(t.Context(), "nobody", nil)
	wantErr(t, err, queue.ErrUnknownGroup)
}
