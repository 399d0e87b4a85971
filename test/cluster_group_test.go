package test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// readers is a group of members that commit what they have read, by hand.
type readers struct {
	c      *cluster
	topic  string
	group  string
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	delivered map[place]int   // guarded by mu
	committed map[int32]int64 // acknowledged; guarded by mu
	count     int             // commits that were acknowledged; guarded by mu
	errs      []error         // of commits; guarded by mu
}

func (c *cluster) startGroup(topic, group string, members int, opts ...kgo.Opt) *readers {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	g := &readers{c: c, topic: topic, group: group, cancel: cancel, delivered: map[place]int{}, committed: map[int32]int64{}}
	c.t.Cleanup(g.stop)
	for range members {
		cl, err := kgo.NewClient(append([]kgo.Opt{
			kgo.SeedBrokers(c.all()...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.MetadataMinAge(100 * time.Millisecond),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(10 * time.Second), kgo.HeartbeatInterval(300 * time.Millisecond),
			kgo.BlockRebalanceOnPoll(), kgo.FetchMaxWait(300 * time.Millisecond), kgo.RequestTimeoutOverhead(time.Second), kgo.DialTimeout(time.Second), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		}, opts...)...)
		if err != nil {
			c.t.Fatal(err)
		}
		g.wg.Go(func() {
			defer cl.CloseAllowingRebalance()
			for ctx.Err() == nil {
				g.once(ctx, cl)
				cl.AllowRebalance()
			}
		})
	}
	return g
}

func (g *readers) once(ctx context.Context, cl *kgo.Client) {
	fetches := cl.PollRecords(ctx, 2000)
	next := map[int32]int64{}
	g.mu.Lock()
	fetches.EachRecord(func(r *kgo.Record) {
		g.delivered[place{r.Partition, r.Offset}]++
		next[r.Partition] = r.Offset + 1
	})
	g.mu.Unlock()
	if len(next) == 0 || ctx.Err() != nil {
		return
	}
	err := cl.CommitRecords(ctx, fetches.Records()...)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.errs = append(g.errs, err) // unknown: it may be stored or not
		return
	}
	g.count++
	for p, o := range next {
		g.committed[p] = max(g.committed[p], o)
	}
}

func (g *readers) commits() int { g.mu.Lock(); defer g.mu.Unlock(); return g.count }

func (g *readers) committedMore(than int) error {
	if n := g.commits(); n < than {
		return fmt.Errorf("%d commits, waiting for %d", n, than)
	}
	return nil
}

func (g *readers) waitFor(t *testing.T, records int) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.delivered) < records {
			return fmt.Errorf("the group has got %d of %d records; errors of commits: %v", len(g.delivered), records, g.errs)
		}
		return nil
	})
}

func (g *readers) stop() { g.cancel(); g.wg.Wait() }

// check ends the group: no commit that was acknowledged is forgotten, and no
// offset is skipped.
func (g *readers) check(t *testing.T) {
	t.Helper()
	g.stop()
	adm := kadm.NewClient(g.c.client())
	stored, err := adm.FetchOffsets(timeout(t, 30*time.Second), g.group)
	if err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for p, want := range g.committed {
		if got, ok := stored.Lookup(g.topic, p); !ok || got.At < want {
			t.Errorf("partition %d: the group is at %d (there: %v), %d was committed", p, got.At, ok, want)
		}
		for o := range want {
			if g.delivered[place{p, o}] == 0 {
				t.Errorf("partition %d: offset %d was skipped", p, o)
				break
			}
		}
	}
	again := 0
	for _, n := range g.delivered {
		again += n - 1
	}
	t.Logf("group %s: %d records, %d delivered again, %d commits, %d of them failed", g.group, len(g.delivered), again, g.count+len(g.errs), len(g.errs))
}

// coordinator is the node that keeps a group.
func (c *cluster) coordinator(group string) int {
	c.t.Helper()
	id := -1
	eventually(c.t, 20*time.Second, func() error {
		adm, done := c.admin(c.running()[0])
		defer done()
		r := adm.FindGroupCoordinators(timeout(c.t, 5*time.Second), group)
		if err := r.Error(); err != nil {
			return err
		}
		id = int(r[group].NodeID)
		if id < 1 || !c.nodes[id].up() {
			return fmt.Errorf("node %d is named, which does not run", id)
		}
		return nil
	})
	return id
}

// The coordinator of a group dies, again and again: offsets and the generation
// survive, members do not have to come together anew.
func TestGroupsGoOnWhenTheirCoordinatorDies(t *testing.T) {
	c := newCluster(t, 3)
	c.createTopic("t", 4)
	l := c.startLoad("t", 4, lightLoad)
	g := c.startGroup("t", "g", 3)
	g.waitFor(t, 300)
	kills := 3
	if testing.Short() {
		kills = 1
	}
	var took []time.Duration
	for range kills {
		// Once all have the same generation, a kill alone does not change it.
		before := c.stableGroup("g", 3)
		id := c.coordinator("g")
		at := time.Now()
		c.node(id).kill()
		n := g.commits()
		eventually(t, 30*time.Second, func() error { return g.committedMore(n + 3) })
		took = append(took, time.Since(at))
		after := c.stableGroup("g", 3)
		if fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("members were %v, after the kill %v", before, after)
		}
		c.start(id)
		c.waitLed("t", 4)
	}
	l.finish()
	g.waitFor(t, l.book.count())
	g.check(t)
	t.Logf("commits again after %v", rounded(took))
}

// stableGroup waits for a stable group of so many members and returns who has what.
func (c *cluster) stableGroup(group string, members int) map[string]string {
	c.t.Helper()
	var out map[string]string
	eventually(c.t, 30*time.Second, func() error {
		adm, done := c.admin(c.running()[0])
		defer done()
		d, err := adm.DescribeGroups(timeout(c.t, 5*time.Second), group)
		if err = errors.Join(err, d.Error()); err != nil {
			return err
		}
		x := d[group]
		if x.State != "Stable" || len(x.Members) != members {
			return fmt.Errorf("group %s is %s with %d members", group, x.State, len(x.Members))
		}
		out = map[string]string{}
		for _, m := range x.Members {
			a, _ := m.Assigned.AsConsumer()
			out[m.MemberID] = fmt.Sprint(a.Topics)
		}
		return nil
	})
	return out
}
