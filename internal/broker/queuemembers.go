package broker

import (
	"fmt"

	"github.com/tube-mq/tube/internal/queue"
)

// open begins a broadcast member's cursor in a partition; its receivers are woken
// when that is committed. The caller holds mu.
func (g *queueGroup) open(p *Partition, member string) error {
	if len(member) > queue.MaxMemberBytes {
		return fmt.Errorf("member id of %d bytes, at most %d are allowed", len(member), queue.MaxMemberBytes)
	}
	p.machine.mu.Lock()
	begun, full := p.machine.queues.Has(g.id, ""), p.machine.queues.Full()
	p.machine.mu.Unlock()
	if !begun {
		return nil // the group itself has not begun; reconcile is at it
	}
	if full {
		return fmt.Errorf("%w: partition %s has %d", queue.ErrTooManyMembers, p.id, queue.MaxCursors)
	}
	key := deskKey{p.id.Partition, member}
	if g.opening[key] {
		return nil
	}
	g.opening[key] = true
	g.seenMember(p, member, g.spec.Settings.StartAtMillis, func() { delete(g.opening, key) })
	return nil
}

// seenMember begins a member's cursor, or says that it lives.
func (g *queueGroup) seenMember(p *Partition, member string, startAtMillis int64, then func()) {
	g.q.goes(func() {
		op := queue.Op{Kind: queue.OpOpen, Group: g.id, Member: member, Offset: p.queue.startAt(startAtMillis)}
		p.queue.submit(errand{ops: []queue.Op{op}, then: func(error) {
			g.post(func() {
				then()
				g.wakeAll()
			})
		}})
	})
}

// seen has the State know now and then that a broadcast member lives.
func (g *queueGroup) seen(d *desk, nowMillis int64) {
	if d.key.member == "" || nowMillis-d.seenMillis <= g.spec.Settings.IdleMember.Milliseconds()/4 {
		return
	}
	d.seenMillis = nowMillis
	g.seenMember(d.p, d.key.member, queue.StartAtEnd, func() {})
}

// expireMembers drops the cursors of broadcast members that were not seen for too
// long, in the partitions that are led here.
func (q *queues) expireMembers() {
	now := q.nowMillis()
	for _, t := range q.all() {
		for _, g := range t.list() {
			g.mu.Lock()
			idle, broadcast := g.spec.Settings.IdleMember.Milliseconds(), g.spec.Settings.Broadcast
			g.mu.Unlock()
			if !broadcast || idle <= 0 {
				continue
			}
			for _, p := range t.here() {
				g.expireIn(p, now-idle)
			}
		}
	}
}

func (g *queueGroup) expireIn(p *Partition, before int64) {
	if p.serving(-1) != nil {
		return
	}
	p.machine.mu.Lock()
	members := p.machine.queues.Members(g.id)
	p.machine.mu.Unlock()
	var ops []queue.Op
	for name, seen := range members {
		if seen < before {
			ops = append(ops, queue.Op{Kind: queue.OpDrop, Group: g.id, Member: name})
		}
	}
	if len(ops) > 0 {
		p.logger.Info("broadcast members were not seen for too long: their cursors are dropped", "group", uint64(g.id), "members", len(ops))
		p.queue.submit(errand{ops: ops, then: func(error) {
			g.post(func() {
				for _, op := range ops {
					if d := g.desks[deskKey{p.id.Partition, op.Member}]; d != nil && d.p == p {
						g.dropDesk(d)
					}
				}
			})
		}})
	}
}
