package test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// reading is what members of a group have read so far.
type reading struct {
	mu  sync.Mutex
	got map[place]int
	by  map[string]int
}

func newReading() *reading { return &reading{got: map[place]int{}, by: map[string]int{}} }

func (r *reading) count() int { r.mu.Lock(); defer r.mu.Unlock(); return len(r.got) }

// await waits until so many different records have been read.
func (r *reading) await(t *testing.T, want int) {
	t.Helper()
	eventually(t, 60*time.Second, func() error {
		if n := r.count(); n != want {
			return fmt.Errorf("%d records read, want %d", n, want)
		}
		return nil
	})
}

// once reports any record that was read more than once.
func (r *reading) once(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, n := range r.got {
		if n != 1 {
			t.Errorf("%v was read %d times", at, n)
		}
	}
}

// nextGen starts a member of the consumer protocol. stop leaves the group in order.
func (n *node) nextGen(t *testing.T, name, group string, r *reading, opts ...kgo.Opt) (stop func(), cl *kgo.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(n.kafka), kgo.ConsumerGroup(group), kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			fetches := cl.PollRecords(ctx, 20)
			r.mu.Lock()
			fetches.EachRecord(func(rec *kgo.Record) {
				r.got[place{rec.Partition, rec.Offset}]++
				r.by[name]++
			})
			r.mu.Unlock()
			if fetches.NumRecords() > 0 {
				if err := cl.CommitRecords(context.Background(), fetches.Records()...); err != nil && ctx.Err() == nil {
					t.Errorf("%s: commit: %v", name, err)
				}
			}
			cl.AllowRebalance()
		}
	})
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); wg.Wait(); cl.CloseAllowingRebalance() }) }
	t.Cleanup(stop)
	return stop, cl
}

// describeConsumers asks for one group of the consumer protocol.
func (n *node) describeConsumers(t *testing.T, group string) (kmsg.ConsumerGroupDescribeResponseGroup, error) {
	t.Helper()
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(timeout(t, 10*time.Second), n.client())
	if err != nil {
		return kmsg.ConsumerGroupDescribeResponseGroup{}, err
	}
	return resp.Groups[0], nil
}

// settled waits until the group has so many members that all have their share.
func (n *node) settled(t *testing.T, group string, members int) kmsg.ConsumerGroupDescribeResponseGroup {
	t.Helper()
	var g kmsg.ConsumerGroupDescribeResponseGroup
	eventually(t, 60*time.Second, func() (err error) {
		if g, err = n.describeConsumers(t, group); err != nil {
			return err
		}
		if g.State != "Stable" || len(g.Members) != members {
			return fmt.Errorf("group %s is %q with %d members, want Stable with %d", group, g.State, len(g.Members), members)
		}
		return nil
	})
	return g
}

func numbered(from, records, partitions int) (out []*kgo.Record) {
	for i := range records {
		out = append(out, &kgo.Record{Partition: int32(i % partitions), Value: fmt.Append(nil, from+i)})
	}
	return out
}

func TestConsumersShareATopicThatTheServerDealsOut(t *testing.T) {
	const partitions, records = 6, 300
	n := newNode(t)
	n.createTopic("t", partitions)
	r := newReading()
	_, first := n.nextGen(t, "one", "g", r, kgo.ConsumeTopics("t"))
	n.mustProduce("t", numbered(0, records, partitions))
	r.await(t, records)
	if _, epoch := first.GroupMetadata(); epoch < 1 {
		t.Errorf("epoch %d", epoch)
	}
	stop, _ := n.nextGen(t, "two", "g", r, kgo.ConsumeTopics("t"))
	n.nextGen(t, "three", "g", r, kgo.ConsumeTopics("t"))
	g := n.settled(t, "g", 3)
	for _, m := range g.Members {
		if len(m.Assignment.TopicPartitions) != 1 || len(m.Assignment.TopicPartitions[0].Partitions) != partitions/3 {
			t.Errorf("member %s has %+v", m.MemberID, m.Assignment)
		}
	}
	n.mustProduce("t", numbered(records, records, partitions))
	r.await(t, 2*records)
	r.mu.Lock()
	for _, name := range []string{"one", "two", "three"} {
		if r.by[name] == 0 {
			t.Errorf("%s has read nothing: %v", name, r.by)
		}
	}
	r.mu.Unlock()
	stop()
	n.settled(t, "g", 2)
	n.mustProduce("t", numbered(2*records, records, partitions))
	r.await(t, 3*records)
	r.once(t)
}
