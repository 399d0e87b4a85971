package test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// place0 is an offset of partition 0.
func place0(offset int64) place { return place{0, offset} }

// What is released comes again and counts, what is rejected goes to the dead letters, as
// does what was delivered as often as it may; what is accepted comes no more.
func TestShareVerdicts(t *testing.T) {
	n := newNode(t)
	n.start()
	n.createTopic("t", 1)
	n.groupSettings(t, "g", "share.auto.offset.reset", "earliest", "share.delivery.count.limit", "3")
	n.send(t, 4)
	a := n.share(t, "a", "g", func(r *kgo.Record) kgo.AckStatus {
		switch {
		case r.Offset == 1 && r.DeliveryCount() == 1, r.Offset == 2:
			return kgo.AckRelease // 1 once, 2 always
		case r.Offset == 3:
			return kgo.AckReject
		}
		return kgo.AckAccept
	})
	dead := map[string]bool{}
	cl := n.client(kgo.ConsumeTopics("g.dead-letter"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for ctx := timeout(t, 30*time.Second); len(dead) < 2; {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("dead letters %v", dead)
		}
		fetches.EachRecord(func(r *kgo.Record) { dead[string(r.Value)] = true })
	}
	if !dead["2"] || !dead["3"] {
		t.Errorf("dead letters %v, want those of 2 and 3", dead)
	}
	for offset, want := range []string{"[1]", "[1 2]", "[1 2 3]", "[1]"} {
		if got := fmt.Sprint(a.counts(place0(int64(offset)))); got != want {
			t.Errorf("offset %d came with counts %s, want %s", offset, got, want)
		}
	}
}

// A member that says nothing loses its records when the lock ends; one that dies, at once.
func TestShareRecordsOfALostMemberComeAgain(t *testing.T) {
	n := newNode(t)
	n.start()
	n.createTopic("t", 1)
	n.groupSettings(t, "g", "share.auto.offset.reset", "earliest", "share.record.lock.duration.ms", "4000")
	n.send(t, 3)
	t.Run("lock", func(t *testing.T) {
		holds := make(chan struct{})
		var once sync.Once
		defer once.Do(func() { close(holds) })
		first := n.share(t, "slow", "g", func(r *kgo.Record) kgo.AckStatus {
			<-holds // the handler hangs, the connection lives
			return kgo.AckRelease
		}, kgo.ShareMaxRecords(3))
		eventually(t, 20*time.Second, func() error {
			if first.count() == 0 {
				return fmt.Errorf("nothing came")
			}
			return nil
		})
		began := time.Now()
		second := n.share(t, "b", "g", accept)
		eventually(t, 30*time.Second, func() error {
			if k := second.count(); k < 3 {
				return fmt.Errorf("%d records came again", k)
			}
			return nil
		})
		if waited := time.Since(began); waited < time.Second {
			t.Errorf("they came again after %v, the lock is 4 s", waited)
		}
		once.Do(func() { close(holds) })
		first.leave()
		second.leave()
	})
	t.Run("crash", func(t *testing.T) {
		n.groupSettings(t, "g", "share.record.lock.duration.ms", "600000")
		n.send(t, 3)
		child := n.shareProcess(t, "g")
		child.kill()
		second := n.share(t, "c", "g", accept)
		eventually(t, 30*time.Second, func() error {
			if k := second.count(); k < 3 {
				return fmt.Errorf("%d records came again, the lock is ten minutes", k)
			}
			return nil
		})
	})
}

// child is a share consumer in a process of its own.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
}

// shareProcess starts a share consumer that holds three records and says nothing of them.
func (n *node) shareProcess(t *testing.T, group string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestShareChild$")
	cmd.Env = append(os.Environ(), "TEST_SHARE_CHILD="+n.kafka+" "+group)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t, cmd}
	t.Cleanup(c.kill)
	held := 0
	for lines := bufio.NewScanner(out); held < 3 && lines.Scan(); {
		if lines.Text() == "held" {
			held++
		}
	}
	if held < 3 {
		t.Fatal("the consumer's process got nothing")
	}
	return c
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// TestShareChild is the consumer of shareProcess.
func TestShareChild(t *testing.T) {
	addr, group, ok := strings.Cut(os.Getenv("TEST_SHARE_CHILD"), " ")
	if !ok {
		t.Skip("only as a process of another test")
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ShareGroup(group), kgo.ConsumeTopics("t"))
	if err != nil {
		t.Fatal(err)
	}
	for {
		cl.PollRecords(context.Background(), 3).EachRecord(func(*kgo.Record) { fmt.Println("held") })
		if len(os.Args) == 0 {
			return
		}
		select {} // until it is killed
	}
}

// What was accepted before the node was killed does not come again, everything else does.
func TestShareGroupsSurviveKill(t *testing.T) {
	n := newNode(t)
	n.start()
	n.createTopic("t", 2)
	n.groupSettings(t, "g", "share.auto.offset.reset", "earliest", "share.record.lock.duration.ms", "5000")
	const records = 20_000
	n.send(t, records)
	l := newShareLedger(t)
	for _, name := range []string{"a", "b"} {
		l.member(name, kgo.SeedBrokers(n.kafka))
	}
	for kills := 1; kills <= 3; kills++ {
		l.await(func() error {
			if k := len(l.acked); k < kills*records/5 {
				return fmt.Errorf("%d of %d accepted", k, records)
			}
			return nil
		})
		n.kill()
		n.start()
	}
	l.await(func() error {
		if k := len(l.tried); k < records {
			return fmt.Errorf("%d of %d records came", k, records)
		}
		return nil
	})
	l.stop()
	t.Logf("%d of %d accepted and confirmed through three kills; nothing of it came again", len(l.acked), records)
}

// shareLedger knows what members of group g were given and what of it was accepted, as
// the node confirmed.
type shareLedger struct {
	t      *testing.T
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu           sync.Mutex
	acked, tried map[place]bool
}

func newShareLedger(t *testing.T) *shareLedger {
	l := &shareLedger{t: t, acked: map[place]bool{}, tried: map[place]bool{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	t.Cleanup(l.stop)
	return l
}

func (l *shareLedger) stop() {
	l.cancel()
	l.wg.Wait()
}

// member accepts what it is given, and waits each time until that is confirmed.
func (l *shareLedger) member(name string, opts ...kgo.Opt) {
	l.t.Helper()
	var failed atomic.Bool
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.ClientID(name), kgo.ShareGroup("g"), kgo.ConsumeTopics("t"), kgo.FetchMaxWait(500 * time.Millisecond),
		kgo.ShareAckCallback(func(_ *kgo.Client, rs kgo.ShareAckResults) {
			if !rs.Ok() {
				failed.Store(true)
			}
		}),
	}, opts...)...)
	if err != nil {
		l.t.Fatal(err)
	}
	l.wg.Go(func() {
		defer cl.Close()
		for l.ctx.Err() == nil {
			failed.Store(false)
			fetches := cl.PollRecords(l.ctx, 20)
			l.mu.Lock()
			fetches.EachRecord(func(r *kgo.Record) {
				at := place{r.Partition, r.Offset}
				if l.acked[at] {
					l.t.Errorf("%v was accepted, and came again", at)
				}
				l.tried[at] = true
				r.Ack(kgo.AckAccept)
			})
			l.mu.Unlock()
			if cl.FlushAcks(l.ctx) != nil || failed.Load() {
				continue
			}
			l.mu.Lock()
			fetches.EachRecord(func(r *kgo.Record) { l.acked[place{r.Partition, r.Offset}] = true })
			l.mu.Unlock()
		}
	})
}

func (l *shareLedger) await(condition func() error) {
	l.t.Helper()
	eventually(l.t, 90*time.Second, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		return condition()
	})
}

// call asks the node's HTTP door.
func (n *node) call(t *testing.T, method string, req, resp any) {
	t.Helper()
	body, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.Post("http://"+n.http+"/tube.v1."+method, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s %v", method, r.Status, answer, err)
	}
	if err := json.Unmarshal(answer, resp); err != nil {
		t.Fatal(err)
	}
}

// object is JSON.
type object = map[string]any

// A queue group that was made by hand is shared by share consumers of its name and by
// queue consumers: what one has the other has not.
func TestShareAndQueueConsumersShareAGroup(t *testing.T) {
	n := newNode(t)
	n.start()
	n.createTopic("t", 2)
	n.call(t, "QueueAdminService/CreateGroup", object{"group": "g", "topic": "t", "settings": object{"lease": "60s"}}, &object{})
	n.send(t, 500)
	byQueue := map[place]bool{}
	receive := func(most int) int {
		var got struct {
			Messages []struct {
				LeaseID   string `json:"leaseId"`
				Partition int32
				Offset    string
			}
		}
		n.call(t, "QueueService/Receive", object{"group": "g", "maxMessages": most}, &got)
		var leases []string
		for _, m := range got.Messages {
			o, err := strconv.ParseInt(cmp.Or(m.Offset, "0"), 10, 64)
			if err != nil || byQueue[place{m.Partition, o}] {
				t.Fatalf("%+v: %v, came before: %t", m, err, err == nil)
			}
			byQueue[place{m.Partition, o}] = true
			leases = append(leases, m.LeaseID)
		}
		if len(leases) > 0 {
			n.call(t, "QueueService/Acknowledge", object{"group": "g", "leaseIds": leases}, &object{})
		}
		return len(leases)
	}
	if receive(100) == 0 {
		t.Fatal("the queue consumer got nothing")
	}
	a := n.share(t, "a", "g", accept, kgo.ShareMaxRecords(20), kgo.ShareMaxRecordsStrict())
	eventually(t, 30*time.Second, func() error {
		receive(5)
		if k := a.count() + len(byQueue); k < 500 {
			return fmt.Errorf("%d of 500 came", k)
		}
		return nil
	})
	a.leave()
	for at, counts := range a.got {
		if byQueue[at] || len(counts) != 1 {
			t.Fatalf("%v came to the share consumer %d times, to the queue consumer: %t", at, len(counts), byQueue[at])
		}
	}
	if a.count() == 0 || a.count()+len(byQueue) != 500 {
		t.Errorf("%d to the share consumer, %d to the queue consumer", a.count(), len(byQueue))
	}
	// The share group is that queue group and no other.
	var all struct{ Groups []struct{ Group string } }
	n.call(t, "QueueAdminService/ListGroups", object{"topic": "t"}, &all)
	if len(all.Groups) != 1 || all.Groups[0].Group != "g" {
		t.Errorf("queue groups of the topic: %v", all.Groups)
	}
}

// On three nodes members go on when a node is killed and comes back, whoever led or
// coordinated: everything comes, and what was accepted comes no more.
func TestShareGroupsSurviveANode(t *testing.T) {
	c := newCluster(t, 3)
	c.createTopic("t", 3)
	c.waitLed("t", 3)
	c.node(1).groupSettings(t, "g", "share.auto.offset.reset", "earliest", "share.record.lock.duration.ms", "5000")
	const records = 20_000
	send := func(k int) {
		cl := c.client()
		var all []*kgo.Record
		for i := range k {
			all = append(all, &kgo.Record{Topic: "t", Key: fmt.Append(nil, i), Value: []byte("x")})
		}
		if err := cl.ProduceSync(timeout(t, 60*time.Second), all...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	send(records)
	l := newShareLedger(t)
	for _, name := range []string{"a", "b", "c"} {
		l.member(name, kgo.SeedBrokers(c.all()...))
	}
	for round, id := range []int{1, 2, 3} {
		l.await(func() error {
			if k := len(l.acked); k < (round+1)*records/5 {
				return fmt.Errorf("%d of %d accepted", k, records)
			}
			return nil
		})
		c.node(id).kill()
		send(100)
		c.start(id)
	}
	l.await(func() error {
		if k := len(l.tried); k < records+300 {
			return fmt.Errorf("%d of %d records came", k, records+300)
		}
		return nil
	})
	l.stop()
	t.Logf("%d of %d accepted and confirmed; nothing of it came again", len(l.acked), records+300)
}
