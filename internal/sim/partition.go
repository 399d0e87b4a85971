package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// partitionKind is a real partition: the broker's machine, its commit log on the
// node's disk, its copies.
type partitionKind struct{}

func (partitionKind) name() string { return "partition" }

func (partitionKind) outcome(result any) string { return broker.Outcome(result) }

type partition struct {
	n *node
	h *hosted
	p *broker.Partition
}

// epoch is when virtual time begins on the wall clock.
var epoch = time.Unix(1_700_000_000, 0)

// startBroker makes a node's broker; it runs on nothing but the node's events.
func (n *node) startBroker() (*broker.Broker, error) {
	began := n.c.now
	return broker.New(broker.Config{
		Node: n.id, FS: n.faulty, Dir: "d/data", Host: n.host.Host, Copier: copier{n}, Asker: asker{n}, Logger: slog.New(slog.DiscardHandler),
		Clock:     func() time.Time { return epoch.Add(n.c.now + n.skew) },
		Elapsed:   func() time.Duration { return n.c.now - began },
		AfterFunc: n.afterFunc, Queues: n.hooks(),
		FlushBytes: 16 << 10, TailBudgetBytes: 64 << 10, ReserveBytes: 1, DelayedBytes: n.c.delayedBytes, Level: func() meta.Level { return meta.KnownLevel }, Passive: true,
		OnFail: func(err error) { n.stop("storage failed: "+err.Error(), vfs.CrashRandom) },
	})
}

// topic is the metadata of a team's partition as a node sees it.
func (t *team) topic(n *node) *meta.Topic {
	place := meta.Placement{Group: t.id, Founders: t.founders}
	own := t.at(n.id)
	for _, id := range sortedKeys(t.peers) {
		if on := t.peers[id]; on != n.id || id == own {
			place.Replicas = append(place.Replicas, meta.Replica{ID: id, Node: on})
		}
	}
	topic := &meta.Topic{ID: t.partition().Topic, Name: fmt.Sprint("t", t.id), Partitions: []meta.Placement{place}, Config: meta.TopicConfig{
		Retention: -1, RetentionBytes: -1, SegmentBytes: 48 << 10, SegmentAge: time.Hour, MaxMessageBytes: 1 << 20,
		TimestampBeforeMax: 1 << 62, TimestampAfterMax: 1 << 62, Durability: meta.QuorumFsync,
	}}
	if t.queue != nil {
		topic.Config.DedupeWindow = t.queue.window
	}
	return topic
}

func (t *team) partition() record.TopicPartition {
	id := record.TopicID{}
	binary.BigEndian.PutUint64(id[:], uint64(t.id))
	return record.TopicPartition{Topic: id}
}

func (partitionKind) host(n *node, h *hosted, _ []record.ReplicaID) (machine, error) {
	m := &partition{n: n, h: h}
	if err := n.broker.Host(h.t.topic(n), 0); err != nil {
		return m, err
	}
	m.p, _ = n.broker.Partition(h.t.partition())
	h.group = n.host.Group(h.t.id)
	return m, nil
}

func (partitionKind) drop(n *node, t *team) error { return n.broker.Unhost(t.partition(), t.id) }

func (m *partition) remove() error { return m.n.broker.Unhost(m.h.t.partition(), m.h.t.id) }

func (m *partition) setPeers(map[record.ReplicaID]record.NodeID) {
	_ = m.n.broker.Host(m.h.t.topic(m.n), 0) // it is hosted: no error
}

func (m *partition) produce(msg message, done func(answer)) {
	batch, err := record.Encode(record.BatchOptions{Idempotent: true, ProducerID: record.ProducerID(msg.client), BaseSequence: int32(msg.sequence - 1)},
		[]record.Record{{Timestamp: epoch.UnixMilli(), Value: encodeMessage(msg)}})
	if err != nil {
		m.n.c.check.fail("cannot encode a batch: %v", err)
	}
	m.p.Produce(broker.ProduceRequest{Batch: batch, LeaderEpoch: -1}, func(r broker.ProduceResult) {
		if errors.Is(r.Err, broker.ErrOutOfOrderSequence) || errors.Is(r.Err, broker.ErrDuplicateSequence) {
			r.Err = fmt.Errorf("%w: %w", errSequence, r.Err)
		}
		done(answer{uint64(r.BaseOffset), r.Err})
	})
}

func (m *partition) read(anywhere bool) ([]message, error) {
	var list []message
	from := m.p.BoundsHere().LogStart
	for {
		var r broker.ReadResult
		var err error
		if anywhere {
			r, err = m.p.ReadHere(from, 64<<10)
		} else {
			r, err = m.p.Read(broker.ReadRequest{Offset: from, MaxBytes: 64 << 10, MinOne: true, LeaderEpoch: -1})
		}
		if err != nil {
			return nil, err
		}
		if len(r.Parts) == 0 {
			return list, nil
		}
		more, err := m.messages(r)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
		from = record.Offset(list[len(list)-1].offset + 1)
	}
}

// messages takes apart what was read, and releases it.
func (m *partition) messages(r broker.ReadResult) (list []message, err error) {
	if r.Release != nil {
		defer r.Release()
	}
	for part := slices.Concat(r.Parts...); len(part) > 0; {
		head, err := record.ParseHeader(part)
		if err != nil {
			return nil, m.garbage(err)
		}
		err = record.Each(part[:head.SizeBytes()], record.Limits{}, func(rec record.Record) bool {
			v := rec.Value
			list = append(list, message{
				client: binary.LittleEndian.Uint32(v), sequence: binary.LittleEndian.Uint32(v[4:]),
				sum: crc32.ChecksumIEEE(v[8:]), offset: uint64(rec.Offset),
			})
			return true
		})
		if err != nil {
			return nil, m.garbage(err)
		}
		part = part[head.SizeBytes():]
	}
	return list, nil
}

// garbage: every byte that is served was checked.
func (m *partition) garbage(err error) error {
	m.n.c.check.fail("node %d serves a damaged batch of group %d: %v", m.n.id, m.h.t.id, err)
	return err
}

// copier brings copies from other nodes' brokers.
type copier struct{ n *node }

// Copy implements broker.Copier.
func (k copier) Copy(ctx context.Context, node record.NodeID, group record.Group, from record.Offset, sink broker.CopySink) error {
	n, other := k.n, k.n.c.node(node)
	err := errNoWay
	if !n.c.net.open(other.id, n.id) || other.pausedUntil > n.c.now {
		return err
	}
	other.run(func() {
		err = other.broker.ServeCopy(ctx, group, from, sink)
		n.c.log("n%d gives n%d a copy of g%d: %v", node, n.id, group, err)
		if err == nil {
			n.c.faults.count("copy")
		}
	})
	return err
}
