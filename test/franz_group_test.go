package test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var balancers = map[string]kgo.GroupBalancer{
	"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(), "sticky": kgo.StickyBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

// Members share the partitions, one leaves, and every record is read by the
// group once: commits are made before partitions change hands.
func TestAGroupSharesATopicWithEveryBalancer(t *testing.T) {
	n := newNode(t)
	for name, balancer := range balancers {
		t.Run(name, func(t *testing.T) {
			const partitions, records = 6, 600
			n.use(t)
			topic := "t-" + name
			n.createTopic(topic, partitions)
			var mu sync.Mutex
			got := map[place]int{}
			by := map[int]int{}
			count := func() int { mu.Lock(); defer mu.Unlock(); return len(got) }
			member := func(id int) (stop func()) {
				ctx, cancel := context.WithCancel(context.Background())
				cl, err := kgo.NewClient(kgo.SeedBrokers(n.kafka), kgo.ConsumerGroup("g-"+name), kgo.ConsumeTopics(topic), kgo.Balancers(balancer),
					kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.HeartbeatInterval(200*time.Millisecond))
				if err != nil {
					t.Fatal(err)
				}
				var wg sync.WaitGroup
				wg.Go(func() {
					for ctx.Err() == nil {
						fetches := cl.PollRecords(ctx, 20)
						mu.Lock()
						fetches.EachRecord(func(r *kgo.Record) {
							got[place{r.Partition, r.Offset}]++
							by[id]++
						})
						mu.Unlock()
						if fetches.NumRecords() > 0 {
							if err := cl.CommitRecords(context.Background(), fetches.Records()...); err != nil {
								t.Errorf("commit: %v", err)
							}
						}
						cl.AllowRebalance()
					}
				})
				return func() { cancel(); wg.Wait(); cl.CloseAllowingRebalance() }
			}
			send := func(from int) {
				t.Helper()
				var out []*kgo.Record
				for i := range records {
					out = append(out, &kgo.Record{Partition: int32(i % partitions), Value: fmt.Append(nil, from+i)})
				}
				n.mustProduce(topic, out)
			}
			wait := func(want int) {
				t.Helper()
				eventually(t, 30*time.Second, func() error {
					if c := count(); c != want {
						return fmt.Errorf("%d records read, want %d", c, want)
					}
					return nil
				})
			}
			stopFirst, stopSecond := member(1), member(2)
			stable(t, n, "g-"+name, 2)
			send(0)
			wait(records)
			mu.Lock()
			if by[1] == 0 || by[2] == 0 {
				t.Errorf("the members read %v, want both to have a share", by)
			}
			mu.Unlock()
			stopFirst()
			stable(t, n, "g-"+name, 1)
			send(records)
			wait(2 * records)
			stopSecond()
			for at, times := range got {
				if times != 1 {
					t.Fatalf("%v was read %d times", at, times)
				}
			}
		})
	}
}

// stable waits until the group has so many members that all have their share.
func stable(t *testing.T, n *node, group string, members int) {
	t.Helper()
	adm := n.admin()
	eventually(t, 30*time.Second, func() error {
		described, err := adm.DescribeGroups(timeout(t, 10*time.Second), group)
		if err = errors.Join(err, described.Error()); err != nil {
			return err
		}
		if g := described[group]; g.State != "Stable" || len(g.Members) != members {
			return fmt.Errorf("group %s is %s with %d members, want Stable with %d", group, g.State, len(g.Members), members)
		}
		return nil
	})
}

func TestAStaticMemberComesBackWithoutARebalance(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 2)
	join := func() *kgo.Client {
		cl, err := kgo.NewClient(kgo.SeedBrokers(n.kafka), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.InstanceID("one"),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		return cl
	}
	generation := func(cl *kgo.Client) int32 {
		t.Helper()
		var gen int32
		eventually(t, 30*time.Second, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			cl.PollFetches(ctx)
			if _, gen = cl.GroupMetadata(); gen < 1 {
				return errors.New("no generation yet")
			}
			return nil
		})
		return gen
	}
	first := join()
	before := generation(first)
	first.Close() // a static member does not leave
	second := join()
	defer second.Close()
	if after := generation(second); after != before {
		t.Errorf("the generation went from %d to %d, want no rebalance", before, after)
	}
}

func TestGroupsAreListedDescribedResetAndDeleted(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 1)
	n.mustProduce("t", values(0, 10))
	adm, ctx := n.admin(), timeout(t, time.Minute)
	cl := n.client(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	if fetches := cl.PollRecords(ctx, 10); fetches.Err() != nil || fetches.NumRecords() != 10 {
		t.Fatalf("%d records, %v, want 10", fetches.NumRecords(), fetches.Err())
	}
	if err := cl.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	groups, err := adm.ListGroups(ctx)
	if err != nil || groups["g"].ProtocolType != "consumer" {
		t.Errorf("groups are %+v, %v, want g", groups, err)
	}
	lags, err := adm.Lag(ctx, "g")
	if err = errors.Join(err, lags.Error()); err != nil || lags["g"].Lag.Total() != 0 {
		t.Errorf("the lag is %d, %v, want 0", lags["g"].Lag.Total(), err)
	}
	deleted, err := adm.DeleteGroup(ctx, "g")
	if err = errors.Join(err, deleted.Err); !errors.Is(err, kerr.NonEmptyGroup) {
		t.Errorf("deleting a group with members: %v, want NON_EMPTY_GROUP", err)
	}
	cl.Close()

	var reset kadm.Offsets
	reset.Add(kadm.Offset{Topic: "t", Partition: 0, At: 3, LeaderEpoch: -1})
	eventually(t, 30*time.Second, func() error { return adm.CommitAllOffsets(ctx, "g", reset) })
	again := n.client(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit())
	fetches := again.PollRecords(ctx, 1)
	if r := fetches.Records(); len(r) != 1 || r[0].Offset != 3 {
		t.Fatalf("after the reset the group begins with %v, %v, want offset 3", r, fetches.Err())
	}
	again.Close()
	eventually(t, 30*time.Second, func() error {
		deleted, err := adm.DeleteGroup(ctx, "g")
		return errors.Join(err, deleted.Err)
	})
	offsets, err := adm.FetchOffsets(ctx, "g")
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) || len(offsets) != 0 {
		t.Errorf("a deleted group has offsets %v, %v", offsets, err)
	}
}

func TestAMemberThatDiesIsReplaced(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 2)
	opts := []kgo.Opt{kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	gate := newProxy(t, n.kafka)
	dying, err := kgo.NewClient(append(opts, kgo.SeedBrokers(gate.addr()), kgo.Dialer(gate.dial))...)
	if err != nil {
		t.Fatal(err)
	}
	defer dying.CloseAllowingRebalance()
	n.client(opts...)
	stable(t, n, "g", 2)
	gate.cut()
	stable(t, n, "g", 1)
}
