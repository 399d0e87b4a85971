package master

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// movesPerCommand bounds the partitions that one command of the meta log moves.
const movesPerCommand = 1000

// PartitionMove is where a partition's replicas are and where they shall be,
// preferred leader first. The same nodes in another order copy nothing.
type PartitionMove struct {
	Topic     string
	Partition record.Partition
	From, To  []record.NodeID
}

// ReassignSpec asks for a partition to lie on nodes.
type ReassignSpec struct {
	Topic     string
	Partition record.Partition
	Nodes     []record.NodeID // preferred leader first
}

// PartitionName names a partition as people do.
type PartitionName struct {
	Topic     string
	Partition record.Partition
}

// Reassign moves partitions to nodes; throttle is in bytes per second for each,
// 0 for none. It returns what moves, and an error for each of specs, nil where
// there is none. Errors: meta.ErrUnknownTopic, meta.ErrUnknownPartition,
// meta.ErrInvalidPlacement.
func (m *Master) Reassign(ctx context.Context, specs []ReassignSpec, throttle int64, dryRun bool) ([]PartitionMove, []error) {
	im := m.cfg.Image()
	errs := make([]error, len(specs))
	var moves []meta.Move
	var of []int // specs, by move
	for i, s := range specs {
		tp, p, err := find(im, s.Topic, s.Partition)
		if err == nil {
			err = checkTarget(im, p, s.Nodes)
		}
		if errs[i] = err; err != nil {
			continue
		}
		of = append(of, i)
		moves = append(moves, meta.Move{TopicPartition: tp, Nodes: s.Nodes, Cause: meta.CauseRequest})
	}
	told := describe(im, moves)
	if dryRun {
		return told, errs
	}
	for j, err := range m.move(ctx, moves, throttle) {
		errs[of[j]] = err
	}
	return told, errs
}

func find(im *meta.Image, topic string, partition record.Partition) (record.TopicPartition, *meta.Placement, error) {
	t := im.Topic(topic)
	if t == nil {
		return record.TopicPartition{}, nil, fmt.Errorf("%w: %s", meta.ErrUnknownTopic, topic)
	}
	tp := record.TopicPartition{Topic: t.ID, Partition: partition}
	p := im.Partition(tp)
	if p == nil {
		return tp, nil, fmt.Errorf("%w: %d of topic %s, which has %d", meta.ErrUnknownPartition, partition, topic, len(t.Partitions))
	}
	return tp, p, nil
}

// checkTarget checks what somebody wants a partition to lie on: nodes that it
// does not lie on yet must be able to take it.
func checkTarget(im *meta.Image, p *meta.Placement, nodes []record.NodeID) error {
	if _, err := checkAssignment(im, [][]record.NodeID{nodes}); err != nil {
		return err
	}
	for _, id := range nodes {
		if _, ok := p.Hosted(id); ok {
			continue
		}
		if n := im.Nodes[id]; !takes(n) {
			return fmt.Errorf("%w: node %d is %s and takes no new replicas", meta.ErrInvalidPlacement, id, n.State)
		}
	}
	return nil
}

// move proposes moves, some at a time, and says of each what became of it.
func (m *Master) move(ctx context.Context, moves []meta.Move, throttle int64) []error {
	errs := make([]error, 0, len(moves))
	for some := range slices.Chunk(moves, movesPerCommand) {
		res, err := m.propose(ctx, meta.Reassign(m.cfg.Now(), some, throttle))
		errs = appendItems(errs, res, err, len(some))
	}
	return errs
}

func appendItems(errs []error, res meta.Result, err error, n int) []error {
	if err == nil && len(res.Items) == n {
		return append(errs, res.Items...)
	}
	if err == nil {
		err = fmt.Errorf("%w: it answered about %d of %d partitions", ErrUnavailable, len(res.Items), n)
	}
	return append(errs, slices.Repeat([]error{err}, n)...)
}

func describe(im *meta.Image, moves []meta.Move) []PartitionMove {
	var out []PartitionMove
	for _, mv := range moves {
		p := im.Partition(mv.TopicPartition)
		if from := nodesOf(p.Replicas); p.Target != nil || !slices.Equal(from, mv.Nodes) {
			out = append(out, PartitionMove{im.Topics[mv.Topic].Name, mv.Partition, from, mv.Nodes})
		}
	}
	return out
}

// Rebalance evens out replicas and preferred leaders: see the function of that
// name. It returns what moves.
func (m *Master) Rebalance(ctx context.Context, throttle int64, dryRun bool) ([]PartitionMove, error) {
	im := m.cfg.Image()
	moves := Rebalance(im)
	return m.moveAll(ctx, im, moves, throttle, dryRun)
}

// AlterReplicationFactor gives each partition of a topic n replicas.
func (m *Master) AlterReplicationFactor(ctx context.Context, topic string, n int, throttle int64, dryRun bool) ([]PartitionMove, error) {
	im := m.cfg.Image()
	t := im.Topic(topic)
	if t == nil {
		return nil, fmt.Errorf("%w: %s", meta.ErrUnknownTopic, topic)
	}
	moves, err := changeFactor(im, t, n)
	if err != nil {
		return nil, err
	}
	return m.moveAll(ctx, im, moves, throttle, dryRun)
}

func (m *Master) moveAll(ctx context.Context, im *meta.Image, moves []meta.Move, throttle int64, dryRun bool) ([]PartitionMove, error) {
	told := describe(im, moves)
	if dryRun {
		return told, nil
	}
	return told, errors.Join(m.move(ctx, moves, throttle)...)
}

// CancelReassign drives partitions back to where they were, and says of each
// what became of it. Errors: meta.ErrNotMoving, and those of Reassign.
func (m *Master) CancelReassign(ctx context.Context, partitions []PartitionName) []error {
	im := m.cfg.Image()
	errs := make([]error, len(partitions))
	var refs []record.TopicPartition
	var of []int
	for i, name := range partitions {
		tp, p, err := find(im, name.Topic, name.Partition)
		if err == nil && p.Target == nil {
			err = fmt.Errorf("%w: partition %s/%d", meta.ErrNotMoving, name.Topic, name.Partition)
		}
		if errs[i] = err; err == nil {
			refs, of = append(refs, tp), append(of, i)
		}
	}
	var got []error
	for some := range slices.Chunk(refs, movesPerCommand) {
		res, err := m.propose(ctx, meta.CancelReassign(m.cfg.Now(), some))
		got = appendItems(got, res, err, len(some))
	}
	for j, err := range got {
		errs[of[j]] = err
	}
	return errs
}

// Reassignment is a change of replicas under way.
type Reassignment struct {
	PartitionName
	Replicas []record.NodeID // all that have some, those that come and go included
	Adding   []record.NodeID
	Removing []record.NodeID
	Throttle int64
	Cause    string
}

// ListReassignments lists what moves, of one topic or with "" of all, by name.
func (m *Master) ListReassignments(topic string) []Reassignment {
	im := m.cfg.Image()
	var out []Reassignment
	for _, t := range im.Topics {
		if topic != "" && t.Name != topic {
			continue
		}
		for i := range t.Partitions {
			if p := &t.Partitions[i]; p.Target != nil {
				out = append(out, reassignment(PartitionName{t.Name, record.Partition(i)}, p))
			}
		}
	}
	slices.SortFunc(out, func(a, b Reassignment) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out
}

func reassignment(name PartitionName, p *meta.Placement) Reassignment {
	r := Reassignment{PartitionName: name, Throttle: p.Throttle, Cause: p.Cause}
	for _, list := range [][]meta.Replica{p.Target, p.Replicas, p.Leaving} {
		for _, x := range list {
			if slices.Contains(r.Replicas, x.Node) {
				continue
			}
			r.Replicas = append(r.Replicas, x.Node)
			if !slices.Contains(p.Target, x) {
				r.Removing = append(r.Removing, x.Node)
			}
		}
	}
	for _, x := range p.Target {
		if !slices.Contains(p.Replicas, x) && !x.Lost {
			r.Adding = append(r.Adding, x.Node)
		}
	}
	return r
}
