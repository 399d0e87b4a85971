package master

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

func TestWhatIsRefusedIsNotProposed(t *testing.T) {
	c := newLog(t, "", "")
	m := c.master(1)
	for _, name := range []string{"there", "a.b"} {
		if _, err := m.CreateTopic(t.Context(), TopicSpec{Name: name, Partitions: 2, ReplicationFactor: 1}); err != nil {
			t.Fatal(err)
		}
	}
	before := c.proposals()
	for name, x := range map[string]struct {
		spec TopicSpec
		want error
	}{
		"exists":        {TopicSpec{Name: "there", Partitions: 1, ReplicationFactor: 1}, meta.ErrTopicExists},
		"name":          {TopicSpec{Name: "..", Partitions: 1, ReplicationFactor: 1}, meta.ErrInvalidTopicName},
		"no partitions": {TopicSpec{Name: "t", Partitions: 0, ReplicationFactor: 1}, meta.ErrInvalidPartitions},
		"too many":      {TopicSpec{Name: "t", Partitions: meta.MaxPartitions + 1, ReplicationFactor: 1}, meta.ErrInvalidPartitions},
		"factor":        {TopicSpec{Name: "t", Partitions: 1, ReplicationFactor: 3}, meta.ErrInvalidReplicas},
		"setting":       {TopicSpec{Name: "t", Partitions: 1, ReplicationFactor: 1, Settings: map[string]string{"x": "1"}}, meta.ErrInvalidConfig},
		"both":          {TopicSpec{Name: "t", Partitions: 1, ReplicationFactor: -1, Assignment: [][]record.NodeID{{1}}}, meta.ErrInvalidPlacement},
		"unknown node":  {TopicSpec{Name: "t", Partitions: -1, ReplicationFactor: -1, Assignment: [][]record.NodeID{{3}}}, meta.ErrInvalidPlacement},
		"node twice":    {TopicSpec{Name: "t", Partitions: -1, ReplicationFactor: -1, Assignment: [][]record.NodeID{{1, 1}}}, meta.ErrInvalidPlacement},
		"no nodes":      {TopicSpec{Name: "t", Partitions: -1, ReplicationFactor: -1, Assignment: [][]record.NodeID{{}}}, meta.ErrInvalidPlacement},
		"no partition":  {TopicSpec{Name: "t", Partitions: -1, ReplicationFactor: -1, Assignment: [][]record.NodeID{}}, meta.ErrInvalidPlacement},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := m.CreateTopic(t.Context(), x.spec)
			wantErr(t, err, x.want)
			x.spec.ValidateOnly = true
			_, err = m.CreateTopic(t.Context(), x.spec)
			wantErr(t, err, x.want)
		})
	}
	_, err := m.CreateTopic(t.Context(), TopicSpec{Name: "a_b", Partitions: 1, ReplicationFactor: 1, ValidateOnly: true})
	wantErr(t, err, meta.ErrInvalidTopicName)
	wantErr(t, m.CreatePartitions(t.Context(), PartitionsSpec{Topic: "none", Count: 2}), meta.ErrUnknownTopic)
	wantErr(t, m.CreatePartitions(t.Context(), PartitionsSpec{Topic: "there", Count: 2}), meta.ErrInvalidPartitions)
	wantErr(t, m.CreatePartitions(t.Context(), PartitionsSpec{Topic: "there", Count: 3, Assignment: [][]record.NodeID{{1}, {2}}}), meta.ErrInvalidPlacement)
	if c.proposals() != before {
		t.Fatal("something was proposed")
	}
	// The machine decides about what two ask for at the same time.
	_, err = m.CreateTopic(t.Context(), TopicSpec{Name: "a_b", Partitions: 1, ReplicationFactor: 1})
	wantErr(t, err, meta.ErrInvalidTopicName)
	wantErr(t, m.DeleteTopic(t.Context(), record.NewTopicID()), meta.ErrUnknownTopic)
}

// New partitions have as many replicas as the topic's others.
func TestNewPartitionsHaveTheTopicsReplicationFactor(t *testing.T) {
	c := newLog(t, "", "", "")
	m := c.master(1)
	if _, err := m.CreateTopic(t.Context(), TopicSpec{Name: "t", Partitions: 1, ReplicationFactor: 2}); err != nil {
		t.Fatal(err)
	}
	if err := m.CreatePartitions(t.Context(), PartitionsSpec{Topic: "t", Count: 4}); err != nil {
		t.Fatal(err)
	}
	for i, p := range c.image().Topic("t").Partitions {
		if len(p.Replicas) != 2 {
			t.Errorf("partition %d has %d replicas", i, len(p.Replicas))
		}
	}
}

// Whoever made a topic may use it at once.
func TestChangesAreAwaited(t *testing.T) {
	c := newLog(t, "")
	var awaited []record.Index
	m := New(Config{Node: 1, Proposer: c, Image: c.image, DefaultPartitions: 4, Settled: func(_ context.Context, i record.Index) { awaited = append(awaited, i) }})
	topic, err := m.CreateTopic(t.Context(), TopicSpec{Name: "t", Partitions: -1, ReplicationFactor: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.CreatePartitions(t.Context(), PartitionsSpec{Topic: "t", Count: 5}); err != nil {
		t.Fatal(err)
	}
	if err := m.DeleteTopic(t.Context(), topic.ID); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(awaited, []record.Index{2, 3, 4}) {
		t.Fatalf("awaited %v", awaited)
	}
}

func TestNothingIsBegunWithoutTimeOrMaster(t *testing.T) {
	c := newLog(t, "")
	m := c.master(1)
	before := c.proposals()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := m.CreateTopic(ctx, TopicSpec{Name: "t", Partitions: 1, ReplicationFactor: 1})
	wantErr(t, err, ErrUnavailable)
	wantErr(t, err, context.Canceled)
	c.err = errors.New("no leader")
	_, err = m.CreateTopic(t.Context(), TopicSpec{Name: "t", Partitions: 1, ReplicationFactor: 1})
	wantErr(t, err, ErrUnavailable)
	if c.proposals() != before {
		t.Fatal("something was proposed")
	}
}
