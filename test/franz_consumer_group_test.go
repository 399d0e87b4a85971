package test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
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

// nextGen starts a member of the consumer protocol.
func (n *node) nextGen(t *testing.T, name, group string, r *reading, opts ...kgo.Opt) (stop func(), cl *kgo.Client) {
	t.Helper()
	return n.reader(t, name, group, r, append([]kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}, opts...)...)
}

// classic starts a member of the classic protocol, cooperative.
func (n *node) classic(t *testing.T, name, group string, r *reading) (stop func()) {
	t.Helper()
	stop, _ = n.reader(t, name, group, r, kgo.ConsumeTopics("t"), kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.HeartbeatInterval(200*time.Millisecond))
	return stop
}

// reader starts a member that commits what it reads. stop leaves the group in order.
func (n *node) reader(t *testing.T, name, group string, r *reading, opts ...kgo.Opt) (stop func(), cl *kgo.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(n.kafka), kgo.ConsumerGroup(group),
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

// quick are settings with which groups notice things soon.
var quick = []string{"--group-consumer-heartbeat-interval=300ms", "--group-consumer-session-timeout=4s"}

// line is a network that can be cut.
type line struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (l *line) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut && err == nil {
		c.Close()
		return nil, errors.New("the line is cut")
	}
	l.conns = append(l.conns, c)
	return c, err
}

func (l *line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for _, c := range l.conns {
		if c != nil {
			c.Close()
		}
	}
}

func TestAConsumerThatFallsSilentIsReplaced(t *testing.T) {
	const partitions, records = 6, 60
	n := newNode(t, quick...)
	n.createTopic("t", partitions)
	r := newReading()
	var wire line
	n.nextGen(t, "one", "g", r, kgo.ConsumeTopics("t"))
	n.nextGen(t, "two", "g", r, kgo.ConsumeTopics("t"))
	stop, dead := n.nextGen(t, "three", "g", newReading(), kgo.ConsumeTopics("t"), kgo.Dialer(wire.dial))
	n.settled(t, "g", 3)
	id, _ := dead.GroupMetadata()
	wire.Cut()
	g := n.settled(t, "g", 2)
	total := 0
	for _, m := range g.Members {
		if m.MemberID == id {
			t.Errorf("%s is still there", id)
		}
		for _, tp := range m.Assignment.TopicPartitions {
			total += len(tp.Partitions)
		}
	}
	if total != partitions {
		t.Errorf("%d partitions are assigned, want %d", total, partitions)
	}
	n.mustProduce("t", numbered(0, records, partitions))
	r.await(t, records)
	r.once(t)
	stop()
}

func TestAGroupSurvivesItsCoordinator(t *testing.T) {
	const partitions, records = 4, 80
	n := newNode(t, quick...)
	n.createTopic("t", partitions)
	r := newReading()
	_, one := n.nextGen(t, "one", "g", r, kgo.ConsumeTopics("t"))
	n.nextGen(t, "two", "g", r, kgo.ConsumeTopics("t"))
	before := n.settled(t, "g", 2)
	n.mustProduce("t", numbered(0, records, partitions))
	r.await(t, records)
	n.kill()
	n.start()
	n.mustProduce("t", numbered(records, records, partitions))
	r.await(t, 2*records)
	after := n.settled(t, "g", 2)
	if after.Epoch != before.Epoch {
		t.Errorf("the group's epoch went from %d to %d, want no rebalance", before.Epoch, after.Epoch)
	}
	if _, epoch := one.GroupMetadata(); epoch != after.Epoch {
		t.Errorf("a member is at epoch %d, the group at %d", epoch, after.Epoch)
	}
}

func TestAConsumerReadsTopicsByPattern(t *testing.T) {
	n := newNode(t, quick...)
	n.createTopic("logs-a", 2)
	n.createTopic("other", 2)
	r := newReading()
	n.nextGen(t, "one", "g", r, kgo.ConsumeTopics("^logs-.*"), kgo.ConsumeRegex(), kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(500*time.Millisecond))
	g := n.settled(t, "g", 1)
	if re := g.Members[0].SubscribedTopicRegex; re == nil {
		t.Errorf("the member has no pattern: %+v", g.Members[0])
	}
	n.createTopic("logs-b", 3)
	eventually(t, 30*time.Second, func() error {
		g := n.settled(t, "g", 1)
		topics := map[string]int{}
		for _, tp := range g.Members[0].Assignment.TopicPartitions {
			topics[tp.Topic] = len(tp.Partitions)
		}
		if len(topics) != 2 || topics["logs-a"] != 2 || topics["logs-b"] != 3 {
			return fmt.Errorf("it reads %v", topics)
		}
		return nil
	})
	n.mustProduce("logs-b", numbered(0, 30, 3))
	r.await(t, 30)
}

func TestAStaticConsumerComesBackToItsPartitions(t *testing.T) {
	n := newNode(t, append(quick, "--group-consumer-session-timeout=30s")...)
	n.createTopic("t", 4)
	r := newReading()
	static := []kgo.Opt{kgo.ConsumeTopics("t"), kgo.InstanceID("one")}
	stop, _ := n.nextGen(t, "one", "g", r, static...)
	n.nextGen(t, "two", "g", r, kgo.ConsumeTopics("t"))
	before := n.settled(t, "g", 2)
	stop() // a static member says that it comes back
	n.nextGen(t, "one again", "g", r, static...)
	after := n.settled(t, "g", 2)
	if after.Epoch != before.Epoch {
		t.Errorf("the epoch went from %d to %d, want no rebalance", before.Epoch, after.Epoch)
	}
	had := func(g kmsg.ConsumerGroupDescribeResponseGroup) (id string, ps []int32) {
		for _, m := range g.Members {
			if m.InstanceID != nil {
				return m.MemberID, m.Assignment.TopicPartitions[0].Partitions
			}
		}
		return "", nil
	}
	idBefore, was := had(before)
	idAfter, is := had(after)
	if idBefore == idAfter || len(was) != 2 || !slices.Equal(was, is) {
		t.Errorf("%s had %v, %s has %v", idBefore, was, idAfter, is)
	}
	n.mustProduce("t", numbered(0, 40, 4))
	r.await(t, 40)
}

func TestBothProtocolsReadOneTopic(t *testing.T) {
	const partitions, records = 4, 80
	n := newNode(t, quick...)
	n.createTopic("t", partitions)
	r, old := newReading(), newReading()
	n.nextGen(t, "one", "new", r, kgo.ConsumeTopics("t"))
	n.nextGen(t, "two", "new", r, kgo.ConsumeTopics("t"))
	n.classic(t, "three", "old", old)
	n.classic(t, "four", "old", old)
	n.settled(t, "new", 2)
	stable(t, n, "old", 2)
	n.mustProduce("t", numbered(0, records, partitions))
	r.await(t, records)
	old.await(t, records)
	listed, err := n.admin().ListGroupsByType(timeout(t, 10*time.Second), []string{"consumer"})
	if err != nil || len(listed) != 1 || listed["new"].State != "Stable" {
		t.Errorf("groups of the type consumer: %+v, %v", listed, err)
	}
	out, err := exec.Command(tubeBinary, "group", "describe", "new", "--kafka", n.kafka).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "uniform") || strings.Count(string(out), "kgo") != 2 {
		t.Errorf("tube group describe: %v\n%s", err, out)
	}
}

// A group's clients are replaced one by one, there and back; nothing is lost.
func TestAGroupChangesItsProtocolWhileItReads(t *testing.T) {
	const partitions, records = 6, 120
	n := newNode(t, quick...)
	n.createTopic("t", partitions)
	r := newReading()
	sent := 0
	send := func() {
		t.Helper()
		n.mustProduce("t", numbered(sent, records, partitions))
		sent += records
		r.await(t, sent)
	}
	oldOne, oldTwo := n.classic(t, "old one", "g", r), n.classic(t, "old two", "g", r)
	stable(t, n, "g", 2)
	send()
	newOne, _ := n.nextGen(t, "new one", "g", r, kgo.ConsumeTopics("t"))
	n.settled(t, "g", 3)
	send()
	oldOne()
	newTwo, _ := n.nextGen(t, "new two", "g", r, kgo.ConsumeTopics("t"))
	oldTwo()
	n.settled(t, "g", 2)
	send()
	// And back.
	backOne := n.classic(t, "back one", "g", r)
	n.settled(t, "g", 3)
	send()
	newOne()
	newTwo()
	n.classic(t, "back two", "g", r)
	stable(t, n, "g", 2)
	send()
	backOne()
	stable(t, n, "g", 1)
	send()
}
