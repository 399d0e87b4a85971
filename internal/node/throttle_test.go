package node

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tube-mq/tube/internal/config"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// All copies together come in at the rate, and without one at once.
func TestCopiesShareTheThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var th throttle
		began := time.Now()
		take := func(rate int64) {
			var copies sync.WaitGroup
			for range 4 {
				copies.Go(func() {
					for range 25 {
						if err := th.wait(t.Context(), 1<<20, rate); err != nil {
							t.Error(err)
						}
					}
				})
			}
			copies.Wait()
		}
		take(0)
		if d := time.Since(began); d != 0 {
			t.Fatalf("without a limit 100 MiB took %v", d)
		}
		take(10 << 20)
		if d := time.Since(began).Round(time.Second); d != 10*time.Second {
			t.Fatalf("100 MiB at 10 MiB/s took %v", d)
		}
	})
}

// A copy that nobody gave a limit has the node's own, also when it is none of a move.
func TestEveryCopyHasALimit(t *testing.T) {
	n := &Node{cfg: &config.Config{CopyThrottle: 5}, meta: newMetaMachine(1)}
	now := time.Unix(1, 0)
	apply := func(c []byte) {
		t.Helper()
		if r := n.meta.machine.Apply(n.meta.machine.Image().Index+1, c); r.Err != nil {
			t.Fatal(r.Err)
		}
		n.meta.publish()
	}
	apply(meta.Bootstrap(now, "c"))
	for id := range record.NodeID(2) {
		apply(meta.RegisterNode(now, meta.Node{ID: id + 1, Incarnation: "i", Kafka: "k:1", Roles: []string{meta.RoleBroker}}))
	}
	apply(meta.CreateTopic(now, record.TopicID{1}, "t", [][]record.NodeID{{1}, {1}}, nil))
	apply(meta.Reassign(now, []meta.Move{{TopicPartition: record.TopicPartition{Topic: record.TopicID{1}, Partition: 1}, Nodes: []record.NodeID{2}}}, 7))
	for partition, want := range []int64{5, 7} {
		g := n.meta.Image().Topics[record.TopicID{1}].Partitions[partition].Group
		if got := n.copyRate(g); got != want {
			t.Errorf("partition %d is copied at %d B/s, want %d", partition, got, want)
		}
	}
}
