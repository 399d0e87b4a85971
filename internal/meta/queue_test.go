package meta

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

func queueSettings() queue.Settings {
	s := queue.DefaultSettings()
	s.DeadLetter = "dead"
	return s
}

// queue makes the commands of scripts about queue groups.
func (w *scripted) queue(cmd string) []byte {
	name := w.word("queue", "")
	g := w.m.Image().QueueGroup(name)
	if g == nil {
		g = &QueueGroup{ID: 999, Settings: queueSettings()}
	}
	s := g.Settings
	s.DeadLetter = w.word("dead", s.DeadLetter)
	s.OrderByKey = w.word("order", map[bool]string{true: "key"}[s.OrderByKey]) == "key"
	s.MaxAttempts = w.number("attempts", s.MaxAttempts)
	s.Filter = strings.Repeat("x", w.number("filter-bytes", 0))
	switch cmd {
	case "queue-create":
		return CreateQueueGroup(w.now, name, w.partition(w.word("topic", "")+"/0").Topic, s)
	case "queue-update":
		return UpdateQueueGroup(w.now, g.ID, record.Index(w.number("version", int(g.Version))), s)
	case "queue-pause", "queue-resume":
		return PauseQueueGroup(w.now, g.ID, cmd == "queue-pause")
	case "queue-retention":
		return NoteQueueRetention(w.now, g.ID, 0, w.number("used", 0), int64(w.number("goes", 0)))
	case "queue-delete":
		return DeleteQueueGroup(w.now, g.ID)
	}
	w.d.Fatalf(w.t, "what is %q?", cmd)
	return nil
}

func (w *scripted) queues() {
	im := w.m.Image()
	fmt.Fprintf(&w.out, "last id %d\n", im.LastQueueGroup)
	groups := slices.SortedFunc(maps.Values(im.QueueGroups), func(a, b *QueueGroup) int { return cmp.Compare(a.ID, b.ID) })
	for _, g := range groups {
		paused := ""
		if g.Settings.Paused {
			paused = ", paused"
		}
		fmt.Fprintf(&w.out, "%d: %s of %s, attempts %d, dead letters to %s%s\n", g.ID, g.Name, im.Topics[g.Topic].Name, g.Settings.MaxAttempts, g.Settings.DeadLetter, paused)
	}
	count := 0
	for topic, of := range im.queuesByTopic {
		count += len(of)
		for _, g := range of {
			if im.QueueGroups[g.Name] != g || g.Topic != topic {
				w.t.Errorf("group %s is told differently by topic", g.Name)
			}
		}
	}
	if count != len(groups) {
		w.t.Errorf("%d groups by topic, %d by name", count, len(groups))
	}
}

// Who has data of a group drops it when metadata deleted it, not when this image
// does not know it yet.
func TestAGroupThatIsNotKnownYetIsNotDeleted(t *testing.T) {
	r := newRig(t)
	topic := record.TopicID{1}
	r.ok(CreateTopic(now, topic, "t", one(1), nil))
	r.ok(CreateTopic(now, record.TopicID{2}, "dead", one(1), nil))
	g := r.ok(CreateQueueGroup(now, "q", topic, queueSettings())).QueueGroup
	old := r.m.Image()
	r.ok(DeleteQueueGroup(now, g.ID))
	again := r.ok(CreateQueueGroup(now, "q", topic, queueSettings())).QueueGroup
	if again.ID <= g.ID {
		t.Fatalf("id %d was given again", again.ID)
	}
	for _, c := range []struct {
		im   *Image
		id   queue.GroupID
		want bool
	}{{old, g.ID, false}, {old, again.ID, false}, {r.m.Image(), g.ID, true}, {r.m.Image(), again.ID, false}, {r.m.Image(), again.ID + 1, false}} {
		if got := c.im.QueueGroupDeleted(topic, c.id); got != c.want {
			t.Errorf("group %d at index %d: deleted is %v", c.id, c.im.Index, got)
		}
	}
}

func TestQueueGroupsHaveALimit(t *testing.T) {
	r := newRig(t)
	topic := record.TopicID{1}
	r.ok(CreateTopic(now, topic, "t", one(1), nil))
	r.ok(CreateTopic(now, record.TopicID{2}, "dead", one(1), nil))
	groups := map[string]*QueueGroup{}
	for i := range MaxQueueGroups {
		g := &QueueGroup{ID: queue.GroupID(i + 1), Name: fmt.Sprint("q", i), Topic: topic}
		groups[g.Name] = g
	}
	im := *r.m.image
	im.QueueGroups = groups
	r.m.image = &im
	got := r.m.Apply(99, CreateQueueGroup(now, "q", topic, queueSettings()))
	if !errors.Is(got.Err, ErrTooManyQueueGroups) {
		t.Fatal(got.Err)
	}
}

func TestSettingsOfAQueueHaveBounds(t *testing.T) {
	for field, change := range map[string]func(*queue.Settings){
		"max_attempts":        func(s *queue.Settings) { s.MaxAttempts = 0 },
		"lease":               func(s *queue.Settings) { s.Lease = 13 * time.Hour },
		"max_handling":        func(s *queue.Settings) { s.MaxHandling = time.Second },
		"backoff can":         func(s *queue.Settings) { s.Backoff = make([]time.Duration, 33) },
		"backoff[1]":          func(s *queue.Settings) { s.Backoff = []time.Duration{0, -1} },
		"messages_per_second": func(s *queue.Settings) { s.Rate = math.NaN() },
		"bytes_per_second":    func(s *queue.Settings) { s.RateBytes = math.Inf(1) },
		"max_in_flight":       func(s *queue.Settings) { s.MaxInFlight = 1_000_001 },
		"filter":              func(s *queue.Settings) { s.Filter = strings.Repeat("x", queue.MaxFilterBytes+1) },
		"idle_consumer":       func(s *queue.Settings) { s.IdleMember = time.Second },
		"from":                func(s *queue.Settings) { s.StartAtMillis = -3 },
		"after_dead":          func(s *queue.Settings) { s.ParkKey = true },
		"order":               func(s *queue.Settings) { s.OrderByKey, s.AutoAck = true, true },
		"dead_letter":         func(s *queue.Settings) { s.DeadLetter = strings.Repeat("x", 250) },
	} {
		s := queueSettings()
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		change(&s)
		if err := s.Check(); !errors.Is(err, queue.ErrInvalidSetting) || !strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), "not ") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
