package broker

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tube-mq/tube/internal/commitlog"
	"github.com/tube-mq/tube/internal/record"
)

// DamagedReplica is a replica of this node that is out of service as its data is
// damaged.
type DamagedReplica struct {
	record.TopicPartition
	Replica record.ReplicaID
	Cause   error
}

// DamagedReplicas lists what is out of service here. They come back as new replicas
// once metadata says so, copied from the others.
func (b *Broker) DamagedReplicas() []DamagedReplica {
	var out []DamagedReplica
	if !b.damaged.Load() && !b.cfg.Host.Damaged() {
		return nil
	}
	for _, p := range b.all() {
		cause := p.group.Err()
		if d := p.damage.Load(); d != nil {
			cause = *d
		}
		if cause != nil {
			out = append(out, DamagedReplica{p.id, p.replica, cause})
		}
	}
	return out
}

// LapsedReplica is a replica of a relaxed topic on this node that may have forgotten the
// end of its log, as the machine stopped uncleanly, and does not vote until it has it.
type LapsedReplica struct {
	record.TopicPartition
	// WaitsFor are the nodes that have not told where their replica's log ends; none: it
	// waits for a leader.
	WaitsFor []record.NodeID
}

// LapsedReplicas lists them, by partition.
func (b *Broker) LapsedReplicas() []LapsedReplica {
	var out []LapsedReplica
	for _, p := range b.all() {
		if nodes, lapsed := p.group.Lapsed(); lapsed {
			out = append(out, LapsedReplica{p.id, nodes})
		}
	}
	slices.SortFunc(out, func(a, b LapsedReplica) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// giveUp takes a replica out of service whose log turned out to be damaged, if
// others can take its place: they elect a leader, and this one is copied anew. The
// only replica stays: what of it is sound is still worth reading.
func (p *Partition) giveUp(err error) {
	var corrupt *commitlog.CorruptError
	if !errors.As(err, &corrupt) || p.group.Alone() {
		return
	}
	p.fail(err)
	p.group.Fail(err)
}

// Recover makes this node's replica of a partition its only one; see
// replica.Group.ForceSole.
func (b *Broker) Recover(ctx context.Context, id record.TopicPartition) error {
	p, ok := b.Partition(id)
	if !ok {
		return ErrUnknownPartition
	}
	done := make(chan error, 1)
	p.group.ForceSole(func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// KnownEnd is the offset one past the last record that this node's replica has
// applied, whoever leads.
func (b *Broker) KnownEnd(id record.TopicPartition) (record.Offset, bool) {
	p, ok := b.Partition(id)
	if !ok {
		return 0, false
	}
	return p.machine.bounds.Load().HighWatermark, true
}
