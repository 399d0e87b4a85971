package master

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// ErrHealthy: a partition has a majority, so that nothing has to be given up.
var ErrHealthy = errors.New("the partition has the majority of its replicas")

// KnownEnd is how far a node's replica of a partition went when it was last
// heard of.
type KnownEnd struct {
	Node record.NodeID
	End  record.Offset // of the log, one past the last record
	At   time.Time
	// Alive: it is heard of now.
	Alive bool
}

// RecoverSpec asks to go on from one replica of a partition whose majority is
// lost for good.
type RecoverSpec struct {
	PartitionName
	Survivor record.NodeID   // whose replica; −1: none, the partition starts empty
	Nodes    []record.NodeID // where it shall lie then; nil: the master chooses as many as there were
	Force    bool            // although a majority seems to be there
	DryRun   bool
}

// Recovery is what an unsafe recovery does, or would.
type Recovery struct {
	PartitionName
	Survivor record.NodeID
	Nodes    []record.NodeID
	Ends     []KnownEnd // of all replicas, the longest first
	MayLose  string     // a sentence
}

// UnsafeRecover gives up all replicas of a partition but one, or all. It is
// never done but on somebody's word. Errors: meta.ErrUnknownTopic,
// meta.ErrUnknownPartition, meta.ErrNoSurvivor, ErrHealthy.
func (m *Master) UnsafeRecover(ctx context.Context, s RecoverSpec) (Recovery, error) {
	im := m.cfg.Image()
	tp, p, err := find(im, s.Topic, s.Partition)
	if err != nil {
		return Recovery{}, err
	}
	name := fmt.Sprintf("%s/%d", s.Topic, s.Partition)
	r := Recovery{PartitionName: s.PartitionName, Survivor: s.Survivor, Nodes: s.Nodes, Ends: m.ends(ctx, tp)}
	if _, ok := p.Hosted(s.Survivor); s.Survivor >= 0 && !ok {
		return r, fmt.Errorf("%w: partition %s, node %d", meta.ErrNoSurvivor, name, s.Survivor)
	}
	if hasMajority(im, p) && !s.Force {
		return r, fmt.Errorf("%w: %s; wait for its leader, or move it", ErrHealthy, name)
	}
	if r.Nodes == nil {
		r.Nodes = restored(im, p, s.Survivor)
	}
	if _, err := checkAssignment(im, [][]record.NodeID{r.Nodes}); err != nil {
		return r, err
	}
	r.MayLose = mayLose(r)
	if s.DryRun {
		return r, nil
	}
	_, err = m.propose(ctx, meta.UnsafeRecover(m.cfg.Now(), tp, s.Survivor, r.Nodes))
	return r, err
}

func (m *Master) ends(ctx context.Context, tp record.TopicPartition) []KnownEnd {
	if m.cfg.Ends == nil {
		return nil
	}
	ends := m.cfg.Ends(ctx, tp)
	slices.SortStableFunc(ends, func(a, b KnownEnd) int { return cmp.Compare(b.End, a.End) })
	return ends
}

func hasMajority(im *meta.Image, p *meta.Placement) bool {
	live := 0
	for _, r := range p.Replicas {
		if n := im.Nodes[r.Node]; n != nil && n.State != meta.NodeDown && !r.Lost {
			live++
		}
	}
	return 2*live > len(p.Replicas)
}

// restored are the survivor's node and the best others, up to as many replicas
// as there were.
func restored(im *meta.Image, p *meta.Placement, survivor record.NodeID) []record.NodeID {
	f := newFleet(im, 0, takes)
	var nodes []record.NodeID
	if survivor >= 0 {
		nodes = append(nodes, survivor)
	}
	for len(nodes) < len(p.Wanted()) {
		l := f.best(nodes, zonesOf(im, nodes))
		if l == nil {
			break
		}
		nodes = append(nodes, l.node.ID)
	}
	return nodes
}

// mayLose says what is given up, as far as it is known.
func mayLose(r Recovery) string {
	if r.Survivor < 0 {
		if len(r.Ends) > 0 {
			return fmt.Sprintf("all records of the partition are given up; the last known end is offset %d (node %d at %s)", r.Ends[0].End, r.Ends[0].Node, r.Ends[0].At.UTC().Format(time.RFC3339))
		}
		return "all records of the partition are given up"
	}
	i := slices.IndexFunc(r.Ends, func(e KnownEnd) bool { return e.Node == r.Survivor })
	if i < 0 {
		return fmt.Sprintf("how far node %d's replica goes is not known: acknowledged records that did not reach it are given up", r.Survivor)
	}
	if most := r.Ends[0]; most.End > r.Ends[i].End {
		return fmt.Sprintf("offsets %d to %d may be given up: node %d ends at offset %d, node %d ended at %d when last heard of (%s)",
			r.Ends[i].End, most.End-1, r.Survivor, r.Ends[i].End, most.Node, most.End, most.At.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("node %d has all that is known of, up to offset %d; records acknowledged after the others were last heard of may be given up", r.Survivor, r.Ends[i].End-1)
}
