package test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Topics are created, altered and deleted by way of every node while masters die:
// what was acknowledged holds, on every node, and nothing is half done.
func TestTopicsChangeWhileMastersDie(t *testing.T) {
	c := newCluster(t, 3)
	const workers, rounds = 3, 2
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var mu sync.Mutex
	exists := map[string]string{} // topic → retention.ms, or "gone"; unknown outcomes are not in it
	fate := func(name, f string) { mu.Lock(); defer mu.Unlock(); exists[name] = f }
	forget := func(name string) { mu.Lock(); defer mu.Unlock(); delete(exists, name) }
	var wg sync.WaitGroup
	var done, failed int
	causes := map[string]int{}
	for w := range workers {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("w%d-%d", w, i)
				adm, end := c.admin(0)
				err := func() error {
					defer end()
					step, cancel := context.WithTimeout(context.Background(), 20*time.Second)
					defer cancel()
					r, err := adm.CreateTopic(step, 1, 3, nil, name)
					if err = cmp.Or(err, r.Err); err != nil {
						return fmt.Errorf("create: %w", err)
					}
					fate(name, "")
					retention := fmt.Sprint(1000000 + rand.IntN(1000000))
					forget(name)
					alter, err := adm.AlterTopicConfigs(step, []kadm.AlterConfig{{Name: "retention.ms", Value: &retention}}, name)
					if err == nil && len(alter) == 1 {
						err = alter[0].Err
					}
					if err != nil {
						return fmt.Errorf("alter: %w", err)
					}
					fate(name, retention)
					if i%2 == 1 {
						return nil
					}
					forget(name)
					del, err := adm.DeleteTopic(step, name)
					if err = cmp.Or(err, del.Err); err != nil {
						return fmt.Errorf("delete: %w", err)
					}
					fate(name, "gone")
					return nil
				}()
				mu.Lock()
				if done++; err != nil {
					failed++
					causes[err.Error()]++
				}
				mu.Unlock()
				if err != nil {
					time.Sleep(50 * time.Millisecond)
				}
			}
		})
	}
	for range rounds {
		time.Sleep(700 * time.Millisecond)
		id := c.controller()
		c.node(id).kill()
		time.Sleep(1500 * time.Millisecond)
		c.start(id)
	}
	stop()
	wg.Wait()
	t.Logf("%d topics, %d not to the end: %v", done, failed, causes)
	if done-failed < failed {
		t.Errorf("%d of %d topics did not come to the end", failed, done)
	}
	for _, id := range c.order {
		eventually(t, 20*time.Second, func() error { return c.agree(id, exists) })
	}
	// And once more from the disks.
	for _, id := range c.order {
		c.node(id).kill()
	}
	c.start(c.order...)
	for _, id := range c.order {
		eventually(t, 20*time.Second, func() error { return c.agree(id, exists) })
	}
}

// agree compares what a node says of topics with what was acknowledged.
func (c *cluster) agree(id int, want map[string]string) error {
	adm, done := c.admin(id)
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	there, err := adm.ListTopics(ctx)
	if err != nil {
		return err
	}
	var names []string
	for name, retention := range want {
		switch has := there.Has(name) && !errors.Is(there[name].Err, kerr.UnknownTopicOrPartition); {
		case has && retention == "gone":
			return fmt.Errorf("node %d: topic %s was deleted and is there", id, name)
		case !has && retention != "gone":
			return fmt.Errorf("node %d: topic %s was created and is not there", id, name)
		case has:
			names = append(names, name)
			if p := there[name].Partitions[0]; p.Leader < 0 {
				return fmt.Errorf("node %d: topic %s has no leader", id, name)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	configs, err := adm.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return err
	}
	for _, r := range configs {
		for _, kv := range r.Configs {
			if kv.Key == "retention.ms" && want[r.Name] != "" && kv.MaybeValue() != want[r.Name] {
				return fmt.Errorf("node %d: topic %s has retention.ms=%s, acknowledged was %s", id, r.Name, kv.MaybeValue(), want[r.Name])
			}
		}
	}
	return nil
}
