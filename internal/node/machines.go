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

// proposer lets a role propose to a group of this node.
type proposer struct{ group *replica.Group }

// Propose implements master.Proposer and master.GroupProposer.
func (p proposer) Propose(ctx context.Context, data []byte) (any, error) {
	return p.group.ProposeWait(ctx, data)
}

// metaMachine feeds the meta machine and tells who waits for news of it.
type metaMachine struct {
	// mu guards machine; image is what it returned last, for readers without a lock.
	mu      sync.RWMutex
	machine *meta.Machine
	image   atomic.Pointer[meta.Image]
	newer   chan struct{} // closed and replaced when there is something new; guarded by mu
	serving atomic.Bool   // this node's master is active
	node    record.NodeID
	wake    func() // somebody has to carry out what changed
	settle  func(record.Index) error
}

func newMetaMachine(node record.NodeID) *metaMachine {
	m := &metaMachine{machine: meta.New(), newer: make(chan struct{}), node: node, wake: func() {}, settle: func(record.Index) error { return nil }}
	m.image.Store(m.machine.Image())
	return m
}

// Image is the newest metadata that this node has, with who is active.
func (m *metaMachine) Image() *meta.Image { return m.image.Load() }

func (m *metaMachine) publish() {
	im := *m.machine.Image()
	im.Controller = -1
	if m.serving.Load() {
		im.Controller = m.node
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
	return r
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
	m.serving.Store(s.Leading)
	m.publish()
	m.mu.Unlock()
	m.wake()
}

// Save implements replica.Machine.
func (m *metaMachine) Save() []byte { return m.machine.Snapshot() }

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
	return nil
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
type shardMachine struct{ shard *master.GroupShard }

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
}

// Save implements replica.Machine.
func (m shardMachine) Save() []byte { return m.shard.Snapshot() }

// Restore implements replica.Machine.
func (m shardMachine) Restore(b []byte) error { return m.shard.Restore(b) }

// Settle implements replica.Machine.
func (shardMachine) Settle() error { return nil }

// Close implements replica.Machine.
func (m shardMachine) Close() {}
