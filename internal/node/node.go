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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/config"
	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/kafka"
	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/metrics"
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
	id      identity
	lock    vfs.Lock
	addrs   config.Addrs

	host   *replica.Host
	broker *broker.Broker
	meta   *metaMachine
	master *master.Master
	groups *master.Groups
	recon  *reconciler
	kafka  *kafka.Door
	http   *rpc.Server

	metrics *metrics.Registry

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

// startTimeout bounds how long a start waits for its own replicas.
const startTimeout = 5 * time.Minute

// Start starts a node on the real disk and returns once it serves.
func Start(ctx context.Context, cfg *config.Config, version string, logger *slog.Logger) (*Node, error) {
	if len(cfg.Masters) > 1 {
		return nil, errors.New("a cluster of several nodes is not there yet: leave --masters out")
	}
	n := &Node{cfg: cfg, logger: logger, version: version, started: time.Now(), fs: vfs.OS{}, done: make(chan struct{})}
	if err := n.start(ctx); err != nil {
		n.release()
		return nil, err
	}
	return n, nil
}

func (n *Node) start(ctx context.Context) error {
	if err := n.openData(); err != nil {
		return err
	}
	if err := n.listen(); err != nil {
		return err
	}
	n.meta = newMetaMachine(n.id.Node)
	background, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	if err := n.serveHTTP(); err != nil {
		return err
	}
	wait, done := context.WithTimeout(ctx, startTimeout)
	defer done()
	if err := n.startMeta(wait); err != nil {
		return err
	}
	if err := n.startGroups(wait); err != nil {
		return err
	}
	n.background.Go(func() { n.recon.run(background) })
	if err := n.join(wait); err != nil {
		return err
	}
	if err := n.openKafka(); err != nil {
		return err
	}
	n.ready.Store(true)
	n.logger.Info("ready", "node", n.id.Node, "cluster", n.id.ClusterID, "kafka", n.addrs.Kafka, "http", n.addrs.HTTP, "took", time.Since(n.started).Round(time.Millisecond))
	return nil
}

// openData claims the folder and recovers what is in it.
func (n *Node) openData() error {
	dir := n.cfg.Data
	if err := n.fs.MkdirAll(dir); err != nil {
		return fmt.Errorf("data folder %s: %w", dir, err)
	}
	lock, err := vfs.LockDir(n.fs, dir)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	n.lock = lock
	if n.id, err = claim(n.fs, dir, n.cfg.NodeID, n.cfg.ClusterID); err != nil {
		return err
	}
	n.host, err = replica.Open(replica.Config{
		FS: n.fs, Dir: dir, Logger: n.logger, WAL: wal.Config{FileBytes: n.cfg.WALFileBytes, Logger: n.logger},
		CheckpointBytes: n.cfg.CheckpointBytes, OnFail: n.fail,
	})
	if err != nil {
		return fmt.Errorf("data folder %s: %w", dir, err)
	}
	n.broker, err = broker.New(broker.Config{
		Node: n.id.Node, FS: n.fs, Dir: path.Join(dir, "data"), Host: n.host, Logger: n.logger,
		TailBudgetBytes: n.cfg.TailMemoryBytes, ReserveBytes: n.cfg.DiskReserveBytes, RetentionInterval: n.cfg.RetentionInterval,
		ProducerExpiry: n.cfg.ProducerExpiry, MaxProducers: n.cfg.MaxProducers, OnFail: n.fail,
	})
	return err
}

func (n *Node) listen() error {
	addrs := []struct {
		what, want string
		got        *string
	}{{"kafka", n.cfg.Kafka, &n.addrs.Kafka}, {"http", n.cfg.HTTP, &n.addrs.HTTP}}
	for _, a := range addrs {
		l, err := net.Listen("tcp", a.want)
		if err != nil {
			return fmt.Errorf("cannot listen for %s on %s: %w; is another node running? give another --%s", a.what, a.want, err, a.what)
		}
		n.listeners = append(n.listeners, l)
		*a.got = l.Addr().String()
	}
	n.addrs.Peer = n.cfg.Peer
	return nil
}

// startMeta runs the metadata's replica and waits until it leads.
func (n *Node) startMeta(ctx context.Context) error {
	saved, err := n.host.Saved(metaGroup)
	if err == nil {
		err = n.meta.restore(saved)
	}
	if err != nil {
		return fmt.Errorf("the cluster's metadata cannot be read: %w; restore the data folder from a backup", err)
	}
	n.recon = newReconciler(n.id.Node, n.meta.Image, n.broker, n.logger)
	// What the checkpoint knew: topics in it that the log has deleted since are
	// told apart by it from what was never there.
	n.recon.done = &meta.Image{Topics: stale(n.meta.Image().Topics)}
	n.meta.wake = n.recon.nudge
	n.meta.settle = func(index record.Index) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return n.recon.await(ctx, index)
	}
	g, err := n.addOwn(metaGroup, n.meta)
	if err != nil {
		return err
	}
	if err := n.awaitLead(ctx, g); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	n.master = master.New(master.Config{
		Node: n.id.Node, Proposer: proposer{g}, Image: n.meta.Image, Settled: n.settled, Logger: n.logger,
		DefaultPartitions: n.cfg.DefaultPartitions, AutoCreateTopics: n.cfg.AutoCreateTopics,
	})
	return nil
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
	return n.host.Add(replica.Spec{Group: id, Replica: 1, Voters: []record.ReplicaID{1}, Machine: m, Logger: n.logger})
}

// awaitLead waits until a group of this node may serve.
func (n *Node) awaitLead(ctx context.Context, g *replica.Group) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !g.Status().Leading {
		if err := g.Err(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-n.done:
			return n.failure
		case <-ctx.Done():
			return fmt.Errorf("no leader: %w", ctx.Err())
		}
	}
	return nil
}

// startGroups runs the shards of stream groups.
func (n *Node) startGroups(ctx context.Context) error {
	limits := group.DefaultConfig()
	limits.MinSession, limits.MaxSession = n.cfg.GroupMinSessionTimeout, n.cfg.GroupMaxSessionTimeout
	limits.InitialDelay, limits.MaxMembers, limits.OffsetsRetention = n.cfg.GroupInitialDelay, n.cfg.GroupMaxMembers, n.cfg.OffsetsRetention
	limits.ConsumerSession, limits.ConsumerInterval, limits.Migration = n.cfg.GroupConsumerSession, n.cfg.GroupConsumerInterval, group.Migration(n.cfg.GroupMigration)
	shards := make([]*replica.Group, groupsShards)
	var err error
	n.groups, err = master.NewGroups(master.GroupsConfig{Group: limits, Shards: groupsShards, Leader: func(shard int) (record.NodeID, bool) {
		return n.id.Node, shards[shard] != nil && shards[shard].Status().Leading
	}})
	if err != nil {
		return err
	}
	views := &groupTopics{}
	n.groups.SetTopics(views.view(n.meta.Image()))
	for i := range shards {
		s := n.groups.Shard(i)
		id := firstGroupsGroup + record.Group(i)
		saved, err := n.host.Saved(id)
		if err == nil && saved != nil {
			err = s.Restore(saved)
		}
		if err != nil {
			return fmt.Errorf("stream groups, shard %d, cannot be read: %w; restore the data folder from a backup", i, err)
		}
		late := &lateProposer{}
		s.Start(late, nil)
		g, err := n.addOwn(id, shardMachine{s})
		if err != nil {
			return err
		}
		late.group.Store(g)
		shards[i] = g
	}
	for i, g := range shards {
		if err := n.awaitLead(ctx, g); err != nil {
			return fmt.Errorf("stream groups, shard %d: %w", i, err)
		}
	}
	n.recon.topics = func(im *meta.Image) { n.groups.SetTopics(views.view(im)) }
	n.recon.deleted = func(ids []record.TopicID) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := n.groups.TopicsDeleted(ctx, ids); err != nil {
			n.logger.Warn("offsets of deleted topics stay until they expire", "err", err)
		}
	}
	return nil
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

// join founds the cluster if there is none, registers the node, and waits until
// what it hosts can be used.
func (n *Node) join(ctx context.Context) error {
	g := proposer{n.host.Group(metaGroup)}
	propose := func(data []byte) error {
		r, err := g.Propose(ctx, data)
		if err != nil {
			return err
		}
		return r.(meta.Result).Err
	}
	if im := n.meta.Image(); im.ClusterID == "" {
		if err := propose(meta.Bootstrap(time.Now(), n.id.ClusterID)); err != nil {
			return fmt.Errorf("founding the cluster: %w", err)
		}
	} else if im.ClusterID != n.id.ClusterID {
		return fmt.Errorf("the metadata is of cluster %s, the data folder of cluster %s", im.ClusterID, n.id.ClusterID)
	}
	told := n.cfg.Advertised(n.addrs)
	self := meta.Node{
		ID: n.id.Node, Incarnation: n.id.Incarnation, Zone: n.cfg.Zone, Kafka: told.Kafka, HTTP: told.HTTP, Peer: told.Peer, Version: n.version,
	}
	for _, r := range n.cfg.Roles {
		self.Roles = append(self.Roles, string(r))
	}
	slices.Sort(self.Roles)
	if err := propose(meta.RegisterNode(time.Now(), self)); err != nil {
		return fmt.Errorf("registering: %w", err)
	}
	if err := n.recon.await(ctx, n.meta.Image().Index); err != nil {
		return err
	}
	return n.recon.ready(ctx)
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

func (n *Node) openKafka() error {
	n.watchMetrics()
	counted := n.metrics.Kafka()
	door, err := kafka.New(kafka.Config{
		Node: n.id.Node, Logger: n.logger, AutoCreateTopics: n.cfg.AutoCreateTopics, DataDir: n.cfg.Data,
		MaxConnections: n.cfg.MaxConnections, MaxConnectionsPerAddress: n.cfg.MaxConnectionsPerAddress,
		MaxFrameBytes: int(n.cfg.MaxFrameBytes), RequestMemoryBytes: n.cfg.RequestMemoryBytes,
		ReadTimeout: n.cfg.ReadTimeout, WriteTimeout: n.cfg.WriteTimeout, IdleTimeout: n.cfg.IdleTimeout,
		Traffic: counted, Calls: counted,
	}, kafka.Backend{
		Topics: n.master, Groups: kafka.Groups{Members: n.groups, Offsets: n.groups.Offsets(), Admin: n.groups.Admin()},
		Partitions: partitions{n.broker, n.meta.Image, n.id.Node}, Image: n.meta.Image,
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
	n.failOnce.Do(func() {
		n.logger.Error("storage failed: the node stops now; on restart what was acknowledged is recovered", "err", err)
		n.ready.Store(false)
		n.failure = err
		close(n.done)
	})
}

// Stop takes no more requests, finishes those under way until ctx ends, makes a
// checkpoint and closes the data folder. It may be called again.
func (n *Node) Stop(ctx context.Context) error {
	n.stopOnce.Do(func() {
		n.ready.Store(false)
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
	for _, l := range n.listeners {
		l.Close() // the doors have closed theirs already
	}
	if n.groups != nil {
		n.groups.Stop()
	}
	if n.broker != nil {
		n.broker.Stop()
	}
	if n.host != nil {
		err = n.host.Close()
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
