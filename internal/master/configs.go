package master

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// ConfigChange changes the settings of a topic, or with Topic "" the cluster's
// defaults for topics.
type ConfigChange struct {
	Topic        string
	Replace      bool // drop settings that are not in Set
	Set          map[string]string
	Remove       []string
	ValidateOnly bool
}

// AlterConfig changes settings. Errors: meta.ErrUnknownTopic, meta.ErrInvalidConfig.
func (m *Master) AlterConfig(ctx context.Context, c ConfigChange) error {
	im := m.cfg.Image()
	var id record.TopicID
	old := im.Defaults
	t := im.Topic(c.Topic)
	if c.Topic != "" {
		if t == nil {
			return fmt.Errorf("%w: %s", meta.ErrUnknownTopic, c.Topic)
		}
		id, old = t.ID, t.Overrides
	}
	next := map[string]string{}
	if !c.Replace {
		maps.Copy(next, old)
	}
	for _, k := range c.Remove {
		delete(next, k)
	}
	maps.Copy(next, c.Set)
	// The machine decides; this is for ValidateOnly and for a quicker answer.
	if err := checkChange(im, t, next); err != nil {
		return err
	}
	if c.ValidateOnly {
		return nil
	}
	_, err := m.propose(ctx, meta.AlterConfig(m.cfg.Now(), id, c.Replace, c.Set, c.Remove))
	return err
}

// checkChange checks what the settings of a topic would be, or with nil the
// cluster's defaults.
func checkChange(im *meta.Image, t *meta.Topic, next map[string]string) error {
	if t != nil {
		cfg, err := meta.ResolveTopicConfig(next, im.Defaults)
		if err != nil {
			return err
		}
		return meta.CheckStorageStays(t, cfg)
	}
	if _, err := meta.ResolveTopicConfig(next, nil); err != nil {
		return err
	}
	for _, t := range im.Topics {
		cfg, err := meta.ResolveTopicConfig(t.Overrides, next)
		if err == nil {
			err = meta.CheckStorageStays(t, cfg)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// BrokerSetting is one setting of a broker by the name that Kafka gives it:
// tools read them.
type BrokerSetting struct {
	Name, Value string
	Kind        meta.Kind
	Doc         string
	// Topic is the topic setting that this is the default of; "" if none is.
	Topic string
	// Dynamic: it was changed while the cluster runs, else it is the default or
	// stands in the node's configuration.
	Dynamic bool
}

// brokerNames maps Kafka's broker settings to the topic settings whose default they are.
var brokerNames = []struct{ broker, topic string }{
	{"log.cleanup.policy", "cleanup.policy"},
	{"compression.type", "compression.type"},
	{"log.retention.bytes", "retention.bytes"},
	{"log.retention.ms", "retention.ms"},
	{"log.roll.ms", "segment.ms"},
	{"log.segment.bytes", "segment.bytes"},
	{"log.message.timestamp.type", "message.timestamp.type"},
	{"log.message.timestamp.before.max.ms", "message.timestamp.before.max.ms"},
	{"log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms"},
	{"message.max.bytes", "max.message.bytes"},
	{"min.insync.replicas", "min.insync.replicas"},
	{"unclean.leader.election.enable", "unclean.leader.election.enable"},
}

// TopicSettingOf names the topic setting that a broker setting is the default of.
func TopicSettingOf(broker string) (string, bool) {
	for _, n := range brokerNames {
		if n.broker == broker {
			return n.topic, true
		}
	}
	// A topic setting's own name is understood as well: it is the cluster's default.
	if _, ok := meta.FindTopicSetting(broker); ok {
		return broker, true
	}
	return "", false
}

// BrokerSettings lists a broker's settings by Kafka's names.
func (m *Master) BrokerSettings() []BrokerSetting {
	im := m.cfg.Image()
	out := []BrokerSetting{
		{Name: "broker.id", Value: strconv.Itoa(int(m.cfg.Node)), Kind: meta.KindInt, Doc: "The node's id."},
		{Name: "num.partitions", Value: strconv.Itoa(m.cfg.DefaultPartitions), Kind: meta.KindInt, Doc: "Partitions of a topic whose creator does not say."},
		{Name: "default.replication.factor", Value: strconv.Itoa(DefaultFactor(im)), Kind: meta.KindInt, Doc: "Replicas of a partition whose topic's creator does not say."},
		{Name: "auto.create.topics.enable", Value: strconv.FormatBool(m.cfg.AutoCreateTopics), Kind: meta.KindBool, Doc: "Whether a topic is created when a client first names it."},
	}
	for _, n := range brokerNames {
		s, _ := meta.FindTopicSetting(n.topic)
		v, dynamic := im.Defaults[n.topic]
		if !dynamic {
			v = s.Default
		}
		out = append(out, BrokerSetting{Name: n.broker, Value: v, Kind: s.Kind, Doc: s.Doc, Topic: n.topic, Dynamic: dynamic})
	}
	return out
}
