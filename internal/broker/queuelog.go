package broker

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// queueLog is a partition's way to commit what its queues decide: what comes while
// an entry is under way goes together into the next. It begins and drops groups, and
// fires what was sent with a delay.
type queueLog struct {
	p     *Partition
	topic atomic.Pointer[queueTopic]

	mu       sync.Mutex
	pending  []errand
	underWay bool
	timer    Timer // for what is due next
	timerAt  int64
	ticking  bool
	stopped  bool

	// cached are the partition's batches in the cache, by offset, whose lock guards them.
	cached []*cachedBatch

	// atRisk is what retention is near to taking, as of the last look; see risk.
	atRisk atomic.Pointer[[]QueueRisk]

	reconciling atomic.Int32 // 1: going on, 2: to be done once more
	deaths      deathRow
}

// errand is a few ops that are committed together.
type errand struct {
	ops []queue.Op
	// then is called once they are committed or not: from a goroutine of the group, if
	// there is one, after its desk has heard of it.
	desk *desk
	then func(error)
}

// maxQueueEntry is how many offsets one entry names, at most, but for a single errand.
const maxQueueEntry = 20_000

func newQueueLog(p *Partition) *queueLog { return &queueLog{p: p} }

func (l *queueLog) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	if l.timer != nil {
		l.timer.Stop()
	}
}

// submit has ops committed.
func (l *queueLog) submit(e errand) {
	l.mu.Lock()
	l.pending = append(l.pending, e)
	l.mu.Unlock()
	l.propose()
}

// propose makes an entry of what is pending, unless one is under way.
func (l *queueLog) propose() {
	l.mu.Lock()
	if l.underWay || len(l.pending) == 0 {
		l.mu.Unlock()
		return
	}
	l.underWay = true
	n, offsets := 0, 0
	for n < len(l.pending) && offsets < maxQueueEntry {
		for i := range l.pending[n].ops {
			offsets += 1 + len(l.pending[n].ops[i].Offsets)
		}
		n++
	}
	batch := l.pending[:n:n]
	l.pending = l.pending[n:]
	l.mu.Unlock()
	l.commit(batch)
}

func (l *queueLog) commit(batch []errand) {
	var ops []queue.Op
	for _, e := range batch {
		ops = append(ops, e.ops...)
	}
	q := l.p.broker.queues
	data := queueCommand(l.p.broker.clock().UnixMilli(), q.nowMillis(), ops)
	l.p.group.Propose(replica.Proposal{Data: data, Done: func(_ any, err error) {
		if errors.Is(err, replica.ErrBusy) {
			// Nothing was proposed; other work of the partition goes first.
			l.p.broker.cfg.AfterFunc(10*time.Millisecond, func() { l.commit(batch) })
			return
		}
		l.settled(batch, err)
	}})
}

// settled is called from the group's loop: an entry is committed, or will not be, or
// nobody knows.
func (l *queueLog) settled(batch []errand, err error) {
	l.mu.Lock()
	l.underWay = false
	if err != nil {
		// What waits behind would fare no better.
		batch = append(batch, l.pending...)
		l.pending = nil
	}
	l.mu.Unlock()
	if err != nil {
		err = proposalError(err)
	}
	for i := 0; i < len(batch); {
		k := i + 1
		for k < len(batch) && groupOfDesk(batch[k].desk) == groupOfDesk(batch[i].desk) {
			k++
		}
		tell(batch[i:k:k], err)
		i = k
	}
	l.propose()
}

func groupOfDesk(d *desk) *queueGroup {
	if d == nil {
		return nil
	}
	return d.g
}

// tell passes the outcome on to errands of one group.
func tell(list []errand, err error) {
	answer := func() {
		for _, e := range list {
			if e.then != nil {
				e.then(err)
			}
		}
	}
	g := groupOfDesk(list[0].desk)
	if g == nil {
		answer()
		return
	}
	g.post(func() {
		now := g.q.nowMillis()
		for _, e := range list {
			if err == nil {
				for i := range e.ops {
					e.desk.Committed(now, &e.ops[i])
				}
				g.carry(e.desk, nil)
			} else {
				g.dropDesk(e.desk)
			}
		}
		answer()
	})
}

// wait has ops committed and waits for it.
func (l *queueLog) wait(done <-chan struct{}, ops ...queue.Op) error {
	answer := make(chan error, 1)
	l.submit(errand{ops: ops, then: func(err error) { answer <- err }})
	select {
	case err := <-answer:
		return err
	case <-done:
		return ErrUnknownOutcome
	}
}

// applied is called from the group's loop after a run of entries.
func (l *queueLog) applied(fired []record.Offset, lost []queue.Lost) {
	t := l.topic.Load()
	if t == nil || !l.p.group.Status().Leading {
		return
	}
	if len(lost) > 0 {
		l.tellLost(t, lost)
	}
	if len(fired) > 0 {
		for _, g := range t.list() {
			g.fired(l.p, fired)
		}
	}
	t.wake()
	l.schedule()
}

func (l *queueLog) tellLost(t *queueTopic, lost []queue.Lost) {
	t.mu.Lock()
	name := t.spec.Name
	t.mu.Unlock()
	for _, x := range lost {
		l.p.logger.Warn("messages that a queue group was not done with went with the log's start",
			"group", uint64(x.Group), "member", x.Member, "messages", x.Count, "log start", int64(x.Before))
		if f := l.p.broker.cfg.Queues.Lost; f != nil {
			f(QueueLost{name, l.p.id, x})
		}
		if g := t.group(x.Group); g != nil {
			g.trimmed(l.p, x)
		}
	}
}

// schedule sets the timer for what is due next.
func (l *queueLog) schedule() {
	at := l.p.machine.nextDue.Load()
	if at == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped || l.ticking || l.timerAt != 0 && l.timerAt <= at {
		return
	}
	l.timerAt = at
	wait := time.Duration(min(max(0, at-l.p.broker.queues.nowMillis()), maxTimerMillis)) * time.Millisecond
	if l.timer == nil {
		l.timer = l.p.broker.cfg.AfterFunc(wait, l.due)
	} else {
		l.timer.Reset(wait)
	}
}

// maxTimerMillis is how long a timer is set for at most: the clock may have been
// corrected meanwhile.
const maxTimerMillis = 3_600_000

// due is called by the timer.
func (l *queueLog) due() {
	l.mu.Lock()
	l.timerAt = 0
	at := l.p.machine.nextDue.Load()
	fire := at != 0 && at <= l.p.broker.queues.nowMillis() && !l.stopped && !l.ticking && l.p.group.Status().Leading
	l.ticking = l.ticking || fire
	l.mu.Unlock()
	if !fire {
		if l.p.group.Status().Leading {
			l.schedule()
		}
		return
	}
	l.submit(errand{ops: []queue.Op{{Kind: queue.OpTick}}, then: func(error) {
		l.mu.Lock()
		l.ticking = false
		l.mu.Unlock()
		if l.p.group.Status().Leading {
			l.schedule()
		}
	}})
}

// led is called when the leadership or what is hosted changed; it does not block.
func (l *queueLog) led() {
	t := l.topic.Load()
	if t == nil {
		return
	}
	for _, g := range t.list() {
		g.ledChanged(l.p)
	}
	l.begin()
}

// begin has groups begun and dropped as the metadata says, if this replica leads; it
// does not block.
func (l *queueLog) begin() {
	if l.topic.Load() == nil || !l.p.group.Status().Leading {
		return
	}
	if l.reconciling.Add(1) == 1 {
		l.p.broker.queues.goes(l.reconcile)
	}
}

// reconcile begins and drops groups as the metadata says, if this replica leads.
func (l *queueLog) reconcile() {
	seen := l.reconciling.Load()
	l.reconcileOnce(func() {
		if !l.reconciling.CompareAndSwap(seen, 0) {
			l.p.broker.queues.goes(l.reconcile)
		}
	})
}

// reconcileOnce calls done once what it has changed is committed, or not.
func (l *queueLog) reconcileOnce(done func()) {
	t := l.topic.Load()
	q := l.p.broker.queues
	if t == nil || l.p.serving(-1) != nil {
		done()
		return
	}
	t.mu.Lock()
	spec, known := t.spec, t.known
	t.mu.Unlock()
	m := l.p.machine
	m.mu.Lock()
	clock, start := m.queues.ClockMillis(), m.queues.Start()
	var missing []QueueGroup
	var gone []queue.GroupID
	if known {
		missing, gone = differ(spec, m.queues)
	}
	m.mu.Unlock()
	q.atLeast(clock)
	l.schedule()
	var ops []queue.Op
	if b, err := l.p.Bounds(); err == nil && b.LogStart > start {
		ops = append(ops, queue.Op{Kind: queue.OpTrim, Offset: b.LogStart})
	}
	for _, g := range missing {
		ops = append(ops, l.opening(g))
	}
	for _, id := range gone {
		ops = append(ops, queue.Op{Kind: queue.OpDrop, Group: id})
	}
	if len(ops) == 0 {
		l.opened(t)
		done()
		return
	}
	l.submit(errand{ops: ops, then: func(err error) {
		if err == nil {
			l.opened(t)
		}
		done()
	}})
}

// differ says which groups have not begun in a partition, and which have that were
// deleted. It is asked in each partition whenever one of many groups is made.
func differ(spec QueueTopic, s *queue.State) (missing []QueueGroup, gone []queue.GroupID) {
	for _, g := range spec.Groups {
		if !s.Has(g.ID, "") {
			missing = append(missing, g)
		}
	}
	if s.GroupCount() == len(spec.Groups)-len(missing) {
		return missing, nil
	}
	listed := make(map[queue.GroupID]bool, len(spec.Groups))
	for _, g := range spec.Groups {
		listed[g.ID] = true
	}
	for _, id := range s.Groups() {
		if !listed[id] && id <= spec.LastID {
			gone = append(gone, id)
		}
	}
	return missing, gone
}

// opened tells who waits for a group to begin.
func (l *queueLog) opened(t *queueTopic) {
	t.wakeAll()
	l.p.wake()
}

// opening is the op that begins a group here.
func (l *queueLog) opening(g QueueGroup) queue.Op {
	op := queue.Op{Kind: queue.OpOpen, Group: g.ID, Offset: -1}
	if !g.Settings.Broadcast {
		op.Offset = l.startAt(g.Settings.StartAtMillis)
	}
	return op
}

// startAt turns a position into an offset; the State puts it between the log's
// start and its end as they are then.
func (l *queueLog) startAt(millis int64) record.Offset {
	switch millis {
	case queue.StartAtStart:
		return 0
	case queue.StartAtEnd:
		return math.MaxInt64
	}
	at, err := l.p.OffsetForTime(millis)
	if err != nil || at.Offset < 0 {
		return math.MaxInt64
	}
	return at.Offset
}
