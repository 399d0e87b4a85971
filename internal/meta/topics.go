package meta

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/meta/metapb"
	"github.com/tube-mq/tube/internal/record"
)

func (m *Machine) createTopic(im *Image, now time.Time, c *metapb.CreateTopic) Result {
	name := c.GetName()
	if err := CheckTopicName(name); err != nil {
		return Result{Err: err}
	}
	if im.ByName[name] != nil {
		return Result{Err: fmt.Errorf("%w: %s", ErrTopicExists, name)}
	}
	if other, ok := m.metrics[metricName(name)]; ok {
		return Result{Err: collision(name, other)}
	}
	id, err := topicID(c.GetId())
	if err != nil {
		return Result{Err: err}
	}
	if im.Topics[id] != nil {
		return Result{Err: fmt.Errorf("%w: id %s", ErrTopicExists, id)}
	}
	overrides := unpair(c.GetOverrides())
	cfg, err := ResolveTopicConfig(overrides, im.Defaults)
	if err != nil {
		return Result{Err: err}
	}
	if n := len(c.GetPartitions()); n < 1 || n > MaxPartitions {
		return Result{Err: fmt.Errorf("%w: %d; 1 to %d are allowed", ErrInvalidPartitions, n, MaxPartitions)}
	}
	placements, err := m.place(im, c.GetPartitions())
	if err != nil {
		return Result{Err: err}
	}
	t := &Topic{ID: id, Name: name, Overrides: overrides, Config: cfg, Partitions: placements, Created: now}
	im.setTopic(t)
	m.metrics[metricName(name)] = name
	m.note(now, "topic-created", "topic "+name, "topic %s was created with %s, replication factor %d%s", name, count(len(placements), "partition", "partitions"), len(placements[0].Replicas), im.reservations(placements))
	return Result{Topic: t}
}

// reservations says what is short of the best about new placements.
func (im *Image) reservations(placements []Placement) string {
	text, down := "", 0
	if brokers := len(im.Brokers()); len(placements[0].Replicas) == brokers && brokers < 3 {
		text += fmt.Sprintf("; the cluster has %s", count(brokers, "broker", "brokers"))
	}
	for _, p := range placements {
		for _, r := range p.Replicas {
			if im.Nodes[r.Node].State == NodeDown {
				down++
			}
		}
	}
	if down > 0 {
		text += fmt.Sprintf("; %s on nodes that are down", count(down, "replica is", "replicas are"))
	}
	return text
}

// setTopic puts a topic in, in maps of its own.
func (im *Image) setTopic(t *Topic) {
	im.Topics, im.ByName = maps.Clone(im.Topics), maps.Clone(im.ByName)
	im.Topics[t.ID], im.ByName[t.Name] = t, t
}

func topicID(b []byte) (record.TopicID, error) {
	var id record.TopicID
	if len(b) != len(id) || bytes.Equal(b, id[:]) {
		return id, fmt.Errorf("%w: topic id of %d bytes", ErrInvalidConfig, len(b))
	}
	copy(id[:], b)
	return id, nil
}

// place gives new partitions their groups and replicas.
func (m *Machine) place(im *Image, partitions []*metapb.Nodes) ([]Placement, error) {
	factor := len(partitions[0].GetIds())
	for i, p := range partitions {
		if len(p.GetIds()) == 0 || len(p.GetIds()) != factor {
			return nil, fmt.Errorf("%w: partition %d has %d replicas, the first has %d", ErrInvalidPlacement, i, len(p.GetIds()), factor)
		}
		for j, n := range p.GetIds() {
			if im.Nodes[record.NodeID(n)] == nil {
				return nil, fmt.Errorf("%w: %w %d", ErrInvalidPlacement, ErrUnknownNode, n)
			}
			if slices.Contains(p.GetIds()[:j], n) {
				return nil, fmt.Errorf("%w: partition %d has two replicas on node %d", ErrInvalidPlacement, i, n)
			}
		}
	}
	out := make([]Placement, len(partitions))
	for i, p := range partitions {
		out[i] = Placement{Group: m.nextGroup, Leader: -1}
		m.nextGroup++
		for _, n := range p.GetIds() {
			out[i].Founders = append(out[i].Founders, m.nextReplica)
			out[i].Replicas = append(out[i].Replicas, Replica{ID: m.nextReplica, Node: record.NodeID(n)})
			m.nextReplica++
		}
	}
	return out, nil
}

func (m *Machine) lookup(im *Image, b []byte) (*Topic, error) {
	id, err := topicID(b)
	if err != nil {
		return nil, err
	}
	t := im.Topics[id]
	if t == nil {
		return nil, fmt.Errorf("%w: id %s", ErrUnknownTopic, id)
	}
	return t, nil
}

func (m *Machine) deleteTopic(im *Image, now time.Time, c *metapb.DeleteTopic) Result {
	t, err := m.lookup(im, c.GetId())
	if err != nil {
		return Result{Err: err}
	}
	im.Topics, im.ByName = maps.Clone(im.Topics), maps.Clone(im.ByName)
	delete(im.Topics, t.ID)
	delete(im.ByName, t.Name)
	delete(m.metrics, metricName(t.Name))
	with := ""
	if n := im.dropQueueGroupsOf(t.ID); n > 0 {
		with = " and with it " + count(n, "queue group", "queue groups")
	}
	m.note(now, "topic-deleted", "topic "+t.Name, "topic %s was deleted%s", t.Name, with)
	return Result{Topic: t}
}

func (m *Machine) createPartitions(im *Image, now time.Time, c *metapb.CreatePartitions) Result {
	old, err := m.lookup(im, c.GetId())
	if err != nil {
		return Result{Err: err}
	}
	n := len(c.GetPartitions())
	if int(c.GetBase()) != len(old.Partitions) || n < 1 || len(old.Partitions)+n > MaxPartitions {
		return Result{Err: fmt.Errorf("%w: %d more than the %d there are (%d expected); at most %d are allowed", ErrInvalidPartitions, n, len(old.Partitions), c.GetBase(), MaxPartitions)}
	}
	placements, err := m.place(im, c.GetPartitions())
	if err != nil {
		return Result{Err: err}
	}
	t := *old
	t.Partitions = append(slices.Clone(old.Partitions), placements...)
	im.setTopic(&t)
	m.note(now, "partitions-created", "topic "+t.Name, "topic %s has %d partitions now, it had %d", t.Name, len(t.Partitions), len(old.Partitions))
	return Result{Topic: &t}
}

func (m *Machine) alterConfig(im *Image, now time.Time, c *metapb.AlterConfig) Result {
	change := func(old map[string]string) map[string]string {
		next := map[string]string{}
		if !c.GetReplace() {
			maps.Copy(next, old)
		}
		for _, k := range c.GetRemove() {
			delete(next, k)
		}
		maps.Copy(next, unpair(c.GetSet()))
		return next
	}
	if len(c.GetId()) == 0 {
		return m.alterDefaults(im, now, change(im.Defaults))
	}
	old, err := m.lookup(im, c.GetId())
	if err != nil {
		return Result{Err: err}
	}
	t := *old
	t.Overrides = change(old.Overrides)
	if t.Config, err = ResolveTopicConfig(t.Overrides, im.Defaults); err != nil {
		return Result{Err: err}
	}
	if err := CheckStorageStays(old, t.Config); err != nil {
		return Result{Err: err}
	}
	im.setTopic(&t)
	m.note(now, "topic-altered", "topic "+t.Name, "settings of topic %s were changed", t.Name)
	return Result{Topic: &t}
}

// CheckStorageStays refuses settings that would move a topic's batches between
// disk and memory. Error: ErrInvalidConfig.
func CheckStorageStays(old *Topic, next TopicConfig) error {
	if next.MemoryOnly == old.Config.MemoryOnly {
		return nil
	}
	return fmt.Errorf("%w: tube.storage of topic %s cannot be changed once it is there; create another topic", ErrInvalidConfig, old.Name)
}

func (m *Machine) alterDefaults(im *Image, now time.Time, defaults map[string]string) Result {
	if err := checkDefaults(defaults); err != nil {
		return Result{Err: err}
	}
	topics, byName := make(map[record.TopicID]*Topic, len(im.Topics)), make(map[string]*Topic, len(im.Topics))
	for id, old := range im.Topics {
		t := *old
		var err error
		if t.Config, err = ResolveTopicConfig(t.Overrides, defaults); err != nil {
			return Result{Err: err}
		}
		if err := CheckStorageStays(old, t.Config); err != nil {
			return Result{Err: err}
		}
		topics[id], byName[t.Name] = &t, &t
	}
	im.Defaults, im.Topics, im.ByName = defaults, topics, byName
	m.note(now, "defaults-altered", "cluster", "the cluster's default settings were changed")
	return Result{}
}
