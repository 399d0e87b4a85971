package test

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// starve gives a node the processor for a part of the time only, until the returned
// function is called: what a quota, a crowded machine or a long garbage collection
// does.
func (n *node) starve(stopped, runs time.Duration) (feed func()) {
	n.t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			n.pause()
			select {
			case <-time.After(stopped):
			case <-done:
			}
			n.resume()
			select {
			case <-time.After(runs):
			case <-done:
				return
			}
		}
	})
	feed = sync.OnceFunc(func() { close(done); wg.Wait() })
	n.t.Cleanup(feed)
	return feed
}

// epochs are the leader epochs of a topic's partitions: each election makes one.
func (c *cluster) epochs(topic string, partitions int) []int32 {
	c.t.Helper()
	var out []int32
	eventually(c.t, 20*time.Second, func() error {
		out = make([]int32, partitions)
		for p := range out {
			for _, id := range c.order {
				d, err := c.metadata(id, topic)
				if err != nil {
					return err
				}
				if d.Partitions[int32(p)].Leader < 0 {
					return fmt.Errorf("partition %d has no leader", p)
				}
				out[p] = max(out[p], d.Partitions[int32(p)].LeaderEpoch)
			}
		}
		return nil
	})
	return out
}

// Nodes that get the processor in slices, with pauses shorter than an election waits, keep
// their leaders: elections would make it worse. First each in turn, whose followers have
// all of theirs, then all together. Writing goes on.
func TestStarvedNodesKeepTheirLeaders(t *testing.T) {
	const partitions, runs = 6, 150 * time.Millisecond
	c := newCluster(t, 3)
	c.createTopic("t", partitions)
	l := c.startLoad("t", partitions, lightLoad)
	l.flowing(200)
	before := c.epochs("t", partitions)
	for _, id := range c.order {
		feed := c.node(id).starve(450*time.Millisecond, runs)
		time.Sleep(4 * time.Second)
		feed()
		l.flowing(50)
	}
	var feeds []func()
	for i, id := range c.order {
		time.Sleep(time.Duration(i) * 100 * time.Millisecond) // not all at the same moments
		feeds = append(feeds, c.node(id).starve(300*time.Millisecond, runs))
	}
	time.Sleep(5 * time.Second)
	for _, feed := range feeds {
		feed()
	}
	l.flowing(200)
	after, elections := c.epochs("t", partitions), 0
	for p := range after {
		elections += int(after[p] - before[p])
	}
	t.Logf("%d elections of %d partitions", elections, partitions)
	// None, on a machine that has nothing else to do. If pauses counted as silence each node
	// would lose what it leads when its turn comes.
	if elections >= partitions {
		t.Errorf("%d elections of %d partitions: leaders flap", elections, partitions)
	}
	l.finish()
}
