package meta

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

func (r *rig) topics(names ...string) (ids []record.TopicID) {
	r.t.Helper()
	for i, name := range names {
		ids = append(ids, record.TopicID{byte(i + 1)})
		r.ok(CreateTopic(now, ids[i], name, one(1), nil))
	}
	return ids
}

func (r *rig) share(group string, topic record.TopicID) *QueueGroup {
	r.t.Helper()
	return r.ok(CreateShareQueue(now, group, topic, r.m.Image().GroupConfig(group), "dead")).QueueGroup
}

// A share group has one queue group for each topic: the first has its name, one made by
// hand under its name is its own, and the same is never made twice.
func TestShareGroupsHaveAQueueGroupForEachTopic(t *testing.T) {
	r := newRig(t)
	ids := r.topics("orders", "payments", "billing", "dead")
	first := r.share("billing", ids[0])
	second := r.share("billing", ids[1])
	if first.Name != "billing" || second.Name != "billing@payments" || first.Share != "billing" || second.Share != "billing" {
		t.Fatalf("%+v, %+v", first, second)
	}
	if again := r.share("billing", ids[0]); again != r.m.Image().QueueGroup("billing") || again.ID != first.ID {
		t.Fatalf("made again: %+v", again)
	}
	if g := r.share("billing", ids[2]); g.Name != "billing@billing" { // the topic's own name is for its dead letters' keeper
		t.Fatalf("%+v", g)
	}
	if g := r.share("team a/b", ids[0]); g.Name != "team a/b@orders" {
		t.Fatalf("%+v", g)
	}
	hand := r.ok(CreateQueueGroup(now, "shipping", ids[0], queueSettings())).QueueGroup
	if g := r.share("shipping", ids[0]); g.ID != hand.ID {
		t.Fatalf("%+v, there was %+v", g, hand)
	}
	if g := r.share("shipping", ids[1]); g.Name != "shipping@payments" {
		t.Fatalf("%+v", g)
	}
	im := r.m.Image()
	if got := im.ShareGroups(); !slices.Equal(got, []string{"billing", "shipping", "team a/b"}) {
		t.Errorf("share groups %q", got)
	}
	var names []string
	for _, g := range im.ShareQueues("shipping") {
		names = append(names, g.Name)
	}
	if !slices.Equal(names, []string{"shipping", "shipping@payments"}) {
		t.Errorf("of shipping %q", names)
	}
	for _, bad := range []string{"", "a\nb", "\xff", strings.Repeat("x", 250)} {
		if err := CheckShareName(bad); err == nil {
			t.Errorf("%q can be a share group's", bad)
		}
	}
	r.ok(DeleteTopic(now, ids[1]))
	if r.m.Image().ShareQueue("billing", ids[1]) != nil {
		t.Error("a queue group of a topic that was deleted")
	}
}

// Settings hold for what the group reads through already and for what it begins with
// later, not for a queue group made by hand; they survive a snapshot.
func TestSettingsOfGroups(t *testing.T) {
	r := newRig(t)
	ids := r.topics("orders", "payments", "dead")
	r.ok(CreateQueueGroup(now, "g", ids[0], queueSettings()))
	r.share("g", ids[1])
	set := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	r.ok(AlterGroupConfig(now, "g", false, set("share.record.lock.duration.ms", "7200000", "share.delivery.count.limit", "9", "share.auto.offset.reset", "earliest"), nil))
	by := func(topic record.TopicID) queue.Settings { return r.m.Image().ShareQueue("g", topic).Settings }
	if s := by(ids[1]); s.Lease != 2*time.Hour || s.MaxAttempts != 9 || s.StartAtMillis != queue.StartAtEnd {
		t.Errorf("made for it: %+v", s)
	}
	if s := by(ids[0]); s.Lease != 30*time.Second || s.MaxAttempts != 5 {
		t.Errorf("made by hand: %+v", s)
	}
	if s := r.share("h", ids[0]).Settings; s.MaxInFlight != 2000 || s.StartAtMillis != queue.StartAtEnd || len(s.Backoff) != 0 {
		t.Errorf("a group without settings: %+v", s)
	}
	r.ok(AlterGroupConfig(now, "g", false, set("share.partition.max.record.locks", "10"), []string{"share.delivery.count.limit"}))
	if s := by(ids[1]); s.MaxAttempts != 5 || s.MaxInFlight != 10 || s.Lease != 2*time.Hour {
		t.Errorf("after the second change: %+v", s)
	}
	r.refused(AlterGroupConfig(now, "g", false, set("share.delivery.count.limit", "0"), nil), ErrInvalidConfig)
	r.refused(AlterGroupConfig(now, "g", false, set("share.delivery.count", "1"), nil), ErrInvalidConfig)
	r.refused(AlterGroupConfig(now, "\n", false, nil, nil), ErrInvalidQueueName)
	next := New()
	if err := next.Restore(r.m.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if c := next.Image().GroupConfig("g"); c.ShareLocks != 10 || !c.ShareFromStart || next.Image().ShareQueue("g", ids[1]).Share != "g" {
		t.Errorf("restored %+v", c)
	}
	r.ok(AlterGroupConfig(now, "g", true, nil, nil))
	if n := len(r.m.Image().GroupConfigs); n != 0 || by(ids[1]).Lease != 30*time.Second {
		t.Errorf("%d groups have settings, the queue group has %+v", n, by(ids[1]))
	}
}

func TestGroupsWithSettingsAreBounded(t *testing.T) {
	r := newRig(t)
	configs := map[string]map[string]string{}
	for i := range MaxGroupConfigs {
		configs[fmt.Sprint(i)] = map[string]string{"share.delivery.count.limit": "3"}
	}
	r.m.image.GroupConfigs = configs
	r.refused(AlterGroupConfig(now, "one more", false, configs["1"], nil), ErrInvalidConfig)
	r.ok(AlterGroupConfig(now, "1", true, nil, nil))
	r.ok(AlterGroupConfig(now, "one more", false, configs["2"], nil))
}

func TestTheTableOfGroupSettingsIsSound(t *testing.T) {
	table := GroupSettings()
	if !slices.IsSortedFunc(table, func(a, b GroupSetting) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not in the order of names")
	}
	for _, s := range table {
		if _, err := s.parse(s.Default); err != nil || s.Doc == "" || s.Effect != (s.apply != nil) {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
}

// A share group may begin with the records of some time ago.
func TestShareGroupsBeginByDuration(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	for text, want := range map[string]int64{
		"latest": queue.StartAtEnd, "Earliest": queue.StartAtStart, "by_duration:PT1H": now.Add(-time.Hour).UnixMilli(),
		"BY_DURATION:p1dt2h3m4.5s": now.Add(-26*time.Hour - 3*time.Minute - 4500*time.Millisecond).UnixMilli(), "by_duration:PT0S": queue.StartAtEnd,
		"by_duration:P99999D": 0,
		"by_duration:":        bad, "by_duration:P": bad, "by_duration:PT": bad, "by_duration:1h": bad, "by_duration:-PT1H": bad, "by_duration:P1Y": bad,
		"by_duration:DURATION": bad, "by_duration:P999999999D": bad, "sometime": bad,
	} {
		c, err := ResolveGroupConfig(map[string]string{"share.auto.offset.reset": text})
		if (err != nil) != (want == bad) {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if s := c.ShareSettings(now); err == nil && s.StartAtMillis != want {
			t.Errorf("%s begins at %d, want %d", text, s.StartAtMillis, want)
		}
	}
}

const bad = -99
