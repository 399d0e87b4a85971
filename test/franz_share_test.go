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

// sharing is one member of a share group, with all that it was given.
type sharing struct {
	name string
	cl   *kgo.Client
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu  sync.Mutex
	got map[place][]int32 // delivery counts
}

// share starts a member of a share group on topic t that does with each record what
// verdict says; 0 says nothing: it is accepted with the next poll.
func (n *node) share(t *testing.T, name, group string, verdict func(*kgo.Record) kgo.AckStatus, opts ...kgo.Opt) *sharing {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(n.kafka), kgo.ClientID(name), kgo.ShareGroup(group), kgo.ConsumeTopics("t"), kgo.FetchMaxWait(500 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &sharing{name: name, cl: cl, stop: cancel, got: map[place][]int32{}}
	s.wg.Go(func() {
		for ctx.Err() == nil {
			cl.PollRecords(ctx, 50).EachRecord(func(r *kgo.Record) {
				s.mu.Lock()
				at := place{r.Partition, r.Offset}
				s.got[at] = append(s.got[at], r.DeliveryCount())
				s.mu.Unlock()
				if v := verdict(r); v != 0 {
					r.Ack(v)
				}
			})
		}
	})
	t.Cleanup(func() { s.leave() })
	return s
}

// leave stops the member in order.
func (s *sharing) leave() {
	s.stop()
	s.wg.Wait()
	s.cl.Close()
}

func (s *sharing) counts(at place) []int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got[at]
}

func (s *sharing) count() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.got) }

func accept(*kgo.Record) kgo.AckStatus { return kgo.AckAccept }

// groupSettings changes a group's settings as Kafka's tools do.
func (n *node) groupSettings(t *testing.T, group string, settings ...string) {
	t.Helper()
	cl := n.client()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for i := 0; i < len(settings); i += 2 {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value, c.Op = settings[i], &settings[i+1], kmsg.IncrementalAlterConfigOpSet
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(timeout(t, 10*time.Second), cl)
	if err != nil {
		t.Fatal(err)
	}
	if x := resp.Resources[0]; x.ErrorCode != 0 {
		t.Fatalf("settings of group %s: %d %s", group, x.ErrorCode, *x.ErrorMessage)
	}
}

// send produces so many records to topic t.
func (n *node) send(t *testing.T, records int) {
	t.Helper()
	cl := n.client()
	var all []*kgo.Record
	for i := range records {
		all = append(all, &kgo.Record{Topic: "t", Value: fmt.Appendf(nil, "%d", i)})
	}
	if err := cl.ProduceSync(timeout(t, 20*time.Second), all...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// Two members of a share group get what is there once, each something of it, also in a
// topic of one partition.
func TestShareMembersGetDisjointRecords(t *testing.T) {
	for _, partitions := range []int32{1, 4} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			n := newNode(t)
			n.start()
			n.createTopic("t", partitions)
			n.groupSettings(t, "g", "share.auto.offset.reset", "earliest")
			const records = 2000
			n.send(t, records)
			a, b := n.share(t, "a", "g", accept, kgo.ShareMaxRecords(100)), n.share(t, "b", "g", accept, kgo.ShareMaxRecords(100))
			eventually(t, 30*time.Second, func() error {
				if k := a.count() + b.count(); k < records {
					return fmt.Errorf("%d of %d records came", k, records)
				}
				return nil
			})
			a.leave()
			b.leave()
			for at, counts := range a.got {
				if len(counts) != 1 || len(b.got[at]) != 0 || counts[0] != 1 {
					t.Fatalf("%v came to a with counts %v, to b %v", at, counts, b.got[at])
				}
			}
			if len(a.got)+len(b.got) != records {
				t.Errorf("%d and %d records, want %d together", len(a.got), len(b.got), records)
			}
		})
	}
}
