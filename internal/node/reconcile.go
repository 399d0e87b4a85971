package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// reconciler makes the broker host what metadata says. It compares the image
// that it carried out last with the newest one: what was in the old and is not
// in the new was deleted. What is in neither is left alone, whatever lies on disk.
type reconciler struct {
	node    record.NodeID
	image   func() *meta.Image
	broker  *broker.Broker
	deleted func([]record.TopicID) // told of topics that are gone
	// gone is told of groups that this node no longer hosts; ended: nobody does.
	gone   func(g record.Group, ended bool)
	topics func(*meta.Image) // told of every image that it carried out
	logger *slog.Logger

	wake chan struct{}
	done *meta.Image // carried out last; the loop's own

	mu      sync.Mutex
	index   record.Index  // of done
	changed chan struct{} // closed and replaced when index moves
}

func newReconciler(node record.NodeID, image func() *meta.Image, b *broker.Broker, logger *slog.Logger) *reconciler {
	return &reconciler{
		node: node, image: image, broker: b, logger: logger, deleted: func([]record.TopicID) {}, gone: func(record.Group, bool) {}, topics: func(*meta.Image) {},
		wake: make(chan struct{}, 1), changed: make(chan struct{}),
		done: &meta.Image{},
	}
}

// nudge says that there is something new. It does not block.
func (r *reconciler) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run carries out metadata until ctx ends.
func (r *reconciler) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
			r.once()
		}
	}
}

// once carries out the newest image.
func (r *reconciler) once() {
	im := r.image()
	var gone []record.TopicID
	for id, t := range r.done.Topics {
		now := im.Topics[id]
		for n := range t.Partitions {
			tp := record.TopicPartition{Topic: id, Partition: record.Partition(n)}
			had, ok := t.Partitions[n].Hosted(r.node)
			if !ok {
				continue
			}
			// Deleted, moved away, or to be replaced by another replica here: metadata
			// that once said it is here says now that it is not.
			next := im.Partition(tp)
			if next != nil && next.Group == t.Partitions[n].Group {
				if has, ok := next.Hosted(r.node); ok && has.ID == had.ID {
					if next.Recovery > t.Partitions[n].Recovery && len(next.Replicas) == 1 {
						r.recover(tp)
					}
					continue
				}
			}
			r.unhost(tp, t.Partitions[n].Group)
			r.gone(t.Partitions[n].Group, next == nil || next.Group != t.Partitions[n].Group)
		}
		if now == nil {
			gone = append(gone, id)
		}
	}
	for id, t := range im.Topics {
		if r.done.Topics[id] == t {
			continue
		}
		for n := range t.Partitions {
			if _, ok := t.Partitions[n].Hosted(r.node); !ok {
				continue
			}
			if err := r.broker.Host(t, record.Partition(n)); err != nil {
				r.logger.Error("cannot host a partition", "topic", t.Name, "partition", n, "err", err)
			}
		}
	}
	r.done = im
	// First: who waits for the metadata to be carried out may ask for a new group at once.
	r.topics(im)
	r.mu.Lock()
	r.index = im.Index
	close(r.changed)
	r.changed = make(chan struct{})
	r.mu.Unlock()
	if len(gone) > 0 {
		r.deleted(gone)
	}
}

// recover carries out an operator's word that the replica here shall go on alone.
// Once: a checkpoint covers the metadata that says so only after it was done.
func (r *reconciler) recover(id record.TopicPartition) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := r.broker.Recover(ctx, id); err != nil {
		r.logger.Error("unsafe recovery failed; ask for it again", "partition", id.String(), "err", err)
	}
}

func (r *reconciler) unhost(id record.TopicPartition, g record.Group) {
	if err := r.broker.Unhost(id, g); err != nil {
		r.logger.Error("cannot remove a deleted partition's data; it is tried again at the next start", "partition", id.String(), "err", err)
	}
}

var errNotSettled = errors.New("metadata is not carried out yet")

// await waits until everything up to index is carried out.
func (r *reconciler) await(ctx context.Context, index record.Index) error {
	for {
		r.mu.Lock()
		reached, changed := r.index >= index, r.changed
		r.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errNotSettled
		}
	}
}

// ready waits until every partition that this node hosts, of all topics, has a
// leader here.
func (r *reconciler) ready(ctx context.Context) error {
	w := make(nudge, 1)
	for {
		waiting := r.broker.Waiting(w)
		if waiting == nil {
			return nil
		}
		select {
		case <-w:
			waiting()
		case <-ctx.Done():
			waiting()
			return errNotSettled
		}
	}
}

// nudge is a broker.Watcher.
type nudge chan struct{}

// Wake implements broker.Watcher.
func (n nudge) Wake() {
	select {
	case n <- struct{}{}:
	default:
	}
}
