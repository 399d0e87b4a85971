package replica

import (
	"sync"
	"testing"
	"testing/synctest"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// stopClocks stops raft's clock for a group on all nodes.
func (c *crew) stopClocks(tm *team) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, h := range c.hosts {
		h.mu.Lock()
		delete(h.ticking, tm.groups[n])
		h.mu.Unlock()
	}
}

// A leader whose own disk is the slowest commits before it may apply. Its followers
// must not be ahead of it, and hear of the commit as soon as it has applied.
func TestNoFollowerIsAheadOfItsLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, nil)
		var mu sync.Mutex
		acked, told := map[uint64]uint64{}, map[uint64]int{} // by replica: index, and answers since
		c.watch(func(m Message) {
			mu.Lock()
			defer mu.Unlock()
			if from := m.raft.GetFrom(); m.raft.GetType() == raftpb.MsgAppResp && !m.raft.GetReject() {
				if m.raft.GetIndex() == acked[from] {
					told[from]++
				} else {
					acked[from], told[from] = m.raft.GetIndex(), 1
				}
			}
		})
		tm := c.found(7, 1, 2, 3)
		c.write(tm, 10)
		c.agree(tm, 10)
		lead := c.leader(tm)
		c.mu.Lock()
		g, m, disk := tm.groups[lead], tm.machines[lead], c.disks[lead]
		c.mu.Unlock()
		c.stopClocks(tm)
		stuck := make(chan struct{})
		disk.SetHook(func(op vfs.Op, done bool) {
			if !done {
				<-stuck
			}
		})
		before, _ := m.state()
		mu.Lock()
		last := uint64(0)
		for _, index := range acked {
			last = max(last, index)
		}
		mu.Unlock()
		done := make(chan error, 1)
		g.Propose(Proposal{Data: []byte("slow"), Done: func(_ any, err error) { done <- err }})
		// Each follower answers twice: when it has the entry, and when it is told of the
		// commit. The leader tells that with or without the index.
		c.eventually("both followers are told", func() bool {
			mu.Lock()
			defer mu.Unlock()
			n := 0
			for from, index := range acked {
				if from != uint64(lead) && index > last && told[from] >= 2 {
					n++
				}
			}
			return n == 2
		})
		for n := record.NodeID(1); n <= 3; n++ {
			if count, _ := tm.machines[n].state(); count > before {
				t.Errorf("node %d has applied %d entries, its leader %d", n, count, before)
			}
		}
		disk.SetHook(nil)
		close(stuck)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		c.agree(tm, before+1) // by no clock
	})
}
