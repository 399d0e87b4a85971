package master

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"strings"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// ShareQueue finds the queue group through which a share group reads a topic, or makes
// it, with its dead-letter topic, and waits until this node has carried that out.
// Errors: meta.ErrInvalidQueueName, meta.ErrUnknownTopic, meta.ErrTooManyQueueGroups,
// ErrUnavailable.
func (m *Master) ShareQueue(ctx context.Context, share string, topic record.TopicID) (*meta.QueueGroup, error) {
	if err := meta.CheckShareName(share); err != nil {
		return nil, err
	}
	im := m.cfg.Image()
	t := im.Topics[topic]
	if t == nil {
		return nil, fmt.Errorf("%w: id %s", meta.ErrUnknownTopic, topic)
	}
	if g := im.ShareQueue(share, topic); g != nil {
		return g, nil
	}
	dead, err := m.shareDeadLetters(ctx, share, t)
	if err != nil {
		return nil, err
	}
	config := im.GroupConfig(share)
	res, err := m.propose(ctx, meta.CreateShareQueue(m.cfg.Now(), share, topic, config, dead))
	if err != nil {
		return nil, err
	}
	m.cfg.Settled(ctx, m.cfg.Image().Index)
	return res.QueueGroup, nil
}

// shareDeadLetters makes the topic for the dead letters of a share group, and the queue
// group that keeps them.
func (m *Master) shareDeadLetters(ctx context.Context, share string, t *meta.Topic) (string, error) {
	name := shareDeadLetterTopic(share, t.Name, false)
	err := m.haveDeadLetters(ctx, t, name)
	if errors.Is(err, meta.ErrInvalidTopicName) { // collides with another's
		name = shareDeadLetterTopic(share, t.Name, true)
		err = m.haveDeadLetters(ctx, t, name)
	}
	return name, err
}

func (m *Master) haveDeadLetters(ctx context.Context, t *meta.Topic, name string) error {
	if m.cfg.Image().Topic(name) == nil {
		if err := m.createDeadLetters(ctx, t, name); err != nil {
			return err
		}
	}
	return m.keepDeadLetters(ctx, name)
}

// shareDeadLetterTopic names a share group's dead-letter topic: GROUP.dead-letter, with
// what a topic's name cannot have replaced. marked, or if something was replaced, a
// number tells it from that of other groups.
func shareDeadLetterTopic(share, topic string, marked bool) string {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '-'
	}, share)
	const numberBytes = 9
	if room := meta.MaxTopicNameBytes - len(deadLetterSuffix) - numberBytes; len(plain) > room {
		plain = plain[:room]
	}
	if marked || plain != share {
		h := fnv.New32a()
		h.Write([]byte(share))
		plain += fmt.Sprintf("-%08x", h.Sum32())
	}
	name := plain + deadLetterSuffix
	if name == topic { // the group reads its own dead letters: those of these go on
		return plain + ".dead" + deadLetterSuffix
	}
	return name
}

// AlterGroupConfig changes settings of a group. Errors: meta.ErrInvalidConfig,
// meta.ErrInvalidQueueName, ErrUnavailable.
func (m *Master) AlterGroupConfig(ctx context.Context, group string, c ConfigChange) error {
	if err := meta.CheckShareName(group); err != nil {
		return err
	}
	next := map[string]string{}
	if !c.Replace {
		maps.Copy(next, m.cfg.Image().GroupConfigs[group])
	}
	for _, k := range c.Remove {
		delete(next, k)
	}
	maps.Copy(next, c.Set)
	// The machine decides; this is for ValidateOnly and for a quicker answer.
	if _, err := meta.ResolveGroupConfig(next); err != nil || c.ValidateOnly {
		return err
	}
	_, err := m.propose(ctx, meta.AlterGroupConfig(m.cfg.Now(), group, c.Replace, c.Set, c.Remove))
	return err
}
