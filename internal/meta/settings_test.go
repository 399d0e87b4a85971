package meta

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// FindTopicSetting looks by halving: it needs the order.
func TestSettingsAreInOrder(t *testing.T) {
	if !slices.IsSortedFunc(topicSettings, func(a, b TopicSetting) int { return strings.Compare(a.Name, b.Name) }) {
		t.Fatal("the table is not sorted by name")
	}
	for _, s := range topicSettings {
		if _, err := s.parse(s.Default); err != nil || s.Doc == "" || s.Kind == "" {
			t.Errorf("%s: default %q, %v", s.Name, s.Default, err)
		}
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for _, c := range []struct{ name, value, says string }{
		{"retention.ms", "soon", "whole number"},
		{"retention.ms", "-2", "whole number"},
		{"retention.ms", "9223372036854775808", "whole number"},
		{"segment.bytes", "2147483648", "whole number"},
		{"max.message.bytes", "-1", "whole number"},
		{"min.cleanable.dirty.ratio", "1.1", "from 0 to 1"},
		{"min.cleanable.dirty.ratio", "NaN", "from 0 to 1"},
		{"cleanup.policy", "compact", "it can be delete"},
		{"compression.type", "gzip", "it can be producer"},
		{"unclean.leader.election.enable", "true", "it can be false"},
		{"tube.durability", "", "quorum-memory"},
		{"retention.mss", "1", `did you mean "retention.ms"?`},
		{"what.is.this.meant.to.be", "1", "there is no setting"},
		// A value goes into every node's metadata as it is written.
		{"retention.ms", strings.Repeat(" ", 1<<20) + "1", "bytes long"},
		{"min.cleanable.dirty.ratio", "0." + strings.Repeat("0", 1<<20) + "1", "bytes long"},
	} {
		for where, err := range map[string]error{
			"topic":   func() error { _, err := ResolveTopicConfig(map[string]string{c.name: c.value}, nil); return err }(),
			"default": checkDefaults(map[string]string{c.name: c.value}),
		} {
			if !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 400 {
				t.Errorf("%s %s=%.20q: %.200v, want it to say %q", where, c.name, c.value, err, c.says)
			}
		}
	}
}

// The nearest name is not looked for among names that nobody means: the time it
// takes grows with the name.
func TestUnknownSettingIsAnsweredInShortTime(t *testing.T) {
	_, err := ResolveTopicConfig(map[string]string{strings.Repeat("n", 8<<20): "1"}, nil)
	if !errors.Is(err, ErrInvalidConfig) || len(err.Error()) > 400 || strings.Contains(err.Error(), "did you mean") {
		t.Fatalf("%.200v", err)
	}
}

// A topic's batches do not move between disk and memory, so no default may make
// them: what is on disk would be taken for lost, or the other way round.
func TestStorageOfTopicsThatAreThereStays(t *testing.T) {
	r := newRig(t)
	log, mem := record.TopicID{1}, record.TopicID{2}
	r.ok(CreateTopic(now, log, "log", one(1), nil))
	r.ok(CreateTopic(now, mem, "mem", one(1), map[string]string{"tube.storage": "memory"}))
	everyTopic := record.TopicID{}
	r.refused(AlterConfig(now, log, false, map[string]string{"tube.storage": "memory"}, nil), ErrInvalidConfig)
	r.refused(AlterConfig(now, mem, false, nil, []string{"tube.storage"}), ErrInvalidConfig)
	r.refused(AlterConfig(now, everyTopic, false, map[string]string{"tube.storage": "memory"}, nil), ErrInvalidConfig)
	if im := r.m.Image(); im.Topic("log").Config.MemoryOnly || !im.Topic("mem").Config.MemoryOnly {
		t.Fatal("a topic's storage changed")
	}
	// Where every topic says for itself, or there is none, the default may change.
	r.ok(DeleteTopic(now, log))
	r.ok(AlterConfig(now, everyTopic, false, map[string]string{"tube.storage": "memory"}, nil))
	r.ok(AlterConfig(now, everyTopic, false, map[string]string{"retention.ms": "2000"}, nil))
	if c := r.m.Image().Topic("mem").Config; !c.MemoryOnly || c.Retention != 2*time.Second {
		t.Fatalf("%+v", c)
	}
}
