package master

import (
	"maps"
	"testing"

	"github.com/tube-mq/tube/internal/meta"
)

func TestConfigChanges(t *testing.T) {
	old := map[string]string{"retention.ms": "1000", "segment.ms": "5000"}
	for name, x := range map[string]struct {
		change ConfigChange
		want   error
		then   map[string]string
	}{
		"set":               {ConfigChange{Set: map[string]string{"retention.ms": "7"}}, nil, map[string]string{"retention.ms": "7", "segment.ms": "5000"}},
		"remove":            {ConfigChange{Remove: []string{"retention.ms", "none"}}, nil, map[string]string{"segment.ms": "5000"}},
		"remove and set":    {ConfigChange{Set: map[string]string{"segment.ms": "6"}, Remove: []string{"segment.ms"}}, nil, map[string]string{"retention.ms": "1000", "segment.ms": "6"}},
		"replace":           {ConfigChange{Replace: true, Set: map[string]string{"segment.ms": "6"}}, nil, map[string]string{"segment.ms": "6"}},
		"replace by none":   {ConfigChange{Replace: true}, nil, map[string]string{}},
		"unknown":           {ConfigChange{Set: map[string]string{"retention.mss": "7"}}, meta.ErrInvalidConfig, old},
		"bad":               {ConfigChange{Set: map[string]string{"segment.ms": "6", "retention.ms": "soon"}}, meta.ErrInvalidConfig, old},
		"storage":           {ConfigChange{Set: map[string]string{"tube.storage": "memory"}}, meta.ErrInvalidConfig, old},
		"of no such topic":  {ConfigChange{Topic: "none"}, meta.ErrUnknownTopic, old},
		"default":           {ConfigChange{Topic: everyTopic, Set: map[string]string{"retention.ms": "9"}}, nil, old},
		"default: storage":  {ConfigChange{Topic: everyTopic, Set: map[string]string{"tube.storage": "memory"}}, meta.ErrInvalidConfig, old},
		"default: unknown":  {ConfigChange{Topic: everyTopic, Set: map[string]string{"retention.mss": "9"}}, meta.ErrInvalidConfig, old},
		"default: no value": {ConfigChange{Topic: everyTopic, Set: map[string]string{"retention.ms": ""}}, meta.ErrInvalidConfig, old},
	} {
		t.Run(name, func(t *testing.T) {
			c := newLog(t, "")
			m := c.master(1)
			if _, err := m.CreateTopic(t.Context(), TopicSpec{Name: "t", Partitions: 1, ReplicationFactor: 1, Settings: maps.Clone(old)}); err != nil {
				t.Fatal(err)
			}
			change := x.change
			switch change.Topic {
			case everyTopic:
				change.Topic = ""
			case "":
				change.Topic = "t"
			}
			before := c.proposals()
			change.ValidateOnly = true
			wantErr(t, m.AlterConfig(t.Context(), change), x.want)
			if c.proposals() != before {
				t.Fatal("validating proposed something")
			}
			change.ValidateOnly = false
			wantErr(t, m.AlterConfig(t.Context(), change), x.want)
			if got := c.image().Topic("t").Overrides; !maps.Equal(got, x.then) {
				t.Fatalf("settings %v, want %v", got, x.then)
			}
			if refused := x.want != nil; refused && c.proposals() != before {
				t.Fatal("what cannot be was proposed")
			}
			if change.Topic == "" && x.want == nil && !maps.Equal(c.image().Defaults, change.Set) {
				t.Fatalf("defaults %v", c.image().Defaults)
			}
		})
	}
}

// everyTopic stands for the cluster's defaults in the table.
const everyTopic = "(every topic)"

func TestBrokerSettingsFollowTheDefaults(t *testing.T) {
	c := newLog(t, "", "")
	m := c.master(2)
	get := func(name string) BrokerSetting {
		t.Helper()
		for _, s := range m.BrokerSettings() {
			if s.Name == name {
				return s
			}
		}
		t.Fatalf("no setting %s", name)
		return BrokerSetting{}
	}
	for name, want := range map[string]string{"broker.id": "2", "num.partitions": "4", "default.replication.factor": "2", "auto.create.topics.enable": "true", "log.retention.ms": "604800000"} {
		if s := get(name); s.Value != want || s.Dynamic || s.Doc == "" {
			t.Errorf("%s: %+v, want %s", name, s, want)
		}
	}
	if err := m.AlterConfig(t.Context(), ConfigChange{Set: map[string]string{"retention.ms": "9"}}); err != nil {
		t.Fatal(err)
	}
	if s := get("log.retention.ms"); s.Value != "9" || !s.Dynamic || s.Topic != "retention.ms" {
		t.Errorf("changed: %+v", s)
	}
	// Every one of them stands for a topic setting that is there.
	for _, s := range m.BrokerSettings() {
		own, ok := TopicSettingOf(s.Name)
		if ok != (s.Topic != "") || own != s.Topic {
			t.Errorf("%s stands for %q, %v", s.Name, own, ok)
		}
		if _, known := meta.FindTopicSetting(s.Topic); ok && !known {
			t.Errorf("%s stands for %q, which is no setting", s.Name, s.Topic)
		}
	}
	if own, ok := TopicSettingOf("tube.durability"); !ok || own != "tube.durability" {
		t.Errorf("a topic setting's own name stands for %q, %v", own, ok)
	}
}
