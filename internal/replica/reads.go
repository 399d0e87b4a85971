package replica

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
)

// A leader that was cut off may not know of its successor. Who must not miss
// anything asks for a barrier: raft asks a majority whether this replica still
// leads (ReadIndex, never a lease), under a fresh context for each attempt.

// readQueue holds barriers until raft has answered and the machine has caught up.
type readQueue struct {
	next uint64 // context of the next attempt
	// asked wait for raft, by context; ready for the machine to reach an index.
	asked map[uint64][]func(error)
	ready []readWaiter
	fresh []func(error) // not asked for yet
}

type readWaiter struct {
	index uint64
	done  []func(error)
}

// Barrier returns once the machine of this replica, which must lead, holds all
// that was committed when it was called.
// Errors: ErrNotLeader, ErrStopped, ErrDamaged, the context's.
func (g *Group) Barrier(ctx context.Context) error {
	done := make(chan error, 1)
	if !g.BarrierThen(func(err error) { done <- err }) {
		return ErrStopped
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// BarrierThen calls done, from the group's loop, when Barrier would return; it
// reports false if the group is closed, and done will not be called.
func (g *Group) BarrierThen(done func(error)) bool {
	return g.Do(func() {
		switch {
		case g.core == nil:
			done(g.failed)
		case !g.core.lead:
			done(ErrNotLeader)
		default:
			g.core.reads.fresh = append(g.core.reads.fresh, done)
		}
	})
}

// ask hands all waiting barriers to raft as one question.
func (c *core) ask() {
	q := &c.reads
	if len(q.fresh) == 0 {
		return
	}
	if !c.lead {
		q.fail(ErrNotLeader)
		return
	}
	if !c.serving {
		// Raft answers for a sole voter at once, from a commit index that a restart
		// may have set back. They are asked when it has committed in its own term.
		return
	}
	if q.asked == nil {
		q.asked = map[uint64][]func(error){}
	}
	q.next++
	q.asked[q.next] = q.fresh
	q.fresh = nil
	c.rn.ReadIndex(binary.LittleEndian.AppendUint64(nil, q.next))
}

// answered takes raft's answers.
func (q *readQueue) answered(states []raft.ReadState) {
	for _, s := range states {
		if len(s.RequestCtx) != 8 {
			continue
		}
		ctx := binary.LittleEndian.Uint64(s.RequestCtx)
		if done := q.asked[ctx]; done != nil {
			delete(q.asked, ctx)
			q.ready = append(q.ready, readWaiter{s.Index, done})
		}
	}
}

// reached answers barriers whose index is applied.
func (q *readQueue) reached(applied uint64) {
	left := q.ready[:0]
	for _, w := range q.ready {
		if w.index > applied {
			left = append(left, w)
			continue
		}
		for _, f := range w.done {
			f(nil)
		}
	}
	clear(q.ready[len(left):])
	q.ready = left
}

func (q *readQueue) empty() bool { return len(q.fresh) == 0 && len(q.asked) == 0 && len(q.ready) == 0 }

func (q *readQueue) fail(err error) {
	for _, f := range q.fresh {
		f(err)
	}
	for _, ctx := range slices.Sorted(maps.Keys(q.asked)) {
		for _, f := range q.asked[ctx] {
			f(err)
		}
	}
	for _, w := range q.ready {
		for _, f := range w.done {
			f(err)
		}
	}
	q.fresh, q.asked, q.ready = nil, nil, nil
}
