package kafka

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
)

// entry is one setting with its value as clients are told of it.
type entry struct {
	name, value string
	kind        meta.Kind
	doc         string
	readOnly    bool
	source      kmsg.ConfigSource
	// synonyms are the places that the value is looked for, the first that has
	// one counts. The last is the default.
	synonyms []synonym
}

type synonym struct {
	name, value string
	source      kmsg.ConfigSource
}

// topicEntries are all settings of a topic. brokerNames (see namesOfBroker) may
// be nil if nobody asks for synonyms.
func topicEntries(im *meta.Image, t *meta.Topic, brokerNames map[string]string) []entry {
	table := meta.TopicSettings()
	out := make([]entry, 0, len(table))
	for _, s := range table {
		broker := s.Name
		if n, ok := brokerNames[s.Name]; ok {
			broker = n
		}
		var places []synonym
		if v, ok := t.Overrides[s.Name]; ok {
			places = append(places, synonym{s.Name, v, kmsg.ConfigSourceDynamicTopicConfig})
		}
		// Not read only, not even tube.storage: tools that replace all settings leave
		// out what is, and would so ask for its default.
		out = append(out, settingEntry(s.Name, s, append(places, defaultPlaces(im, s, broker)...)))
	}
	return out
}

// defaultPlaces are where a topic's setting comes from that it does not have itself.
func defaultPlaces(im *meta.Image, s meta.TopicSetting, broker string) []synonym {
	var out []synonym
	if v, ok := im.Defaults[s.Name]; ok {
		out = append(out, synonym{broker, v, kmsg.ConfigSourceDynamicDefaultBrokerConfig})
	}
	return append(out, synonym{broker, s.Default, kmsg.ConfigSourceDefaultConfig})
}

func settingEntry(name string, s meta.TopicSetting, places []synonym) entry {
	doc := s.Doc
	if !s.Effect {
		doc += " Accepted, but without effect."
	}
	return entry{name: name, value: places[0].value, source: places[0].source, kind: s.Kind, doc: doc, synonyms: places}
}

// groupEntries are all settings of a group, whether there is such a group or not.
func groupEntries(im *meta.Image, name string) []entry {
	var out []entry
	for _, s := range meta.GroupSettings() {
		var places []synonym
		if v, ok := im.GroupConfigs[name][s.Name]; ok {
			places = append(places, synonym{s.Name, v, kmsg.ConfigSourceGroupConfig})
		}
		out = append(out, settingEntry(s.Name, s.TopicSetting, append(places, synonym{s.Name, s.Default, kmsg.ConfigSourceDefaultConfig})))
	}
	return out
}

// namesOfBroker says under which broker setting a topic setting's default stands.
func namesOfBroker(settings []master.BrokerSetting) map[string]string {
	out := map[string]string{}
	for _, s := range settings {
		if s.Topic != "" {
			out[s.Topic] = s.Name
		}
	}
	return out
}

// brokerEntries are the settings of this node: those of its own configuration,
// which clients can only read, and the cluster's defaults for topics.
func brokerEntries(im *meta.Image, settings []master.BrokerSetting) []entry {
	var out []entry
	for _, b := range settings {
		if b.Topic == "" {
			places := []synonym{{b.Name, b.Value, kmsg.ConfigSourceStaticBrokerConfig}}
			out = append(out, entry{name: b.Name, value: b.Value, kind: b.Kind, doc: b.Doc, readOnly: true, source: places[0].source, synonyms: places})
			continue
		}
		if s, ok := meta.FindTopicSetting(b.Topic); ok {
			out = append(out, settingEntry(b.Name, s, defaultPlaces(im, s, b.Name)))
		}
	}
	// Defaults that brokers have no name for, once somebody changed them.
	for _, e := range clusterEntries(im, namesOfBroker(settings)) {
		if !slices.ContainsFunc(out, func(o entry) bool { return o.name == e.name }) {
			out = append(out, e)
		}
	}
	return out
}

// clusterEntries are the defaults for topics that somebody changed, by the names
// that brokers have for them, else by the topics' own.
func clusterEntries(im *meta.Image, brokerNames map[string]string) []entry {
	var out []entry
	for _, name := range slices.Sorted(maps.Keys(im.Defaults)) {
		s, ok := meta.FindTopicSetting(name)
		if !ok {
			continue
		}
		if n, ok := brokerNames[name]; ok {
			name = n
		}
		out = append(out, settingEntry(name, s, defaultPlaces(im, s, name)))
	}
	return out
}

// maxSettings bounds the settings of one resource in one request: more than
// there are is a mistake.
const maxSettings = 1000

// giveOnce notes that a request gives a setting: each once, and not too many.
func giveOnce(given map[string]bool, name string) error {
	if given[name] {
		return refuse(kerr.InvalidRequest, "a setting stands in the request more than once")
	}
	if len(given) == maxSettings {
		return refuse(kerr.InvalidRequest, "more than %d settings", maxSettings)
	}
	given[name] = true
	return nil
}
