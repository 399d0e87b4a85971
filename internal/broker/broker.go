package broker

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tube-mq/tube/internal/commitlog"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
	"github.com/tube-mq/tube/internal/vfs"
)

// Config of a broker. Zero values are replaced by the defaults named here.
type Config struct {
	Node   record.NodeID
	FS     vfs.FS
	Dir    string // holds one folder per partition, named by ids
	Host   *replica.Host
	Copier Copier // nil: replicas here cannot be brought up to date by a copy
	Asker  Asker  // nil: replicas here serve only while they lead
	Limits record.Limits
	Logger *slog.Logger
	Clock  func() time.Time // time.Now

	FlushBytes        int64         // of one partition in memory before it is written to its segment: 4 MiB
	TailBudgetBytes   int64         // of all partitions in memory: 128 MiB
	ReserveBytes      int64         // free disk below which produce is refused: 512 MiB
	DelayedBytes      int64         // of the index of delayed messages in memory, all partitions; beyond it goes to disk: 256 MiB
	RetentionInterval time.Duration // between looks at retention: 30 s
	SweepInterval     time.Duration // between removals of dropped segments: 5 s
	ProducerExpiry    time.Duration // after which a quiet producer is forgotten: 24 h
	MaxProducers      int           // remembered per partition: 50,000

	Queues QueueHooks

	// Level is the cluster's: what may be written. nil: what every program knows.
	Level func() meta.Level

	// Elapsed is how long the process has been running, by a clock that nobody sets:
	// measured from New.
	Elapsed func() time.Duration

	// AfterFunc calls f once d has passed, from any goroutine: time.AfterFunc.
	AfterFunc func(d time.Duration, f func()) Timer

	// Passive: nothing is done in the background, for simulation; see passive.go.
	Passive bool
	// OnFail is told once when a write or fsync failed: the node must stop.
	OnFail func(error)
	// OnLead is told when leadership of a partition changed as seen here. It must
	// not block.
	OnLead func(Led)
}

func (c *Config) setDefaults() {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	set(&c.FlushBytes, 4<<20)
	set(&c.TailBudgetBytes, 128<<20)
	set(&c.ReserveBytes, 512<<20)
	set(&c.DelayedBytes, 256<<20)
	set((*int64)(&c.RetentionInterval), int64(30*time.Second))
	set((*int64)(&c.SweepInterval), int64(5*time.Second))
	set((*int64)(&c.ProducerExpiry), int64(24*time.Hour))
	if c.MaxProducers == 0 {
		c.MaxProducers = 50000
	}
	if c.Level == nil {
		c.Level = func() meta.Level { return 0 }
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Elapsed == nil {
		started := time.Now()
		c.Elapsed = func() time.Duration { return time.Since(started) }
	}
	if c.AfterFunc == nil {
		c.AfterFunc = func(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }
	}
	if c.OnFail == nil {
		c.OnFail = func(err error) { panic(err) }
	}
}

// Timer is what Config.AfterFunc returns, with the methods of time.Timer.
type Timer interface {
	Stop() bool
	Reset(d time.Duration) bool
}

const (
	// maxOpenFiles of segments that readers keep open, over all partitions.
	maxOpenFiles = 2000
	// maxIndexBytes of segment indexes that readers keep in memory.
	maxIndexBytes = 64 << 20
)

// Broker hosts partitions. Safe for use by many goroutines.
type Broker struct {
	cfg       Config
	clock     func() time.Time
	limits    record.Limits
	flusher   *flusher
	files     *commitlog.OpenFiles // of all logs, for readers
	full      atomic.Pointer[diskState]
	room      atomic.Int64 // bytes that may be admitted before the disk must be looked at
	queues    *queues
	delays    *delayPool
	damaged   atomic.Bool    // some partition was taken out of service since the start
	retention retentionClock // the clock that retention goes by

	mu         sync.RWMutex
	partitions map[record.TopicPartition]*Partition
	groups     map[record.Group]*Partition // the same, by their groups

	stop func()
	done sync.WaitGroup
}

// TailBytes is how much of all partitions is in memory, not in segments yet.
func (b *Broker) TailBytes() int64 { return b.flusher.tailBytes.Load() }

// New starts a broker that hosts nothing yet.
func New(cfg Config) (*Broker, error) {
	cfg.setDefaults()
	if err := cfg.FS.MkdirAll(cfg.Dir); err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	if err := cfg.FS.SyncDir(path.Dir(cfg.Dir)); err != nil {
		return nil, fmt.Errorf("broker: sync %s: %w", path.Dir(cfg.Dir), err)
	}
	delays, err := newDelayPool(&cfg)
	if err != nil {
		return nil, err
	}
	b := &Broker{
		cfg: cfg, delays: delays, clock: cfg.Clock, limits: cfg.Limits,
		flusher:    newFlusher(cfg.FlushBytes, cfg.TailBudgetBytes),
		files:      commitlog.NewOpenFiles(maxOpenFiles, maxIndexBytes),
		partitions: map[record.TopicPartition]*Partition{}, groups: map[record.Group]*Partition{},
	}
	b.queues = newQueues(b)
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	if cfg.Passive {
		return b, nil
	}
	b.flusher.start(flushers)
	b.done.Go(func() { b.retentionLoop(ctx) })
	b.done.Go(func() { b.sweepLoop(ctx) })
	b.done.Go(func() { b.watchDisk(ctx) })
	b.done.Go(func() { b.intentsLoop(ctx) })
	b.done.Go(func() { b.watchDelays(ctx) })
	return b, nil
}

// Stop ends the background work. The replica host is closed by its owner.
func (b *Broker) Stop() {
	b.stop()
	b.flusher.stop()
	b.queues.stop()
	b.done.Wait()
	b.delays.end()
}

// Partition finds a hosted partition.
func (b *Broker) Partition(id record.TopicPartition) (*Partition, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	p, ok := b.partitions[id]
	return p, ok
}

// running is how long the broker has been up, by the monotonic clock.
func (b *Broker) running() time.Duration { return b.cfg.Elapsed() }

// Waiting returns nil if every hosted partition is led by somebody or out of
// service. Else w is woken when one of those that are not changes; stop ends that.
func (b *Broker) Waiting(w Watcher) (stop func()) {
	for _, p := range b.all() {
		stop := p.Watch(w)
		if _, lapsed := p.group.Lapsed(); lapsed { // it may wait for other nodes for as long as they are away
			stop()
			continue
		}
		if p.damage.Load() == nil && p.group.Err() == nil && p.group.Status().Leader == 0 {
			return stop
		}
		if s := p.group.Status(); p.damage.Load() == nil && p.group.Err() == nil && !s.Leading && s.Leader == p.replica {
			return stop
		}
		stop()
	}
	return nil
}

// DiskFull is why produce is refused; nil while it is not.
func (b *Broker) DiskFull() error { return b.refusal() }

func (b *Broker) all() []*Partition {
	b.mu.RLock()
	defer b.mu.RUnlock()
	out := make([]*Partition, 0, len(b.partitions))
	for _, p := range b.partitions {
		out = append(out, p)
	}
	return out
}

// Host makes the broker run a replica of a partition, or takes over changed
// settings of one that it runs already.
func (b *Broker) Host(t *meta.Topic, n record.Partition) error {
	id := record.TopicPartition{Topic: t.ID, Partition: n}
	if p, ok := b.Partition(id); ok {
		p.setPeers(&t.Partitions[n])
		return p.reconfigure(&t.Config)
	}
	p, err := b.open(t, id)
	if err != nil {
		return fmt.Errorf("partition %s of topic %s: %w", id, t.Name, err)
	}
	b.mu.Lock()
	b.partitions[id], b.groups[p.groupID] = p, p
	b.mu.Unlock()
	b.queues.hosted(p)
	return nil
}

func (b *Broker) open(t *meta.Topic, id record.TopicPartition) (*Partition, error) {
	place := t.Partitions[id.Partition]
	spec := replica.Spec{
		Group: place.Group, Relaxed: relaxed(&t.Config),
		Logger: b.cfg.Logger.With("topic", t.Name, "partition", int(id.Partition)),
	}
	own, ok := place.Hosted(b.cfg.Node)
	if !ok {
		return nil, fmt.Errorf("metadata has no replica of it on node %d", b.cfg.Node)
	}
	spec.Replica = own.ID
	switch {
	case slices.Contains(place.Founders, own.ID):
		spec.Voters = place.Founders
	case len(place.Founders) == 0: // made by an early version
		for _, r := range place.Replicas {
			spec.Voters = append(spec.Voters, r.ID)
		}
	}
	p := &Partition{id: id, broker: b, logger: spec.Logger, replica: spec.Replica, groupID: place.Group}
	p.setPeers(&place)
	spec.Peers = *p.peers.Load()
	p.config.Store(&t.Config)
	p.queue = newQueueLog(p)
	m := &machine{p: p, producers: newProducers(b.cfg.MaxProducers, b.cfg.ProducerExpiry.Milliseconds()), queues: queue.NewState(), swap: delaySwap{b.delays, p}}
	m.queues.SwapTo(m.swap)
	p.machine, spec.Machine = m, m
	if b.cfg.Copier != nil {
		spec.Fetch = p.fetch
	}
	if t.Config.MemoryOnly {
		spec.Volatile = headerOnly
	}
	if err := b.cfg.Host.Claim(place.Group, spec.Replica); err != nil {
		return nil, err
	}
	saved, err := b.cfg.Host.Saved(place.Group)
	if err == nil && saved != nil {
		err = m.restore(saved)
	}
	if err == nil {
		b.retention.atLeast(time.UnixMilli(m.nowMillis))
		err = p.openLog(t)
	}
	if err != nil {
		// This partition answers an error; the others work.
		p.log = commitlog.NewMemory(commitlog.MemoryConfig{})
		m.log = p.log
		p.fail(err)
		spec.Damaged = err
	}
	m.publish()
	p.group, err = b.cfg.Host.Add(spec)
	return p, err
}

// relaxed reports whether a topic's batches are acknowledged before they are synced.
func relaxed(cfg *meta.TopicConfig) bool { return cfg.Durability != meta.QuorumFsync }

// setPeers says on which nodes the partition's other replicas are.
func (p *Partition) setPeers(place *meta.Placement) {
	peers := map[record.ReplicaID]record.NodeID{}
	for _, list := range [][]meta.Replica{place.Replicas, place.Target, place.Leaving} {
		for _, r := range list {
			if !r.Lost {
				peers[r.ID] = r.Node
			}
		}
	}
	p.peers.Store(&peers)
	if p.group != nil {
		p.group.SetPeers(peers)
	}
}

// openLog opens the commit log and cuts it to where the machine's state ends:
// what is behind comes again from the write-ahead log.
func (p *Partition) openLog(t *meta.Topic) error {
	m := p.machine
	if t.Config.MemoryOnly {
		m.start = m.end
		l := commitlog.NewMemory(commitlog.MemoryConfig{Start: m.end, RetentionBytes: t.Config.RetentionBytes})
		p.log, m.log = l, l
		return nil
	}
	l, err := commitlog.Open(commitlog.Config{
		FS: p.broker.cfg.FS, Dir: path.Join(p.broker.cfg.Dir, p.id.String()),
		SegmentBytes: t.Config.SegmentBytes, SegmentAge: t.Config.SegmentAge,
		Start: m.start, Clock: p.broker.clock, Files: p.broker.files,
	})
	if err != nil {
		return err
	}
	p.log, m.log = l, l
	return l.Cut(m.end)
}

// Unhost stops a replica and removes its data. Call it only when metadata says
// that the topic was deleted or the replica moved away, never because the
// partition is absent from metadata.
func (b *Broker) Unhost(id record.TopicPartition, group record.Group) error {
	b.mu.Lock()
	p, ok := b.partitions[id]
	delete(b.partitions, id)
	if ok {
		delete(b.groups, p.groupID)
	}
	b.mu.Unlock()
	if !ok {
		if err := b.cfg.Host.Drop(group); err != nil {
			return err
		}
	} else {
		if err := b.cfg.Host.Remove(p.group); err != nil {
			return err
		}
		p.wake()
		b.queues.unhosted(p)
	}
	return commitlog.Discard(b.cfg.FS, path.Join(b.cfg.Dir, id.String()))
}

func (p *Partition) reconfigure(cfg *meta.TopicConfig) error {
	p.config.Store(cfg)
	p.group.SetRelaxed(relaxed(cfg))
	if l, ok := p.log.(*commitlog.Log); ok {
		l.Configure(cfg.SegmentBytes, cfg.SegmentAge)
	}
	return nil
}

// closed is called when the replica is closed; the group's loop is over.
func (p *Partition) closed() {
	p.flush.writing.Lock()
	defer p.flush.writing.Unlock()
	p.flush.closed = true
	if err := p.log.Close(); err != nil {
		p.logger.Warn("cannot close the log", "err", err)
	}
	p.broker.flusher.tailBytes.Add(-p.flush.settled.Swap(0))
}

// Led says what a replica of this node sees of its partition's leadership.
type Led struct {
	Group  record.Group
	Status replica.Status
	// Leader is the node that leads; −1: none is known to.
	Leader record.NodeID
}

func (b *Broker) led(p *Partition, s replica.Status) {
	if b.cfg.OnLead == nil {
		return
	}
	l := Led{Group: p.groupID, Status: s, Leader: -1}
	if node, ok := (*p.peers.Load())[s.Leader]; ok {
		l.Leader = node
	}
	b.cfg.OnLead(l)
}

// storageFailed ends the node: a failed write or fsync is never tried again, as
// the page cache may have dropped the data.
func (b *Broker) storageFailed(p *Partition, err error) {
	b.cfg.OnFail(fmt.Errorf("partition %s: %w", p.id, err))
}
