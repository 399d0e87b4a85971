package broker

import (
	"context"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// riskSteps are the percentages of a topic's retention at which it is looked whether
// a group is that far behind. What is below the first is no risk.
var riskSteps = []int64{50, 60, 70, 80, 90, 95, 100}

// risk looks how near the groups' messages are to being taken by retention, keeps that
// for who asks, and tells it before anything goes.
func (l *queueLog) risk(ctx context.Context, now time.Time, limits retentionLimits, end record.Offset) {
	risks := l.risks(now, limits, end)
	l.atRisk.Store(&risks)
	tell := l.p.broker.cfg.Queues.Retention
	if tell == nil {
		return
	}
	for _, r := range risks {
		if ctx.Err() != nil {
			return
		}
		tell(ctx, r)
	}
}

// risks are the groups that are behind by the first of riskSteps or more, by id.
func (l *queueLog) risks(now time.Time, limits retentionLimits, end record.Offset) []QueueRisk {
	t := l.topic.Load()
	if t == nil || l.floorOfAll() >= end {
		return nil
	}
	by := map[queue.GroupID]*QueueRisk{}
	spec := t.told()
	for _, percent := range riskSteps {
		start := limits.start(now, percent)
		l.p.machine.mu.Lock()
		lost := l.p.machine.queues.WouldLose(start)
		l.p.machine.mu.Unlock()
		if len(lost) == 0 {
			break // nor at a larger share: less would go
		}
		for _, x := range lost {
			r := by[x.Group]
			if r == nil {
				r = &QueueRisk{Topic: spec.Name, Partition: l.p.id, Group: x.Group}
				by[x.Group] = r
			}
			r.UsedPercent = int(percent)
			if percent == 100 {
				r.Goes += x.Count
			}
		}
	}
	var out []QueueRisk
	for _, g := range spec.Groups { // one that was deleted loses nothing
		if r := by[g.ID]; r != nil {
			r.Name = g.Name
			out = append(out, *r)
		}
	}
	slices.SortFunc(out, func(a, b QueueRisk) int { return int(int64(a.Group) - int64(b.Group)) })
	return out
}

// floorOfAll is below which all groups are done with everything.
func (l *queueLog) floorOfAll() record.Offset {
	l.p.machine.mu.Lock()
	defer l.p.machine.mu.Unlock()
	return l.p.machine.queues.MinFloor()
}

// QueueRisks are the groups whose messages are near to being taken by retention here,
// as of the last look at it; none if the partition is not led here.
func (p *Partition) QueueRisks() []QueueRisk {
	list := p.queue.atRisk.Load()
	if list == nil || !p.group.Status().Leading {
		return nil
	}
	return *list
}

// QueueRisks are those of all partitions that are led here.
func (b *Broker) QueueRisks() []QueueRisk {
	var out []QueueRisk
	for _, p := range b.all() {
		out = append(out, p.QueueRisks()...)
	}
	return out
}
