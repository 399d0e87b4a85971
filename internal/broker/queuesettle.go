package broker

import (
	"context"
	"fmt"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/replica"
)

// QueueSettle settles leases of this partition. What changes the State is answered
// once that is committed; nil: done. Saying the same again is safe.
//
// A leader that was deposed, and has not heard of it, does not know what its successor
// has committed: what is refused is answered once a majority has said that this node
// leads.
//
// Errors: ErrNotLeader, ErrUnknownOutcome (ask again: it may have been done),
// queue.ErrUnknownGroup, and per lease those of queue.Settlement.
func (p *Partition) QueueSettle(ctx context.Context, id queue.GroupID, list []queue.Settlement) []error {
	s := p.settleAll(id, list, func(_ *settling, x *settled) func(error) {
		x.done = make(committing, 1)
		return func(err error) { x.done <- err }
	})
	for _, x := range s.desks {
		if len(x.waiting) > 0 {
			s.committed(x, x.done.wait(ctx))
		}
	}
	answer := make(chan error, 1)
	if s.confirm(func(err error) { answer <- err }) {
		select {
		case err := <-answer:
			s.unconfirmed(err)
		case <-ctx.Done():
			s.unconfirmed(fmt.Errorf("%w: no majority has confirmed the leader", ErrUnknownOutcome))
		}
	}
	return s.errs
}

// confirm calls done, maybe from the group's loop, with nil once this node is known to
// have led when it refused what it did, or with why not; false: nothing needs that, and
// done is not called.
func (s *settling) confirm(done func(error)) bool {
	if len(s.refused) == 0 || s.p.group.Alone() {
		return false
	}
	if !s.p.group.BarrierThen(done) {
		done(replica.ErrStopped)
	}
	return true
}

// unconfirmed takes back what was refused, unless it is confirmed.
func (s *settling) unconfirmed(err error) {
	if err == nil {
		return
	}
	for _, i := range s.refused {
		s.errs[i] = proposalError(err)
	}
}

// settleAll begins what QueueSettle does: then makes what is called when what waits at a
// desk is committed, or will not be.
func (p *Partition) settleAll(id queue.GroupID, list []queue.Settlement, then func(*settling, *settled) func(error)) *settling {
	s := &settling{p: p, desks: map[uint32]*settled{}, errs: make([]error, len(list))}
	g, err := p.groupOf(id)
	if err != nil {
		for i := range s.errs {
			s.errs[i] = fmt.Errorf("%w: %d", err, id)
		}
		return s
	}
	s.g = g
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.q.nowMillis()
	for i := range list {
		if s.errs[i] = s.one(now, i, list[i]); s.errs[i] != nil {
			s.refused = append(s.refused, i)
		}
	}
	for _, x := range s.desks {
		if x.desk != nil {
			g.carry(x.desk, then(s, x))
		}
	}
	return s
}

// committed answers what waited at a desk.
func (s *settling) committed(x *settled, err error) {
	for _, i := range x.waiting {
		if err != nil {
			s.errs[i] = err
		}
	}
}

// settling is one call's work, by the cursor that leases belong to.
type settling struct {
	g       *queueGroup
	p       *Partition
	desks   map[uint32]*settled
	errs    []error
	refused []int // of errs: not for want of a commit
}

type settled struct {
	desk    *desk
	err     error
	waiting []int // answered when committed
	done    committing
}

func (s *settling) one(now int64, i int, x queue.Settlement) error {
	if x.Lease.Partition != s.p.id.Partition {
		return fmt.Errorf("%w: it is of partition %d, this is %d", queue.ErrLeaseUnknown, x.Lease.Partition, s.p.id.Partition)
	}
	d := s.desks[x.Lease.Cursor]
	if d == nil {
		d = &settled{}
		d.desk, d.err = s.g.cursorDesk(s.p, x.Lease)
		s.desks[x.Lease.Cursor] = d
	}
	if d.err != nil {
		return d.err
	}
	commit, err := d.desk.Settle(now, x)
	if commit {
		d.waiting = append(d.waiting, i)
	}
	return err
}

// cursorDesk finds the desk of the cursor that a lease bears. One that bears none is
// the node's own word about a message of the group, which nobody need hold; clients
// cannot say that.
func (g *queueGroup) cursorDesk(p *Partition, l queue.Lease) (*desk, error) {
	if l.Cursor == queue.CursorOf(g.id, "") || l.Cursor == 0 && l.Nonce == 0 {
		return g.desk(p, "")
	}
	for k := range g.desks {
		if k.partition == p.id.Partition && queue.CursorOf(g.id, k.member) == l.Cursor {
			return g.desk(p, k.member)
		}
	}
	p.machine.mu.Lock()
	members := p.machine.queues.Members(g.id)
	p.machine.mu.Unlock()
	for name := range members {
		if queue.CursorOf(g.id, name) == l.Cursor {
			return g.desk(p, name)
		}
	}
	if err := p.serving(-1); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: it is of another group, or of a member that is not there any more", queue.ErrLeaseUnknown)
}
