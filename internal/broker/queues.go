package broker

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// queues has the queue groups of all topics with partitions on this node. Locks are
// taken in this order: queueGroup.mu, queueLog.mu, machine.mu; queues.mu and the
// waiters' are held for nothing else.
type queues struct {
	b     *Broker
	hooks QueueHooks
	cache *batchCache
	ctx   context.Context // of what runs in the background
	end   context.CancelFunc
	done  sync.WaitGroup

	clockMu sync.Mutex
	clock   queue.Clock

	// intents are those that were not carried out at the last look; the intents loop's.
	intents map[record.TopicPartition]map[string]bool

	mu     sync.Mutex
	topics map[record.TopicID]*queueTopic
	// todo is what a passive broker has been left to do by its queues; see RunQueues.
	todo []func()
}

// queueTopic is a topic's groups and its partitions here.
type queueTopic struct {
	id record.TopicID

	// waiting are the groups that somebody waits for messages of, with how many do:
	// those that an append wakes. receivers are all of them.
	waitMu    sync.Mutex
	waiting   map[*queueGroup]int
	receivers atomic.Int32

	mu         sync.Mutex
	spec       QueueTopic // of the metadata
	known      bool       // spec was told
	groups     map[queue.GroupID]*queueGroup
	inOrder    []*queueGroup // the same, ascending by id; made anew when it changes
	partitions []*Partition  // ascending
}

func newQueues(b *Broker) *queues {
	q := &queues{b: b, hooks: b.cfg.Queues, cache: newBatchCache(queueCacheBytes), topics: map[record.TopicID]*queueTopic{}}
	q.ctx, q.end = context.WithCancel(context.Background())
	q.nowMillis()
	return q
}

// stop ends what runs in the background; who waits for messages is answered.
func (q *queues) stop() {
	q.end()
	for _, t := range q.all() {
		for _, g := range t.list() {
			g.close()
		}
		for _, p := range t.here() {
			p.queue.stop()
		}
	}
	q.done.Wait()
}

// nowMillis is the queue clock.
func (q *queues) nowMillis() int64 {
	q.clockMu.Lock()
	defer q.clockMu.Unlock()
	return q.clock.Now(q.b.clock().UnixMilli(), q.b.running())
}

// atLeast moves the queue clock up to what the log has told others.
func (q *queues) atLeast(millis int64) {
	q.clockMu.Lock()
	defer q.clockMu.Unlock()
	q.clock.AtLeast(millis, q.b.clock().UnixMilli(), q.b.running())
}

// goes runs f in the background, unless the broker is stopping.
func (q *queues) goes(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.ctx.Err() != nil:
	case q.b.cfg.Passive:
		q.todo = append(q.todo, f)
	default:
		q.done.Go(f)
	}
}

// spawn runs f in a goroutine that nobody waits for; of a passive broker, when its
// owner says so.
func (q *queues) spawn(f func()) {
	if !q.b.cfg.Passive {
		go f()
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.todo = append(q.todo, f)
}

func (q *queues) topic(id record.TopicID) *queueTopic {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.topics[id]
	if t == nil {
		t = &queueTopic{id: id, groups: map[queue.GroupID]*queueGroup{}, waiting: map[*queueGroup]int{}}
		q.topics[id] = t
	}
	return t
}

// group finds a group of a topic that is known here.
func (q *queues) group(topic record.TopicID, id queue.GroupID) *queueGroup {
	q.mu.Lock()
	t := q.topics[topic]
	q.mu.Unlock()
	if t == nil {
		return nil
	}
	return t.group(id)
}

func (q *queues) all() []*queueTopic {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := make([]*queueTopic, 0, len(q.topics))
	for _, t := range q.topics {
		out = append(out, t)
	}
	return out
}

// hosted takes a new partition in.
func (q *queues) hosted(p *Partition) {
	t := q.topic(p.id.Topic)
	t.mu.Lock()
	t.partitions = append(slices.Clone(t.partitions), p)
	slices.SortFunc(t.partitions, func(a, b *Partition) int { return int(a.id.Partition - b.id.Partition) })
	t.mu.Unlock()
	p.queue.topic.Store(t)
	p.queue.led()
}

// unhosted forgets a partition.
func (q *queues) unhosted(p *Partition) {
	t := q.topic(p.id.Topic)
	t.mu.Lock()
	t.partitions = slices.DeleteFunc(slices.Clone(t.partitions), func(x *Partition) bool { return x == p })
	empty := len(t.partitions) == 0
	t.mu.Unlock()
	p.queue.stop()
	p.queue.led()
	q.cache.forget(p)
	if empty {
		q.mu.Lock()
		if q.topics[p.id.Topic] == t {
			delete(q.topics, p.id.Topic)
		}
		q.mu.Unlock()
		for _, g := range t.list() {
			g.close()
		}
	}
}

// waits counts who waits for messages of a group.
func (t *queueTopic) waits(g *queueGroup, n int) {
	t.receivers.Add(int32(n))
	t.waitMu.Lock()
	defer t.waitMu.Unlock()
	if t.waiting[g] += n; t.waiting[g] == 0 {
		delete(t.waiting, g)
	}
}

// wakeAll has all receivers of all groups look.
func (t *queueTopic) wakeAll() {
	t.waitMu.Lock()
	defer t.waitMu.Unlock()
	for g := range t.waiting {
		g.wakeAll()
	}
}

// wake tells of something new: a receiver of each group that has any.
func (t *queueTopic) wake() {
	if t.receivers.Load() == 0 {
		return
	}
	t.waitMu.Lock()
	defer t.waitMu.Unlock()
	for g := range t.waiting {
		g.wake()
	}
}

// list is the groups, ascending by id; it is not to be changed.
func (t *queueTopic) list() []*queueGroup {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inOrder
}

func (t *queueTopic) here() []*Partition {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.partitions
}

func (t *queueTopic) group(id queue.GroupID) *queueGroup {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.groups[id]
}

// SetQueueGroups tells which queue groups a topic has. Call it whenever that changes
// in the metadata, and once its partitions are hosted. Groups are begun and dropped
// in each partition by its leader, in the partition's own log.
func (b *Broker) SetQueueGroups(spec QueueTopic) {
	t := b.queues.topic(spec.ID)
	t.mu.Lock()
	t.spec, t.known = spec, true
	listed := make(map[queue.GroupID]bool, len(spec.Groups))
	var changed []*queueGroup
	for i := range spec.Groups {
		s := &spec.Groups[i]
		listed[s.ID] = true
		switch old := t.groups[s.ID]; {
		case old == nil:
			t.groups[s.ID] = newQueueGroup(b.queues, t, *s)
		case old.told.Name != s.Name || !reflect.DeepEqual(old.told.Settings, s.Settings): // the filter is among them, as text
			old.told = *s
			changed = append(changed, old)
		}
	}
	var gone []*queueGroup
	for id, g := range t.groups {
		if !listed[id] {
			gone = append(gone, g)
			delete(t.groups, id)
		}
	}
	t.inOrder = slices.SortedFunc(maps.Values(t.groups), func(a, b *queueGroup) int { return cmp.Compare(a.id, b.id) })
	partitions := t.partitions
	t.mu.Unlock()
	for _, g := range gone {
		g.close()
	}
	for _, g := range changed {
		g.configure()
	}
	for _, p := range partitions {
		p.queue.begin()
	}
}

// groupOf finds a group of the partition's topic.
func (p *Partition) groupOf(id queue.GroupID) (*queueGroup, error) {
	if t := p.queue.topic.Load(); t != nil {
		if g := t.group(id); g != nil {
			return g, nil
		}
	}
	return nil, queue.ErrUnknownGroup
}

// QueueSessionGone tells that a consumer's session has ended: the leases it holds
// here are asked about or given up.
func (b *Broker) QueueSessionGone(session string) {
	for _, t := range b.queues.all() {
		for _, g := range t.list() {
			g.sessionGone(session)
		}
	}
}
