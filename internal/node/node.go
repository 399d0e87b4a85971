// Package node puts a Tube node together: it claims the data folder, recovers
// the replicas, gives each role its place and opens the doors; it stops them in
// the opposite order. It is the only package that knows concrete types on both
// sides of a seam.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/config"
	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/kafka"
	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/metrics"
	"github.com/tube-mq/tube/internal/peer"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
	"github.com/tube-mq/tube/internal/rpc"
	"github.com/tube-mq/tube/internal/vfs"
	"github.com/tube-mq/tube/internal/wal"
)

// Node is one running node.
type Node struct {
	cfg     *config.Config
	logger  *slog.Logger
	version string
	started time.Time
	fs      vfs.FS
	disk    *vfs.Timed // fs, to be looked at by the watchdog
	boot    string     // another one for every start
	lock    vfs.Lock
	addrs   config.Addrs

	// identity is whose the data folder is; owned: it is written there.
	identity atomic.Pointer[identity]
	owned    atomic.Bool
	// outdated: see lookForRecovery.
	outdated atomic.Bool
	// seeds are the replicas of the masters' groups, as told when this node joined.
	seeds map[record.ReplicaID]record.NodeID

	peers       *peers
	leaders     *leaders
	ends        *ends
	health      *health
	copies      *throttle
	host        atomic.Pointer[replica.Host] // nil until the folder belongs to a cluster
	broker      *broker.Broker
	meta        *metaMachine
	master      *master.Master
	groups      *master.Groups
	recon       *reconciler
	begunQueues begunQueues
	queues      atomic.Pointer[queues] // nil until there is a master
	// lostMessages went, where this node led, before a queue group was done with them.
	lostMessages atomic.Int64
	// retentionNotes are the events of what retention takes from queue groups.
	retentionNotes retentionNotes
	kafka          *kafka.Door
	http           *rpc.Server

	metrics *metrics.Registry
	// flushing is how long the log's flush that is under way takes, in nanoseconds,
	// as the watchdog saw last.
	flushing atomic.Int64

	listeners  []net.Listener
	background sync.WaitGroup
	cancel     context.CancelFunc
	ready      atomic.Bool

	failure  error
	failOnce sync.Once
	done     chan struct{}
	stopOnce sync.Once
	stopErr  error
}

// leadTimeout bounds how long a start waits for leaders of the partitions that it has
// replicas of. It is a courtesy to clients: one that cannot have a leader, as most of its
// replicas are away, must not keep the node from serving the others, or from being told
// to go on without.
const leadTimeout = 10 * time.Second

// Start starts a node on the real disk and returns once it serves.
func Start(ctx context.Context, cfg *config.Config, version string, logger *slog.Logger) (*Node, error) {
	return startOn(ctx, vfs.OS{}, cfg, version, logger)
}

func startOn(ctx context.Context, disk vfs.FS, cfg *config.Config, version string, logger *slog.Logger) (*Node, error) {
	n := &Node{
		cfg: cfg, logger: logger, version: version, started: time.Now(), disk: vfs.NewTimed(disk), done: make(chan struct{}),
		boot: uuid.NewString(), copies: &throttle{},
	}
	n.fs = n.disk
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := make(chan error, 1)
	go func() { started <- n.start(ctx) }()
	var err error
	select {
	case err = <-started:
	case <-n.done: // the disk hangs or fails: what waits for it is not waited for
		go func() { <-started; _ = n.release() }() // should it come back after all
		return nil, n.failure
	}
	if err != nil {
		if n.http != nil {
			stop, cancel := context.WithTimeout(context.Background(), time.Second)
			_ = n.http.Stop(stop)
			cancel()
		}
		n.release()
		return nil, err
	}
	return n, nil
}

// id is whose the data folder is.
func (n *Node) id() identity { return *n.identity.Load() }

func (n *Node) start(ctx context.Context) error {
	background, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.background.Go(func() { n.watchDisk(background) })
	if err := n.claimData(); err != nil {
		return err
	}
	if err := n.listen(); err != nil {
		return err
	}
	n.meta = newMetaMachine(n.id().Node)
	n.leaders = newLeaders(n.id().Node, n.alive)
	n.ends = newEnds(uint64(time.Now().UnixNano()), func(to record.NodeID, f peer.Frame) bool { return n.peers.transport.Send(to, f) })
	n.health = newHealth(n.id().Node)
	if err := n.openPeers(n.listeners[2]); err != nil {
		return err
	}
	if err := n.serveHTTP(); err != nil {
		return err
	}
	if err := n.belong(ctx); err != nil {
		return err
	}
	if err := n.openData(); err != nil {
		return err
	}
	if err := n.startMasters(); err != nil {
		return err
	}
	n.background.Go(func() { n.recon.run(background) })
	n.background.Go(func() { n.leaders.run(background, n.peers.toAll) })
	if err := n.join(ctx); err != nil {
		return err
	}
	n.background.Go(func() { n.driveMembers(background) })
	n.background.Go(func() { n.steer(background) })
	n.background.Go(func() { n.repair(background) })
	if err := n.openKafka(); err != nil {
		return err
	}
	n.ready.Store(true)
	id := n.id()
	n.logger.Info("ready", "node", id.Node, "cluster", id.ClusterID, "kafka", n.addrs.Kafka, "http", n.addrs.HTTP, "peer", n.addrs.Peer, "took", time.Since(n.started).Round(time.Millisecond))
	return nil
}

// claimData makes sure that the folder is this node's.
func (n *Node) claimData() error {
	dir := n.cfg.Data
	if err := n.fs.MkdirAll(dir); err != nil {
		return fmt.Errorf("data folder %s: %w", dir, err)
	}
	lock, err := vfs.LockDir(n.fs, dir)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	n.lock = lock
	id, fresh, err := claim(n.fs, dir, n.cfg.NodeID, n.cfg.ClusterID)
	if err != nil {
		return err
	}
	n.identity.Store(&id)
	n.owned.Store(!fresh)
	return nil
}

// openData recovers what is in the folder.
func (n *Node) openData() error {
	dir := n.cfg.Data
	host, err := replica.Open(replica.Config{
		FS: n.fs, Dir: dir, Logger: n.logger, WAL: wal.Config{FileBytes: n.cfg.WALFileBytes, Logger: n.logger},
		CheckpointBytes: n.cfg.CheckpointBytes, Boot: machineRun(), OnFail: n.fail, Transport: n.peers, Alive: n.alive,
		Sick: func(node record.NodeID) bool { return n.health.why(node) != "" },
	})
	if err != nil {
		return fmt.Errorf("data folder %s: %w", dir, err)
	}
	n.broker, err = broker.New(broker.Config{
		Node: n.id().Node, FS: n.fs, Dir: path.Join(dir, "data"), Host: host, Copier: copier{n}, Asker: n.ends, Logger: n.logger,
		TailBudgetBytes: n.cfg.TailMemoryBytes, ReserveBytes: n.cfg.DiskReserveBytes, DelayedBytes: n.cfg.DelayedMemoryBytes, RetentionInterval: n.cfg.RetentionInterval,
		ProducerExpiry: n.cfg.ProducerExpiry, MaxProducers: n.cfg.MaxProducers, OnFail: n.fail, OnLead: n.partitionLed,
		Queues: n.queueHooks(), Level: func() meta.Level { return n.meta.Image().Level },
	})
	if err == nil {
		n.ends.here = n.broker.EndIn
	}
	n.host.Store(host)
	return err
}

func (n *Node) listen() error {
	addrs := []struct {
		what, want string
		got        *string
	}{{"kafka", n.cfg.Kafka, &n.addrs.Kafka}, {"http", n.cfg.HTTP, &n.addrs.HTTP}, {"peer", n.cfg.Peer, &n.addrs.Peer}}
	for _, a := range addrs {
		l, err := net.Listen("tcp", a.want)
		if err != nil {
			return fmt.Errorf("cannot listen for %s on %s: %w; is another node running? give another --%s", a.what, a.want, err, a.what)
		}
		n.listeners = append(n.listeners, l)
		*a.got = l.Addr().String()
	}
	return nil
}

// startMasters runs this node's replicas of the masters' groups: of the metadata on
// every node, of the stream groups on masters.
func (n *Node) startMasters() error {
	if err := n.prepareGroups(); err != nil {
		return err
	}
	if err := n.dropOldMasters(); err != nil {
		return err
	}
	saved, err := n.host.Load().Saved(metaGroup)
	if err == nil && saved != nil {
		err = n.meta.Restore(saved)
	}
	if errors.Is(err, meta.ErrOldProgram) {
		return err
	}
	if err != nil {
		return fmt.Errorf("the cluster's metadata cannot be read: %w; restore the data folder from a backup, or in a cluster empty it: what it had is copied from the others", err)
	}
	n.recon = newReconciler(n.id().Node, n.meta.Image, n.broker, n.logger)
	// What the checkpoint knew: topics in it that the log has deleted since are
	// told apart by it from what was never there.
	n.recon.done = &meta.Image{Topics: stale(n.meta.Image().Topics)}
	n.recon.gone = n.leaders.leave
	n.recon.deleted = n.topicsDeleted
	views := &groupTopics{}
	n.groups.SetTopics(views.view(n.meta.Image()))
	queues := &queueTopics{}
	n.recon.topics = func(im *meta.Image) {
		n.groups.SetTopics(views.view(im))
		if err := queues.tell(im, n.broker); err != nil {
			n.logger.Error("a queue group's filter does not compile any more: it wants nothing", "err", err)
		}
	}
	n.meta.wake = func() {
		n.recon.nudge()
		n.addressesChanged()
	}
	n.meta.settle = func(index record.Index) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return n.recon.await(ctx, index)
	}
	n.meta.led = func(s replica.Status) { n.observe(metaGroup, s) }
	n.peers.update(n.meta.Image())
	if _, err := n.addOwn(metaGroup, n.meta); err != nil {
		return err
	}
	n.master = master.New(master.Config{
		Node: n.id().Node, Proposer: metaProposer{n}, Image: n.meta.Image, Settled: n.settled, Ends: n.knownEnds, Logger: n.logger,
		DefaultPartitions: n.cfg.DefaultPartitions, AutoCreateTopics: n.cfg.AutoCreateTopics,
	})
	n.startQueues()
	return n.startGroups()
}

// addressesChanged passes on where the other nodes are.
func (n *Node) addressesChanged() {
	im := n.meta.Image()
	n.peers.update(im)
	places := n.metaPeers(im)
	for _, id := range n.masterGroups() {
		if g := n.host.Load().Group(id); g != nil {
			g.SetPeers(places)
		}
	}
}

// observe passes on what a replica of the masters' groups sees of its leadership.
func (n *Node) observe(id record.Group, s replica.Status) {
	node := record.NodeID(-1)
	if at, ok := n.metaPeers(n.meta.Image())[s.Leader]; ok {
		node = at
	}
	n.leaders.observe(id, s, node)
}

// stale copies topics so that the reconciler takes none for carried out.
func stale(topics map[record.TopicID]*meta.Topic) map[record.TopicID]*meta.Topic {
	out := make(map[record.TopicID]*meta.Topic, len(topics))
	for id, t := range topics {
		c := *t
		out[id] = &c
	}
	return out
}

func (n *Node) addOwn(id record.Group, m replica.Machine) (*replica.Group, error) {
	own := n.id()
	return n.host.Load().Add(replica.Spec{
		Group: id, Replica: own.MetaReplica, Voters: own.voters(), Peers: n.metaPeers(n.meta.Image()),
		Machine: m, Fetch: copier{n}.fetchWhole(id), Urgent: true, Logger: n.logger,
	})
}

// prepareGroups makes the shards of stream groups; they answer once they are led.
func (n *Node) prepareGroups() error {
	limits := group.DefaultConfig()
	limits.MinSession, limits.MaxSession = n.cfg.GroupMinSessionTimeout, n.cfg.GroupMaxSessionTimeout
	limits.InitialDelay, limits.MaxMembers, limits.OffsetsRetention = n.cfg.GroupInitialDelay, n.cfg.GroupMaxMembers, n.cfg.OffsetsRetention
	limits.ConsumerSession, limits.ConsumerInterval, limits.Migration = n.cfg.GroupConsumerSession, n.cfg.GroupConsumerInterval, group.Migration(n.cfg.GroupMigration)
	var err error
	n.groups, err = master.NewGroups(master.GroupsConfig{Group: limits, Shards: groupsShards, Leader: func(shard int) (record.NodeID, bool) {
		node, _ := n.leaders.of(firstGroupsGroup + record.Group(shard))
		return node, node >= 0
	}})
	return err
}

// startGroups runs the shards of stream groups, if this node is a master.
func (n *Node) startGroups() error {
	if !n.cfg.HasRole(config.RoleMaster) {
		return nil
	}
	for i := range groupsShards {
		s := n.groups.Shard(i)
		id := firstGroupsGroup + record.Group(i)
		saved, err := n.host.Load().Saved(id)
		if err == nil && saved != nil {
			err = s.Restore(saved)
		}
		if err != nil {
			return fmt.Errorf("stream groups, shard %d, cannot be read: %w; restore the data folder from a backup, or in a cluster empty it: what it had is copied from the others", i, err)
		}
		late := &lateProposer{}
		s.Start(late, late.barrier)
		g, err := n.addOwn(id, shardMachine{s, func(s replica.Status) { n.observe(id, s) }})
		if err != nil {
			return err
		}
		late.group.Store(g)
	}
	return nil
}

// topicsDeleted forgets positions in topics that are gone.
func (n *Node) topicsDeleted(ids []record.TopicID) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := n.groups.TopicsDeleted(ctx, ids); err != nil {
		n.logger.Warn("offsets of deleted topics stay until they expire", "err", err)
	}
}

// lateProposer is a proposer whose group comes once it runs.
type lateProposer struct{ group atomic.Pointer[replica.Group] }

// Propose implements master.GroupProposer.
func (p *lateProposer) Propose(ctx context.Context, data []byte) (any, error) {
	g := p.group.Load()
	if g == nil {
		return nil, replica.ErrNotLeader
	}
	return g.ProposeWait(ctx, data)
}

func (p *lateProposer) barrier(ctx context.Context) error {
	g := p.group.Load()
	if g == nil {
		return replica.ErrNotLeader
	}
	return g.Barrier(ctx)
}

// join names the cluster if it has no name yet, registers the node, and waits
// until what it hosts can be used.
func (n *Node) join(ctx context.Context) error {
	if err := n.nameCluster(ctx); err != nil {
		return err
	}
	if im, id := n.meta.Image(), n.id(); im.ClusterID != id.ClusterID {
		return fmt.Errorf("the metadata is of cluster %s, the data folder of cluster %s", im.ClusterID, id.ClusterID)
	}
	if err := n.endRecovery(ctx); err != nil {
		return err
	}
	if err := n.register(ctx); err != nil {
		return err
	}
	if err := n.recon.await(ctx, n.meta.Image().Index); err != nil {
		return err
	}
	n.host.Load().MembersKnown()
	lead, cancel := context.WithTimeout(ctx, leadTimeout)
	defer cancel()
	if n.recon.ready(lead) != nil && ctx.Err() == nil {
		n.logger.Warn("not all partitions here have a leader yet: the node serves without them", "waited", leadTimeout)
	}
	return ctx.Err()
}

// register tells the cluster where this node is now. It is tried until there is an
// answer: an active master may die while it is asked, and saying it twice is
// harmless.
func (n *Node) register(ctx context.Context) error {
	for {
		try, cancel := context.WithTimeout(ctx, tellEvery)
		r, err := metaProposer{n}.Propose(try, meta.RegisterNode(time.Now(), n.describe()))
		cancel()
		switch {
		case err == nil && r.(meta.Result).Err != nil:
			return fmt.Errorf("the cluster refuses this node: %w", r.(meta.Result).Err)
		case err == nil:
			id := n.id()
			id.Registered = true
			return n.own(id)
		case ctx.Err() != nil || errors.Is(err, replica.ErrStopped) || errors.Is(err, replica.ErrDamaged):
			return fmt.Errorf("registering: %w", err)
		}
		n.logger.Info("waiting for a majority of the masters", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryLead):
		}
	}
}

// settled waits, within limits, until metadata is carried out here and what it
// brought can be used.
func (n *Node) settled(ctx context.Context, index record.Index) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if n.recon.await(ctx, index) == nil {
		_ = n.recon.ready(ctx) // clients retry what is not there yet
	}
}

// diskBytes tells the size of the disk that the data is on and what is left of it.
func (n *Node) diskBytes() (total, usable int64, err error) {
	if total, err = vfs.TotalBytes(n.fs, n.cfg.Data); err != nil {
		return 0, 0, err
	}
	usable, err = vfs.FreeBytes(n.fs, n.cfg.Data)
	return total, usable, err
}

func (n *Node) openKafka() error {
	n.watchMetrics()
	counted := n.metrics.Kafka()
	door, err := kafka.New(kafka.Config{
		Node: n.id().Node, Logger: n.logger, AutoCreateTopics: n.cfg.AutoCreateTopics, DataDir: n.cfg.Data, DiskBytes: n.diskBytes,
		MaxConnections: n.cfg.MaxConnections, MaxConnectionsPerAddress: n.cfg.MaxConnectionsPerAddress,
		MaxFrameBytes: int(n.cfg.MaxFrameBytes), RequestMemoryBytes: n.cfg.RequestMemoryBytes,
		ReadTimeout: n.cfg.ReadTimeout, WriteTimeout: n.cfg.WriteTimeout, IdleTimeout: n.cfg.IdleTimeout,
		Traffic: counted, Calls: counted,
	}, kafka.Backend{
		Topics: n.master, Placement: n.master, Leaders: leadership{n}, Groups: kafka.Groups{Members: n.groups, Offsets: n.groups.Offsets(), Admin: n.groups.Admin()},
		Shares:     kafka.Shares{Queues: shareQueues{n}, Admin: shareAdmin{n}},
		Partitions: n.partitions(), Image: n.meta.Image, CatchUp: metaProposer{n}.CatchUp,
	})
	if err != nil {
		return err
	}
	n.kafka = door
	return door.Start(n.listeners[0])
}

// Addrs are the addresses that the doors listen on.
func (n *Node) Addrs() config.Addrs { return n.addrs }

// Done is closed when the node has stopped; Err then says why if it was by itself.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err is why the node stopped by itself; nil if it did not.
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.failure
	default:
		return nil
	}
}

// fail is the node's last word: a write or fsync failed, and what the page cache
// holds cannot be trusted any more. Nothing is tried again; the process ends.
func (n *Node) fail(err error) {
	n.end("storage failed: the node stops now; on restart what was acknowledged is recovered", err)
}

// end stops the node by itself, with a last word.
func (n *Node) end(word string, err error) {
	n.failOnce.Do(func() {
		n.failure = err
		n.lastWord(word, err)
		n.ready.Store(false)
		close(n.done)
	})
}

// diskHangs is the last word of a node whose disk hangs. A thread that is stuck in
// the kernel may keep what is left of the process there until the disk comes back,
// so others are hung up on first: they need not find out by silence.
func (n *Node) diskHangs(err error) {
	n.failOnce.Do(func() {
		n.failure = err
		n.lastWord("the disk hangs: the node stops now", err)
		if n.ready.Swap(false) {
			within(lastWordTimeout, n.hangUp)
		}
		close(n.done)
	})
}

// lastWordTimeout bounds what a node still does when it ends by itself.
const lastWordTimeout = time.Second

// lastWord logs why the node ends. The log may be on the disk that hangs.
func (n *Node) lastWord(what string, err error) {
	within(lastWordTimeout, func() { n.logger.Error(what, "err", err) })
}

// within waits for f, but not for long: the process ends, and f with it.
func within(d time.Duration, f func()) {
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(d):
	}
}

// hangUp closes all doors and connections without waiting for anybody.
func (n *Node) hangUp() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	for _, l := range n.listeners {
		_ = l.Close()
	}
	_ = n.kafka.Stop(now)
	_ = n.http.Stop(now)
	_ = n.peers.transport.Stop(now)
}

// Stop takes no more requests, finishes those under way until ctx ends, makes a
// checkpoint and closes the data folder. It may be called again.
func (n *Node) Stop(ctx context.Context) error {
	n.stopOnce.Do(func() {
		n.ready.Store(false)
		n.handOver(ctx)
		if n.kafka != nil {
			n.stopErr = n.kafka.Stop(ctx)
		}
		if n.http != nil {
			n.stopErr = errors.Join(n.stopErr, n.http.Stop(ctx))
		}
		n.stopErr = errors.Join(n.stopErr, n.release())
		n.failOnce.Do(func() { close(n.done) })
	})
	return n.stopErr
}

// release gives up what start took, as far as it came.
func (n *Node) release() error {
	var err error
	if n.groups != nil {
		n.groups.Stop()
	}
	if n.broker != nil {
		n.broker.Stop()
	}
	if h := n.host.Load(); h != nil {
		err = h.Close()
	}
	if n.peers != nil {
		err = errors.Join(err, n.peers.stop())
	}
	for _, l := range n.listeners {
		l.Close() // the doors have closed theirs already
	}
	if n.cancel != nil {
		n.cancel()
	}
	n.background.Wait()
	if n.lock != nil {
		err = errors.Join(err, n.lock.Close())
	}
	return err
}
