package broker

import (
	"fmt"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// QueueUndone lists messages that a group is not done with, whoever has them in hand,
// by offset from one on, at most most and 10,000: go on behind the last. Not for
// broadcast groups. Errors: ErrNotLeader, queue.ErrUnknownGroup.
func (p *Partition) QueueUndone(id queue.GroupID, from record.Offset, most int) ([]record.Offset, error) {
	if err := p.serving(-1); err != nil {
		return nil, err
	}
	m := p.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.queues.Has(id, "") {
		return nil, fmt.Errorf("%w: %d has not begun in partition %d", queue.ErrUnknownGroup, id, p.id.Partition)
	}
	most = min(most, maxListed)
	var out []record.Offset
	for len(out) < most && from < m.end {
		var list []queue.Candidate
		list, from = m.queues.Fresh(nil, id, "", from, m.end, most-len(out))
		for _, c := range list {
			out = append(out, c.Offset)
		}
	}
	return out, nil
}

// oldestLooks is how many messages QueueOldest looks at, of which many may be delayed.
const oldestLooks = 4096

// QueueOldest is the first message that a group is not done with and that does not wait
// for its time; false: there is none among the first of them, or the group is a broadcast group.
func (p *Partition) QueueOldest(id queue.GroupID) (record.Offset, bool) {
	m := p.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	list, _ := m.queues.Fresh(nil, id, "", 0, m.end, oldestLooks/16)
	if len(list) == 0 {
		return 0, false
	}
	return list[0].Offset, true
}

// QueueDelayedCount is how many messages wait for their time.
func (p *Partition) QueueDelayedCount() int {
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	return p.machine.queues.DelayedCount()
}

// QueueCounts says how far a group is here; of broadcast groups nothing.
func (p *Partition) QueueCounts(id queue.GroupID) queue.Counts { return p.QueueCountsOf(id, "") }

// QueueCountsOf says how far a cursor is here, of a broadcast group a member's.
func (p *Partition) QueueCountsOf(id queue.GroupID, member string) queue.Counts {
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	c, _ := p.machine.queues.Counts(id, member, p.machine.end)
	return c
}

// retainFloor is the first message that a group which the log is kept for is not done
// with; −1: there is no such group.
func (l *queueLog) retainFloor() record.Offset {
	t := l.topic.Load()
	if t == nil {
		return -1
	}
	least := record.Offset(-1)
	for _, g := range t.told().Groups {
		if !g.Settings.Retain {
			continue
		}
		l.p.machine.mu.Lock()
		floor := l.p.machine.queues.Floor(g.ID)
		l.p.machine.mu.Unlock()
		if floor >= 0 && (least < 0 || floor < least) {
			least = floor
		}
	}
	return least
}

func (t *queueTopic) told() QueueTopic {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.spec
}
