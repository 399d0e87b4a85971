package meta

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tube-mq/tube/internal/meta/metapb"
	"github.com/tube-mq/tube/internal/record"
)

// A share group (KIP-932) reads several topics, a queue group one: a share group is
// one queue group for each topic. The first of them has the share group's name, if
// that is free and can be a queue group's, so that queue consumers may ask for it;
// others are called GROUP@TOPIC. A queue group that was made by hand under the name
// is the share group's as well, for its topic.

// CreateShareQueue makes the queue group through which a share group reads a topic, or
// finds it. settings hold for a new one.
func CreateShareQueue(now time.Time, share string, topic record.TopicID, config GroupConfig, deadLetter string) []byte {
	s := config.ShareSettings(now)
	s.DeadLetter = deadLetter
	return encode(now, &metapb.Command{Kind: &metapb.Command_CreateQueueGroup{CreateQueueGroup: &metapb.CreateQueueGroup{
		Topic: topic[:], Settings: queueSettingsToPB(s), Share: share,
	}}})
}

// AlterGroupConfig changes settings of a group.
func AlterGroupConfig(now time.Time, group string, replace bool, set map[string]string, remove []string) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_AlterGroupConfig{AlterGroupConfig: &metapb.AlterGroupConfig{
		Group: group, Replace: replace, Set: pairs(set), Remove: remove,
	}}})
}

// CheckShareName tells whether a share group can have this name: 1 to 249 bytes of
// printable text. Error: ErrInvalidQueueName.
func CheckShareName(name string) error {
	switch {
	case name == "" || len(name) > MaxTopicNameBytes:
		return fmt.Errorf("%w: a share group's has 1 to %d bytes, this one %d", ErrInvalidQueueName, MaxTopicNameBytes, len(name))
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("%w: %q is not printable text", ErrInvalidQueueName, name)
	}
	return nil
}

// ShareQueue finds the queue group through which a share group reads a topic; nil if
// there is none yet.
func (im *Image) ShareQueue(share string, topic record.TopicID) *QueueGroup {
	for _, g := range im.queuesByTopic[topic] {
		if g.Share == share || g.Name == share && g.Share == "" {
			return g
		}
	}
	return nil
}

// ShareQueues are all queue groups of a share group, by name: those that were made for
// it, and one that was made by hand under its name.
func (im *Image) ShareQueues(share string) []*QueueGroup {
	var out []*QueueGroup
	for _, g := range im.QueueGroups {
		if g.Share == share || g.Name == share && g.Share == "" {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b *QueueGroup) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// ShareGroups are the names of share groups that read, or have read, something.
func (im *Image) ShareGroups() []string {
	names := map[string]bool{}
	for _, g := range im.QueueGroups {
		if g.Share != "" {
			names[g.Share] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// shareQueueName finds a share group's queue group of a topic, or a name for it.
func (im *Image) shareQueueName(share string, topic []byte) (*QueueGroup, string, error) {
	if err := CheckShareName(share); err != nil {
		return nil, "", err
	}
	id, err := topicID(topic)
	if err != nil {
		return nil, "", err
	}
	t := im.Topics[id]
	if t == nil {
		return nil, "", fmt.Errorf("%w: id %s", ErrUnknownTopic, id)
	}
	if g := im.ShareQueue(share, id); g != nil {
		return g, "", nil
	}
	if CheckQueueName(share) == nil && im.QueueGroups[share] == nil && share != t.Name {
		return nil, share, nil
	}
	return nil, share + "@" + t.Name, nil
}

// alterGroupConfig changes settings of a group, and of what it reads through.
func (m *Machine) alterGroupConfig(im *Image, now time.Time, c *metapb.AlterGroupConfig) Result {
	name := c.GetGroup()
	if err := CheckShareName(name); err != nil {
		return Result{Err: err}
	}
	next := map[string]string{}
	if !c.GetReplace() {
		maps.Copy(next, im.GroupConfigs[name])
	}
	for _, k := range c.GetRemove() {
		delete(next, k)
	}
	maps.Copy(next, unpair(c.GetSet()))
	config, err := ResolveGroupConfig(next)
	if err != nil {
		return Result{Err: err}
	}
	configs := maps.Clone(im.GroupConfigs)
	if configs[name] = next; len(next) == 0 {
		delete(configs, name)
	}
	if len(configs) > MaxGroupConfigs {
		return Result{Err: fmt.Errorf("%w: %d groups have settings of their own, which is the most; take some back", ErrInvalidConfig, MaxGroupConfigs)}
	}
	im.GroupConfigs = configs
	for _, old := range im.ShareQueues(name) {
		if old.Share == "" {
			continue // made by hand, and has the settings that were given to it there
		}
		g := *old
		if config.fit(&g.Settings); g.Settings.Lease == old.Settings.Lease && g.Settings.MaxAttempts == old.Settings.MaxAttempts && g.Settings.MaxInFlight == old.Settings.MaxInFlight {
			continue
		}
		g.Version = im.Index
		im.setQueueGroup(&g)
	}
	m.note(now, "group-altered", "group "+name, "settings of group %s were changed", name)
	return Result{}
}

func groupConfigsToPB(configs map[string]map[string]string) (out []*metapb.GroupConfig) {
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		out = append(out, &metapb.GroupConfig{Group: name, Settings: pairs(configs[name])})
	}
	return out
}

func (im *Image) restoreGroupConfigs(all []*metapb.GroupConfig) error {
	for _, pb := range all {
		if im.GroupConfigs[pb.GetGroup()] != nil {
			return fmt.Errorf("%w: settings of group %q are there twice", ErrSnapshot, pb.GetGroup())
		}
		im.GroupConfigs[pb.GetGroup()] = unpair(pb.GetSettings())
	}
	return nil
}
