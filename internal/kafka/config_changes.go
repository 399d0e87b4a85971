package kafka

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
)

// changing is what both ways of altering settings know of one resource.
type changing struct {
	at    resource
	im    *meta.Image
	topic *meta.Topic // nil: the defaults of all topics
}

// findChanging checks that a resource is there and that its settings can change.
func (d *Door) findChanging(at resource) (changing, error) {
	im := d.image()
	if at.kind == kmsg.ConfigResourceTypeBroker && at.name != "" {
		return changing{}, refuse(kerr.InvalidRequest, "settings that can change while a node runs are the same on all brokers: name no broker (kafka-configs has --entity-default)")
	}
	t, err := d.findResource(im, at)
	return changing{at, im, t}, err
}

// setting finds the topic setting that a resource has under a name. One that is
// not known is left for the masters, whose answer names the nearest.
func (c *changing) setting(name string, brokers []master.BrokerSetting) (string, error) {
	if c.topic != nil || c.isGroup() {
		return name, nil
	}
	if own, ok := master.TopicSettingOf(name); ok {
		return own, nil
	}
	for _, b := range brokers {
		if b.Name == name {
			return "", refuse(kerr.InvalidConfig, "%s cannot change while a node runs; set it in the node's configuration and start it again", name)
		}
	}
	return name, nil
}

func (c *changing) isGroup() bool { return c.at.kind == kmsg.ConfigResourceTypeGroupConfig }

// value is what a setting of the resource is now.
func (c *changing) value(s meta.TopicSetting) string {
	if c.topic != nil {
		if v, ok := c.topic.Overrides[s.Name]; ok {
			return v
		}
	}
	return defaultPlaces(c.im, s, s.Name)[0].value
}

// alter carries out one resource's change. An empty one changes nothing, and
// needs no entry in the masters' log.
func (d *Door) alter(ctx context.Context, c *changing, ch master.ConfigChange, validateOnly bool) error {
	if c.topic != nil {
		ch.Topic = c.topic.Name
	}
	ch.ValidateOnly = validateOnly || !ch.Replace && len(ch.Set) == 0 && len(ch.Remove) == 0
	if c.isGroup() {
		return d.shares.Admin.AlterConfig(ctx, c.at.name, ch)
	}
	return d.topics.AlterConfig(ctx, ch)
}

// maxListBytes bounds the items that one operation adds or takes: the lists there
// are have a few words.
const maxListBytes = 1000

// addTo puts items to a comma separated list, behind those that are there.
func addTo(list, items string) string {
	out := split(list)
	for _, item := range split(items) {
		if !slices.Contains(out, item) {
			out = append(out, item)
		}
	}
	return strings.Join(out, ",")
}

// takeFrom takes items from a comma separated list.
func takeFrom(list, items string) string {
	var out []string
	gone := split(items)
	for _, item := range split(list) {
		if !slices.Contains(gone, item) {
			out = append(out, item)
		}
	}
	return strings.Join(out, ",")
}

// split is a list's items; "" has none.
func split(list string) []string {
	var out []string
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}
