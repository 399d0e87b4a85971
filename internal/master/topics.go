package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// Proposer commits commands of the meta log. The result is a meta.Result.
type Proposer interface {
	Propose(ctx context.Context, data []byte) (any, error)
}

// Config of a Master.
type Config struct {
	Node     record.NodeID
	Proposer Proposer
	Image    func() *meta.Image
	// Settled waits until this node has carried out the metadata up to an index:
	// new partitions have a leader, deleted ones are gone. It may give up early.
	Settled func(ctx context.Context, index record.Index)
	Now     func() time.Time // nil: time.Now
	Seed    func() uint64    // decides between equal nodes; nil: random
	Logger  *slog.Logger

	// Ends says how far the replicas of a partition went when they were last heard
	// of, for an unsafe recovery; nil: nothing is known.
	Ends func(ctx context.Context, p record.TopicPartition) []KnownEnd

	DefaultPartitions int // of a topic whose creator does not say
	AutoCreateTopics  bool
}

// Master administers topics, settings and producer ids: it validates what needs
// the whole picture, places partitions, proposes, and waits for the outcome.
// Safe for use by many goroutines.
type Master struct {
	cfg         Config
	producerIDs producerIDs
}

// ErrUnavailable: the masters cannot decide just now; nothing is known to have changed.
var ErrUnavailable = errors.New("no active master can be reached")

// New returns a master.
func New(cfg Config) *Master {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Seed == nil {
		cfg.Seed = rand.Uint64
	}
	if cfg.Settled == nil {
		cfg.Settled = func(context.Context, record.Index) {}
	}
	return &Master{cfg: cfg}
}

// propose commits one command. One whose time is over is not begun.
func (m *Master) propose(ctx context.Context, data []byte) (meta.Result, error) {
	if err := ctx.Err(); err != nil {
		return meta.Result{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	r, err := m.cfg.Proposer.Propose(ctx, data)
	if err != nil {
		return meta.Result{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	res, ok := r.(meta.Result)
	if !ok {
		return meta.Result{}, fmt.Errorf("%w: it answered %T", ErrUnavailable, r)
	}
	return res, res.Err
}

// TopicSpec asks for a topic.
type TopicSpec struct {
	Name string
	// Partitions and ReplicationFactor; −1: the defaults. Both are −1 with an Assignment.
	Partitions        int
	ReplicationFactor int
	// Assignment places each partition by hand; nil: the master does.
	Assignment   [][]record.NodeID
	Settings     map[string]string
	ValidateOnly bool
}

// CreateTopic makes a topic and waits until it can be used. With ValidateOnly
// the returned topic is what would be made.
func (m *Master) CreateTopic(ctx context.Context, spec TopicSpec) (*meta.Topic, error) {
	im := m.cfg.Image()
	if err := meta.CheckTopicName(spec.Name); err != nil {
		return nil, err
	}
	if im.Topic(spec.Name) != nil {
		return nil, fmt.Errorf("%w: %s", meta.ErrTopicExists, spec.Name)
	}
	cfg, err := meta.ResolveTopicConfig(spec.Settings, im.Defaults)
	if err != nil {
		return nil, err
	}
	placement, err := m.placement(im, spec)
	if err != nil {
		return nil, err
	}
	id := record.NewTopicID()
	if spec.ValidateOnly {
		if err := im.CheckCollision(spec.Name); err != nil {
			return nil, err
		}
		return preview(id, spec, cfg, placement), nil
	}
	res, err := m.propose(ctx, meta.CreateTopic(m.cfg.Now(), id, spec.Name, placement, spec.Settings))
	if err != nil {
		return nil, err
	}
	m.cfg.Settled(ctx, m.cfg.Image().Index)
	return res.Topic, nil
}

// preview is a topic that is not there.
func preview(id record.TopicID, spec TopicSpec, cfg meta.TopicConfig, placement [][]record.NodeID) *meta.Topic {
	t := &meta.Topic{ID: id, Name: spec.Name, Overrides: spec.Settings, Config: cfg}
	for _, nodes := range placement {
		p := meta.Placement{Leader: -1}
		for _, n := range nodes {
			p.Replicas = append(p.Replicas, meta.Replica{Node: n})
		}
		t.Partitions = append(t.Partitions, p)
	}
	return t
}

func (m *Master) placement(im *meta.Image, spec TopicSpec) ([][]record.NodeID, error) {
	if spec.Assignment != nil {
		if spec.Partitions != -1 || spec.ReplicationFactor != -1 {
			return nil, fmt.Errorf("%w: give replicas by hand, or a number of partitions and a replication factor, not both", meta.ErrInvalidPlacement)
		}
		return checkAssignment(im, spec.Assignment)
	}
	n := spec.Partitions
	if n == -1 {
		n = m.cfg.DefaultPartitions
	}
	if n < 1 || n > meta.MaxPartitions {
		return nil, fmt.Errorf("%w: %d; 1 to %d are allowed", meta.ErrInvalidPartitions, n, meta.MaxPartitions)
	}
	return Place(im, n, spec.ReplicationFactor, m.cfg.Seed())
}

// DeleteTopic deletes a topic for good and waits until it is gone here.
func (m *Master) DeleteTopic(ctx context.Context, id record.TopicID) error {
	if _, err := m.propose(ctx, meta.DeleteTopic(m.cfg.Now(), id)); err != nil {
		return err
	}
	m.cfg.Settled(ctx, m.cfg.Image().Index)
	return nil
}

// PartitionsSpec asks for more partitions of a topic.
type PartitionsSpec struct {
	Topic string
	Count int // there shall be in all
	// Assignment places each new partition by hand; nil: the master does.
	Assignment   [][]record.NodeID
	ValidateOnly bool
}

// CreatePartitions adds partitions to a topic and waits until they can be used.
func (m *Master) CreatePartitions(ctx context.Context, spec PartitionsSpec) error {
	im := m.cfg.Image()
	t := im.Topic(spec.Topic)
	if t == nil {
		return fmt.Errorf("%w: %s", meta.ErrUnknownTopic, spec.Topic)
	}
	base := len(t.Partitions)
	if spec.Count <= base || spec.Count > meta.MaxPartitions {
		return fmt.Errorf("%w: topic %s has %d, %d were asked for; it can have more, up to %d", meta.ErrInvalidPartitions, t.Name, base, spec.Count, meta.MaxPartitions)
	}
	var placement [][]record.NodeID
	var err error
	if spec.Assignment != nil {
		if len(spec.Assignment) != spec.Count-base {
			return fmt.Errorf("%w: %d new partitions, replicas are given for %d", meta.ErrInvalidPlacement, spec.Count-base, len(spec.Assignment))
		}
		placement, err = checkAssignment(im, spec.Assignment)
	} else {
		placement, err = Place(im, spec.Count-base, len(t.Partitions[0].Wanted()), m.cfg.Seed())
	}
	if err != nil || spec.ValidateOnly {
		return err
	}
	if _, err := m.propose(ctx, meta.CreatePartitions(m.cfg.Now(), t.ID, base, placement)); err != nil {
		return err
	}
	m.cfg.Settled(ctx, m.cfg.Image().Index)
	return nil
}
