package master

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/tube-mq/tube/internal/filter"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// deadLetterSuffix is what follows a group's name in that of its own dead-letter topic.
const deadLetterSuffix = ".dead-letter"

const (
	// deadLetterRoom is how much larger than a message its dead letter may be: it has
	// the record of attempts.
	deadLetterRoom = 64 << 10
	// maxMessageBytes is the most that max.message.bytes can be.
	maxMessageBytes = 100 << 20
)

// maxUpdates is how often an update of settings is tried when others change them at
// the same time.
const maxUpdates = 5

// CreateQueueGroup makes a queue group of a topic and waits until this node has
// carried it out. Its dead-letter topic, if s names none, is NAME.dead-letter, made
// if it is not there: one partition, as many replicas as the topic has. If the group
// is refused after that, the empty topic stays. Errors: meta.ErrInvalidQueueName,
// meta.ErrQueueGroupExists, meta.ErrUnknownTopic, meta.ErrTooManyQueueGroups,
// queue.ErrInvalidSetting, queue.ErrInvalidFilter, ErrUnavailable.
func (m *Master) CreateQueueGroup(ctx context.Context, name, topic string, s queue.Settings) (*meta.QueueGroup, error) {
	if err := meta.CheckQueueName(name); err != nil {
		return nil, err
	}
	im := m.cfg.Image()
	t := im.Topic(topic)
	switch {
	case t == nil:
		return nil, fmt.Errorf("%w: %s", meta.ErrUnknownTopic, topic)
	case im.QueueGroup(name) != nil:
		return nil, fmt.Errorf("%w: %s", meta.ErrQueueGroupExists, name)
	}
	own := s.DeadLetter == ""
	if own {
		s.DeadLetter = name + deadLetterSuffix
		if err := meta.CheckTopicName(s.DeadLetter); err != nil {
			return nil, fmt.Errorf("%w: its dead-letter topic would be %s (%v); take a shorter name, or give dead_letter", meta.ErrInvalidQueueName, s.DeadLetter, err)
		}
	}
	// The machine decides; this is so that no topic is made for what will be refused.
	if err := checkQueue(im, name, t, s); err != nil && !(own && errors.Is(err, meta.ErrUnknownTopic)) {
		return nil, err
	}
	if own && im.Topic(s.DeadLetter) == nil {
		if err := m.createDeadLetters(ctx, t, s.DeadLetter); err != nil {
			return nil, err
		}
	}
	if err := m.keepDeadLetters(ctx, s.DeadLetter); err != nil {
		return nil, err
	}
	res, err := m.propose(ctx, meta.CreateQueueGroup(m.cfg.Now(), name, t.ID, s))
	if err != nil {
		return nil, err
	}
	m.cfg.Settled(ctx, m.cfg.Image().Index)
	return res.QueueGroup, nil
}

// createDeadLetters makes the topic for dead letters of groups of t.
func (m *Master) createDeadLetters(ctx context.Context, t *meta.Topic, name string) error {
	spec := TopicSpec{
		Name: name, Partitions: 1, ReplicationFactor: len(t.Partitions[0].Wanted()),
		Settings: map[string]string{
			// What is dead is kept until somebody has looked at it.
			"retention.ms":      "-1",
			"max.message.bytes": strconv.Itoa(min(t.Config.MaxMessageBytes+deadLetterRoom, maxMessageBytes)),
		},
	}
	_, err := m.CreateTopic(ctx, spec)
	switch {
	case errors.Is(err, meta.ErrTopicExists): // somebody else was quicker
		return nil
	case err != nil:
		return fmt.Errorf("dead-letter topic %s: %w", name, err)
	}
	return nil
}

// keepDeadLetters makes the queue group that knows which dead letters of a topic were
// not looked after yet. It has the topic's name, and nothing in it dies: it has no
// dead-letter topic of its own.
func (m *Master) keepDeadLetters(ctx context.Context, topic string) error {
	im := m.cfg.Image()
	t, g := im.Topic(topic), im.QueueGroup(topic)
	switch {
	case t == nil || g != nil && g.Topic == t.ID:
		return nil // refused later, or there
	case g != nil:
		return fmt.Errorf("%w: dead_letter can be a topic whose name no queue group of another topic has; there is one called %s", queue.ErrInvalidSetting, topic)
	}
	s := queue.DefaultSettings()
	s.StartAtMillis, s.MaxAttempts = queue.StartAtStart, maxDeadAttempts
	_, err := m.propose(ctx, meta.CreateQueueGroup(m.cfg.Now(), topic, t.ID, s))
	if errors.Is(err, meta.ErrQueueGroupExists) {
		return nil // somebody else was quicker
	}
	return err
}

// maxDeadAttempts is how often a dead letter may fail when it is taken as a message.
const maxDeadAttempts = 1000

func checkQueue(im *meta.Image, name string, t *meta.Topic, s queue.Settings) error {
	if s.Filter != "" {
		if _, err := filter.Compile(s.Filter); err != nil {
			return fmt.Errorf("%w: %w", queue.ErrInvalidFilter, err)
		}
	}
	return im.CheckQueueSettings(name, t, s)
}

// UpdateQueueGroup has change change a group's settings. It is called again if
// somebody else changed them meanwhile. Errors: those of CreateQueueGroup,
// queue.ErrUnknownGroup, queue.ErrConflict if others change them all the time, and
// what change answers.
func (m *Master) UpdateQueueGroup(ctx context.Context, name string, change func(*queue.Settings) error) (*meta.QueueGroup, error) {
	for i := 1; ; i++ {
		g, err := m.updateQueue(ctx, name, change)
		if i == maxUpdates || !errors.Is(err, queue.ErrConflict) {
			return g, err
		}
	}
}

func (m *Master) updateQueue(ctx context.Context, name string, change func(*queue.Settings) error) (*meta.QueueGroup, error) {
	im := m.cfg.Image()
	g, err := findQueue(im, name)
	if err != nil {
		return nil, err
	}
	s := g.Settings
	if err := change(&s); err != nil {
		return nil, err
	}
	if err := checkQueue(im, g.Name, im.Topics[g.Topic], s); err != nil {
		return nil, err
	}
	res, err := m.propose(ctx, meta.UpdateQueueGroup(m.cfg.Now(), g.ID, g.Version, s))
	return res.QueueGroup, err
}

// DeleteQueueGroup deletes a group for good. Its dead-letter topic stays.
func (m *Master) DeleteQueueGroup(ctx context.Context, name string) error {
	g, err := findQueue(m.cfg.Image(), name)
	if err != nil {
		return err
	}
	_, err = m.propose(ctx, meta.DeleteQueueGroup(m.cfg.Now(), g.ID))
	return err
}

// NoteQueueRetention makes an event of what retention takes, or is near to taking,
// from a group: see meta.NoteQueueRetention.
func (m *Master) NoteQueueRetention(ctx context.Context, id queue.GroupID, p record.Partition, usedPercent int, messages int64) error {
	_, err := m.propose(ctx, meta.NoteQueueRetention(m.cfg.Now(), id, p, usedPercent, messages))
	return err
}

// PauseQueueGroup stops or resumes handing out.
func (m *Master) PauseQueueGroup(ctx context.Context, name string, on bool) (*meta.QueueGroup, error) {
	g, err := findQueue(m.cfg.Image(), name)
	if err != nil {
		return nil, err
	}
	res, err := m.propose(ctx, meta.PauseQueueGroup(m.cfg.Now(), g.ID, on))
	return res.QueueGroup, err
}

func findQueue(im *meta.Image, name string) (*meta.QueueGroup, error) {
	if g := im.QueueGroup(name); g != nil {
		return g, nil
	}
	return nil, fmt.Errorf("%w: %s", queue.ErrUnknownGroup, name)
}
