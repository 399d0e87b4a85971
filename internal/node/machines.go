package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
	"github.com/tube-mq/tube/internal/rpc"
)

// The masters' own replica groups; partitions' begin at meta.FirstPartitionGroup.
const (
	metaGroup        = record.Group(1)
	firstGroupsGroup = record.Group(2)
	// groupsShards is never changed in a cluster's life: a group's name is hashed over them.
	groupsShards = 8
)

// metaMachine feeds the meta machine and tells who waits for news of it.
type metaMachine struct {
	// mu guards machine; image is what it returned last, for readers without a lock.
	mu      sync.RWMutex
	machine *meta.Machine
	image   atomic.Pointer[meta.Image]
	newer   chan struct{}                  // closed and replaced when there is something new; guarded by mu
	status  atomic.Pointer[replica.Status] // of the leadership as this node sees it
	node    record.NodeID
	out     *outcomes
	wake    func() // somebody has to carry out what changed
	settle  func(record.Index) error
	led     func(replica.Status)
}

func newMetaMachine(node record.NodeID) *metaMachine {
	m := &metaMachine{machine: meta.New(), newer: make(chan struct{}), node: node, out: newOutcomes(), wake: func() {}, led: func(replica.Status) {}, settle: func(record.Index) error { return nil }}
	m.image.Store(m.machine.Image())
	return m
}

// Image is the newest metadata that this node has, with who is active.
func (m *metaMachine) Image() *meta.Image { return m.image.Load() }

func (m *metaMachine) publish() {
	im := *m.machine.Image()
	im.Controller = -1
	if s := m.status.Load(); s != nil && s.Leader != 0 {
		if n := im.MetaNode(s.Leader); n != nil && (s.Leading || n.ID != m.node) {
			im.Controller = n.ID
		}
	}
	m.image.Store(&im)
}

// Apply implements replica.Machine.
func (m *metaMachine) Apply(e replica.Entry) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.machine.Apply(e.Index, e.Data)
	if isUnknown(r.Err, meta.ErrUnknownCommand) {
		panic(fmt.Sprintf("node: metadata: %v: written by a newer version", r.Err))
	}
	// Who proposed it looks at the image next.
	m.publish()
	m.out.add(e.Index, r)
	return applied{e.Index, r}
}

// result returns what the command at an index did, once this node has applied it.
func (m *metaMachine) result(ctx context.Context, index record.Index) (any, error) {
	r, err := m.out.wait(ctx, index)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Applied implements replica.Machine.
func (m *metaMachine) Applied() {
	m.mu.Lock()
	close(m.newer)
	m.newer = make(chan struct{})
	m.mu.Unlock()
	m.wake()
}

// Led implements replica.Machine.
func (m *metaMachine) Led(s replica.Status) {
	m.mu.Lock()
	m.status.Store(&s)
	m.publish()
	m.mu.Unlock()
	m.led(s)
	m.wake()
}

// replaced reports whether a data folder was a node's once and may not come back.
func (m *metaMachine) replaced(node record.NodeID, incarnation string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machine.Replaced(node, incarnation)
}

// Save implements replica.Machine.
func (m *metaMachine) Save() ([]byte, error) { return m.machine.Snapshot(), nil }

// Settle implements replica.Machine: a checkpoint may cover the deletion of a
// topic only once its data is gone here, as a restart would not see it again.
func (m *metaMachine) Settle() error { return m.settle(m.Image().Index) }

// Close implements replica.Machine.
func (m *metaMachine) Close() {}

// Restore implements replica.Machine.
func (m *metaMachine) Restore(b []byte) error {
	if b == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.machine.Restore(b); err != nil {
		return err
	}
	m.publish()
	m.out.skipTo(m.machine.Image().Index)
	close(m.newer)
	m.newer = make(chan struct{})
	m.wake()
	return nil
}

// news is closed when there is newer metadata.
func (m *metaMachine) news() <-chan struct{} {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.newer
}

// reach waits until everything up to index is in the image.
func (m *metaMachine) reach(ctx context.Context, index record.Index) error {
	for {
		newer := m.news()
		if m.Image().Index >= index {
			return nil
		}
		select {
		case <-newer:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ListEvents implements rpc.Events.
func (m *metaMachine) ListEvents(after uint64, limit int) []rpc.Event {
	m.mu.RLock()
	defer m.mu.RUnlock()
	events := m.machine.Events(after, limit)
	out := make([]rpc.Event, len(events))
	for i, e := range events {
		out[i] = rpc.Event(e)
	}
	return out
}

// LastEvent implements rpc.Events.
func (m *metaMachine) LastEvent() (uint64, <-chan struct{}) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.machine.LastEvent(), m.newer
}

// shardMachine feeds one groups shard.
type shardMachine struct {
	shard *master.GroupShard
	led   func(replica.Status)
}

// Apply implements replica.Machine.
func (m shardMachine) Apply(e replica.Entry) any {
	// The machine keeps parts of what it is given.
	r := m.shard.Apply(e.Index, slices.Clone(e.Data))
	if res, ok := r.(group.Result); ok && isUnknown(res.Err, group.ErrUnknownCommand) {
		panic(fmt.Sprintf("node: groups: %v: written by a newer version", res.Err))
	}
	return r
}

// Applied implements replica.Machine.
func (shardMachine) Applied() {}

// Led implements replica.Machine.
func (m shardMachine) Led(s replica.Status) {
	if s.Leading {
		m.shard.BecomeLeader(s.Term)
	} else {
		m.shard.LoseLeadership()
	}
	m.led(s)
}

// Save implements replica.Machine.
func (m shardMachine) Save() ([]byte, error) { return m.shard.Snapshot(), nil }

// Restore implements replica.Machine.
func (m shardMachine) Restore(b []byte) error { return m.shard.Restore(b) }

// Settle implements replica.Machine.
func (shardMachine) Settle() error { return nil }

// Close implements replica.Machine.
func (m shardMachine) Close() {}
