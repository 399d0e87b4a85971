package broker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// letters keeps dead letters; it fails as often as it is told to.
type letters struct {
	mu    sync.Mutex
	fails int
	got   []queue.DeadLetter
	wrote chan struct{}
}

func (l *letters) Write(_ context.Context, d queue.DeadLetter, done func(error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fails > 0 {
		l.fails--
		done(errors.New("no leader"))
		return
	}
	l.got = append(l.got, d)
	select {
	case l.wrote <- struct{}{}:
	default:
	}
	done(nil)
}

func TestFailedTooOftenIsADeadLetterFirstAndThenDone(t *testing.T) {
	box := &letters{wrote: make(chan struct{}, 1)}
	r := startWith(t, vfs.OS{}, t.TempDir(), testTopic(nil), Config{ReserveBytes: 1, Queues: QueueHooks{DeadLetters: box}})
	q := withQueue(r, func(s *queue.Settings) { s.MaxAttempts, s.DeadLetter = 2, "graves" })
	defer q.stop()
	q.send("poison")
	for attempt := 1; attempt <= 2; attempt++ {
		got := q.receive("x", 1, 10*time.Second)
		want(t, got, fmt.Sprintf("poison@0#%d ", attempt))
		errs := q.partition().QueueSettle(t.Context(), testGroup, []queue.Settlement{{Lease: got[0].Lease, Verdict: queue.Nack, Delay: 0, Reason: fmt.Sprintf("reason %d", attempt)}})
		if errs[0] != nil {
			t.Fatal(errs[0])
		}
	}
	<-box.wrote
	d := box.got[0]
	if d.To != "graves" || d.Topic != "orders" || string(d.Message.Value) != "poison" || d.Attempts != 2 || len(d.Records) != 2 ||
		d.Records[1].Reason != "reason 2" || d.Records[1].Member != "x" || d.Records[1].Address != "10.0.0.1:5" {
		t.Errorf("dead letter %+v", d)
	}
	q.eventually(func(e queue.Explanation) bool { return e.Counts.Dead == 1 && e.Backlog == 0 })
}

// eventually polls what Explain says: what happens in the background has no other sign.
func (q *queueRig) eventually(ok func(queue.Explanation) bool) {
	q.t.Helper()
	var last queue.Explanation
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		list, err := q.partition().QueueExplain(testGroup)
		if err != nil {
			q.t.Fatal(err)
		}
		if last = list[0]; ok(last) {
			return
		}
	}
	q.t.Fatalf("it stays at %+v", last)
}

// A dead letter that cannot be written holds its message; the next leader writes it.
func TestDeadLetterIsWrittenBeforeItsSourceIsLetGo(t *testing.T) {
	mem := vfs.NewMem()
	box := &letters{wrote: make(chan struct{}, 1), fails: 1 << 30}
	r := startWith(t, mem, "/d", testTopic(nil), Config{ReserveBytes: 1, Queues: QueueHooks{DeadLetters: box}})
	q := withQueue(r, func(s *queue.Settings) { s.DeadLetter = "graves" })
	q.send("poison")
	if err := q.settle(queue.Dead, q.receive("x", 1, 0)...)[0]; err != nil {
		t.Fatal(err)
	}
	q.eventually(func(e queue.Explanation) bool {
		return strings.Contains(e.Sentence, "cannot be written: no leader") && e.Backlog == 1
	})
	want(t, q.receive("x", 1, 0), "")
	killed := mem.CrashCopy(1, vfs.CrashLose)
	q.stop()

	box.fails = 0
	n := &queueRig{startWith(t, killed, "/d", testTopic(nil), Config{ReserveBytes: 1, Queues: QueueHooks{DeadLetters: box}}), q.spec}
	n.tell()
	defer n.stop()
	want(t, n.receive("x", 1, 0), "")
	<-box.wrote
	n.eventually(func(e queue.Explanation) bool { return e.Counts.Dead == 1 && e.Backlog == 0 })
}

// The node is killed between delivering and acknowledging, with each kind of disk
// behind it: what was acknowledged is not delivered again, all else is.
func TestKilledBetweenDeliverAndAcknowledge(t *testing.T) {
	for _, policy := range []vfs.CrashPolicy{vfs.CrashLose, vfs.CrashKeep, vfs.CrashRandom} {
		mem := vfs.NewMem()
		q := withQueue(startOn(t, mem, "/d", testTopic(nil)), nil)
		q.dir = "/d"
		q.send("a", "b", "c", "d", "e")
		got := q.receive("x", 4, 0)
		q.ack(got[1], got[3])
		if err := q.host.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		q.ack(got[2])
		killed := mem.CrashCopy(7, policy)
		q.stop()
		n := q.again(killed)
		want(t, n.receive("y", 9, 0), "a@0#1 e@4#1 ")
		n.ack(got[1], got[2])
		// x was slow: y has its message now.
		if err := n.settle(queue.Acknowledge, got[0])[0]; !errors.Is(err, queue.ErrLeaseExpired) {
			t.Errorf("a lease that another holds is settled: %v", err)
		}
		n.stop()
	}
}

// A late acknowledgement of a lease that an earlier leader gave counts while nobody
// else has the message.
func TestLateAcknowledgementCounts(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	q.send("a", "b")
	got := q.receive("x", 2, 0)
	q.stop()
	n := q.again(vfs.OS{})
	defer n.stop()
	n.ack(got[0])
	want(t, n.receive("y", 9, 0), "b@1#1 ")
}

func TestDelayedIsDeliveredInTimeAlsoByTheNextLeader(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	sentAt := time.Now()
	sent := q.sendAll([]queue.Outgoing{
		{Value: []byte("later"), KeyNull: true, Delay: 300 * time.Millisecond},
		{Value: []byte("never"), KeyNull: true, DeliverAtMillis: time.Now().Add(time.Hour).UnixMilli()},
		{Value: []byte("moved"), KeyNull: true, Delay: time.Hour, ID: "m"},
	})
	want(t, q.receive("x", 9, 0), "")
	list, err := q.partition().QueueDelayed(0, 10)
	if err != nil || len(list) != 3 {
		t.Fatalf("%v, %v", list, err)
	}
	q.stop()
	q = q.again(vfs.OS{})
	defer q.stop()
	got := q.receive("x", 9, 10*time.Second)
	want(t, got, "later@0#1 ")
	if d := time.Since(sentAt); d < 300*time.Millisecond {
		t.Errorf("it came after %v", d)
	}
	q.ack(got...)
	p := q.partition()
	if errs := p.QueueCancel(t.Context(), []record.Offset{1, 0}); errs[0] != nil || !errors.Is(errs[1], queue.ErrNotDelayed) {
		t.Fatal(errs)
	}
	if err := p.QueueReschedule(t.Context(), 2, time.Now().UnixMilli()); err != nil {
		t.Fatal(err)
	}
	got = q.receive("x", 9, 10*time.Second)
	want(t, got, "moved@2#1 ")
	if h := got[0].Headers; got[0].ID != "m" || len(h) != 2 || h[0].Key != queue.HeaderMessageID || h[1].Key != queue.HeaderDeliverAt {
		t.Errorf("id %q, headers %v", got[0].ID, h)
	}
	if traced, err := p.QueueTrace(1); err != nil || traced[0].Status != "cancelled" {
		t.Errorf("%+v, %v", traced, err)
	}
	// Whoever reads the topic as a stream saw all of them at once.
	if b, _ := p.Bounds(); b.HighWatermark != 3 || sent[2].Offset != 2 {
		t.Errorf("high watermark %d", b.HighWatermark)
	}
	too := p.QueueSend(t.Context(), []queue.Outgoing{{Value: []byte("x"), Delay: 2 * queue.MaxDelay}})
	if !errors.Is(too[0].Err, queue.ErrDelayTooLong) {
		t.Error(too[0].Err)
	}
}

// A wall clock that jumps forward fires nothing early.
func TestDelayDoesNotFollowAClockThatJumps(t *testing.T) {
	var mu sync.Mutex
	ahead := time.Duration(0)
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return time.Now().Add(ahead)
	}
	q := withQueue(startWith(t, vfs.OS{}, t.TempDir(), testTopic(nil), Config{ReserveBytes: 1, Clock: clock}), nil)
	defer q.stop()
	q.sendAll([]queue.Outgoing{{Value: []byte("in an hour"), KeyNull: true, Delay: time.Hour}})
	mu.Lock()
	ahead = 1000 * time.Hour
	mu.Unlock()
	q.send("now")
	got := q.receive("x", 9, 0)
	want(t, got, "now@1#1 ")
	q.ack(got...) // an entry with the queues' clock: what is due by it is fired
	want(t, q.receive("x", 9, 0), "")
	if list, err := q.partition().QueueDelayed(0, 9); err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
}

func TestRepeatedIDsAreAnsweredWithTheFirstPosition(t *testing.T) {
	for _, memory := range []bool{false, true} {
		mem := vfs.NewMem()
		topic := testTopic(func(c *meta.TopicConfig) { c.MemoryOnly, c.DedupeWindow = memory, time.Hour })
		q := withQueue(startOn(t, mem, "/d", topic), nil)
		q.dir = "/d"
		ids := func(list ...string) (out []queue.Outgoing) {
			for _, id := range list {
				out = append(out, queue.Outgoing{Value: []byte("of " + id), KeyNull: true, ID: id})
			}
			return out
		}
		q.sendAll(ids("a", "b"))
		// In one call: a repeat of the past, something new, a repeat within the call.
		sent := q.sendAll(ids("b", "c", "c", ""))
		for i, want := range []queue.Sent{{Offset: 1, Duplicate: true}, {Offset: 2}, {Offset: 2, Duplicate: true}, {Offset: 3}} {
			if sent[i].Offset != want.Offset || sent[i].Duplicate != want.Duplicate {
				t.Errorf("memory %v: message %d: %+v, want %+v", memory, i, sent[i], want)
			}
		}
		// Of a Kafka producer, by header.
		produce := func(pid record.ProducerID, sequence int32, list ...string) ProduceResult {
			var records []record.Record
			for i, id := range list {
				records = append(records, record.Record{Offset: record.Offset(i), Timestamp: 1000, Value: []byte("k"), Headers: []record.RecordHeader{{Key: queue.HeaderMessageID, Value: []byte(id)}}})
			}
			b, err := record.Encode(record.BatchOptions{Compression: record.Zstd, Idempotent: true, ProducerID: pid, BaseSequence: sequence}, records)
			if err != nil {
				t.Fatal(err)
			}
			return q.produce(b)
		}
		if r := produce(5, 0, "a"); r.Err != nil || r.BaseOffset != 0 {
			t.Errorf("a repeat is answered with %d, %v", r.BaseOffset, r.Err)
		}
		if r := produce(5, 1, "b", "d"); r.Err != nil || r.BaseOffset != 4 {
			t.Errorf("half a repeat is answered with %d, %v", r.BaseOffset, r.Err)
		}
		killed := mem.CrashCopy(1, vfs.CrashKeep)
		q.stop()
		n := q.again(killed)
		sent = n.sendAll(ids("d", "a"))
		if sent[0].Offset != 5 || sent[1].Offset != 0 || !sent[0].Duplicate || !sent[1].Duplicate {
			t.Errorf("memory %v: after a kill: %+v", memory, sent)
		}
		if !memory {
			want(t, n.receive("x", 9, 0), "of a@0#1 of b@1#1 of c@2#1 of @3#1 k@5#1 ")
			if found, err := n.partition().QueueFind(t.Context(), "c"); err != nil || !slices.Equal(found, []record.Offset{2}) {
				t.Errorf("found at %v, %v", found, err)
			}
		}
		n.stop()
	}
}

// A partition looks for repeats from its first moment on, also before the broker is told
// of the topic's queue groups: then, after a restart, producers try again what they had no
// answer to.
func TestRepeatsAreFoundBeforeTheGroupsAreKnown(t *testing.T) {
	topic := testTopic(func(c *meta.TopicConfig) { c.DedupeWindow = time.Hour })
	r := start(t, t.TempDir(), topic)
	message := []queue.Outgoing{{Value: []byte("v"), KeyNull: true, ID: "a"}}
	if sent := r.partition().QueueSend(t.Context(), message); sent[0].Err != nil || sent[0].Duplicate {
		t.Fatalf("first: %+v", sent[0])
	}
	r = r.restart()
	defer r.stop()
	if sent := r.partition().QueueSend(t.Context(), message); sent[0].Err != nil || !sent[0].Duplicate || sent[0].Offset != 0 {
		t.Errorf("again, after a restart: %+v", sent[0])
	}
}

func TestGroupsBeginWhereTheyShallAndAreDroppedByTheirID(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	defer q.stop()
	q.send("a", "b")
	late := QueueGroup{ID: 6, Name: "late", Settings: queueSettings(func(s *queue.Settings) { s.StartAtMillis = queue.StartAtEnd })}
	q.spec.Groups, q.spec.LastID = append(q.spec.Groups, late), 6
	q.tell()
	q.send("c")
	got, err := q.QueueReceive(t.Context(), 6, q.topic.ID, queue.Receiving{Member: member("x"), Max: 9})
	if err != nil {
		t.Fatal(err)
	}
	want(t, got, "c@2#1 ")
	// The metadata here has not heard of group 6 yet: it stays. Then it was deleted.
	q.spec.Groups, q.spec.LastID = q.spec.Groups[:1], 5
	q.tell()
	has := func() bool {
		q.partition().machine.mu.Lock()
		defer q.partition().machine.mu.Unlock()
		return q.partition().machine.queues.Has(6, "")
	}
	for q.partition().queue.reconciling.Load() != 0 {
		time.Sleep(time.Millisecond) // polling: until it has been looked at
	}
	if !has() {
		t.Fatal("a group was dropped because it is absent")
	}
	q.spec.LastID = 6
	q.SetQueueGroups(q.spec)
	for deadline := time.Now().Add(10 * time.Second); has(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a group that was deleted stays")
		}
	}
	if _, err := q.QueueReceive(t.Context(), 6, q.topic.ID, queue.Receiving{Member: member("x"), Max: 9}); !errors.Is(err, queue.ErrUnknownGroup) {
		t.Error(err)
	}
}

func TestBroadcastGivesEachMemberEverything(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), func(s *queue.Settings) { s.Broadcast = true })
	q.send("a", "b")
	for _, who := range []string{"x", "y"} {
		got := q.receive(who, 9, 10*time.Second)
		want(t, got, "a@0#1 b@1#1 ")
		q.ack(got[0])
	}
	q.stop()
	n := q.again(vfs.OS{})
	defer n.stop()
	want(t, n.receive("x", 9, 0), "b@1#1 ")
	want(t, n.receive("y", 9, 0), "b@1#1 ")
}

func TestTrustedIsAcknowledgedWhenItIsHandedOut(t *testing.T) {
	mem := vfs.NewMem()
	q := withQueue(startOn(t, mem, "/d", testTopic(nil)), func(s *queue.Settings) { s.AutoAck = true })
	q.dir = "/d"
	q.send("a", "b", "c")
	want(t, q.receive("x", 2, 0), "a@0#1 b@1#1 ")
	killed := mem.CrashCopy(1, vfs.CrashLose)
	q.stop()
	n := q.again(killed)
	defer n.stop()
	want(t, n.receive("x", 9, 0), "c@2#1 ")
}

// A consumer that can be asked is asked before its messages go to others.
func TestAskedBeforeSentAgain(t *testing.T) {
	asked := make(chan queue.Ask, 10)
	answers := make(chan func(queue.Lease, queue.Answer), 10)
	r := startWith(t, vfs.OS{}, t.TempDir(), testTopic(nil), Config{ReserveBytes: 1, Queues: QueueHooks{
		Ask: func(_ queue.GroupID, a queue.Ask, answer func(queue.Lease, queue.Answer)) {
			asked <- a
			answers <- answer
		},
	}})
	q := withQueue(r, nil)
	defer q.stop()
	q.send("a", "b")
	m := member("x")
	m.CanBeAsked = true
	if got, err := q.QueueReceive(t.Context(), testGroup, q.topic.ID, queue.Receiving{Member: m, Max: 9}); err != nil || len(got) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	q.QueueSessionGone(m.Session)
	a, answer := <-asked, <-answers
	if a.Member != m || len(a.Leases) != 2 {
		t.Fatalf("asked %+v", a)
	}
	want(t, q.receive("y", 9, 0), "")
	answer(a.Leases[0], queue.AnswerDone)
	answer(a.Leases[1], queue.AnswerUnknown)
	want(t, q.receive("y", 9, 10*time.Second), "b@1#1 ")
	q.eventually(func(e queue.Explanation) bool { return e.Acknowledged == 1 })
}

// What the log's start passes before it is done is told.
func TestLostToRetentionIsTold(t *testing.T) {
	lost := make(chan QueueLost, 1)
	r := startWith(t, vfs.OS{}, t.TempDir(), testTopic(nil), Config{ReserveBytes: 1, Queues: QueueHooks{Lost: func(l QueueLost) { lost <- l }}})
	q := withQueue(r, nil)
	defer q.stop()
	q.send("a", "b", "c")
	q.ack(q.receive("x", 1, 0)...)
	if _, err := q.partition().DeleteRecords(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if l := <-lost; l.Count != 1 || l.Before != 2 || l.Group != testGroup || l.Topic != "orders" {
		t.Errorf("told %+v", l)
	}
	if m, err := (messages{q.partition()}).one(1); !errors.Is(err, queue.ErrGone) {
		t.Errorf("a message below the log's start is read: %v, %v", m, err)
	}
	want(t, q.receive("x", 9, 0), "c@2#1 ")
}

// A memory topic begins anew after a restart; its groups take notice.
func TestMemoryTopicsGroupsGoOnAfterARestart(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(func(c *meta.TopicConfig) { c.MemoryOnly = true })), nil)
	q.send("a", "b")
	q.stop()
	n := q.again(vfs.OS{})
	defer n.stop()
	n.send("c")
	want(t, n.receive("x", 9, 10*time.Second), "c@2#1 ")
	n.eventually(func(e queue.Explanation) bool { return e.Counts.Lost == 2 && e.Counts.Floor == 2 })
}

func TestSeekAndPurge(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	defer q.stop()
	q.send("a", "b")
	got := q.receive("x", 9, 0)
	q.ack(got...)
	p := q.partition()
	if err := p.QueueSeek(t.Context(), testGroup, QueueTo{TimeMillis: queue.StartAtStart}); err != nil {
		t.Fatal(err)
	}
	want(t, q.receive("x", 1, 0), "a@0#1 ")
	if err := p.QueuePurge(t.Context(), testGroup); err != nil {
		t.Fatal(err)
	}
	want(t, q.receive("x", 9, 0), "")
	if err := p.QueueSeek(t.Context(), testGroup, QueueTo{Offset: 1}); err != nil {
		t.Fatal(err)
	}
	want(t, q.receive("x", 9, 0), "b@1#1 ")
}

// Many receivers and senders at once: everything is handed out once and no receiver
// is forgotten.
func TestManyReceiversGetEverythingOnce(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	defer q.stop()
	const total, receivers = 2000, 8
	var mu sync.Mutex
	seen := map[record.Offset]int{}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range receivers {
		wg.Go(func() {
			for ctx.Err() == nil {
				got, err := q.QueueReceive(ctx, testGroup, q.topic.ID, queue.Receiving{Member: member(fmt.Sprint(i)), Max: 1 + i, Wait: time.Minute})
				if err != nil {
					return
				}
				var list []queue.Settlement
				mu.Lock()
				for _, d := range got {
					seen[d.Lease.Offset]++
					list = append(list, queue.Settlement{Lease: d.Lease, Verdict: queue.Acknowledge})
				}
				if len(seen) == total {
					cancel()
				}
				mu.Unlock()
				for _, err := range q.partition().QueueSettle(t.Context(), testGroup, list) {
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for i := range total / 10 {
		var values []string
		for k := range 10 {
			values = append(values, fmt.Sprint(10*i+k))
		}
		q.send(values...)
	}
	wg.Wait()
	for o, n := range seen {
		if n != 1 {
			t.Errorf("offset %d was handed out %d times", o, n)
		}
	}
	if len(seen) != total {
		t.Fatalf("%d messages of %d were handed out", len(seen), total)
	}
	q.eventually(func(e queue.Explanation) bool { return e.Acknowledged == total })
}

// A state of version 1, without queues, is read.
func TestStateOfVersionOneIsRead(t *testing.T) {
	m := &machine{queues: queue.NewState(), producers: newProducers(10, 1000), end: 9, start: 3}
	b := saved(t, m)
	old := slices.Clone(b[:len(b)-len(queue.NewState().Append(nil))])
	old[0] = 1
	n := &machine{queues: queue.NewState(), producers: newProducers(10, 1000)}
	if err := n.restore(old); err != nil || n.end != 9 || n.start != 3 || n.queues == nil {
		t.Fatalf("%+v, %v", n, err)
	}
	old[0] = stateVersion + 1
	if err := n.restore(old); err == nil {
		t.Fatal("a state of a newer version is read")
	}
}

// Groups that nobody uses have no desk, no timer and no goroutine, and are not
// looked at when something is appended.
func TestIdleGroupsCostNothing(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	defer q.stop()
	before := runtime.NumGoroutine()
	for i := range 1000 {
		q.spec.LastID++
		q.spec.Groups = append(q.spec.Groups, QueueGroup{ID: q.spec.LastID, Name: fmt.Sprint("idle ", i), Settings: queueSettings(nil)})
	}
	q.tell()
	q.send("a", "b")
	want(t, q.receive("x", 9, 0), "a@0#1 b@1#1 ")
	for _, g := range q.Broker.queues.topic(q.topic.ID).list() {
		if g.id != testGroup && (len(g.desks) > 0 || g.timer != nil) {
			t.Fatalf("group %d has a desk or a timer", g.id)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before+5; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// A leader that begins a group anew, as it does not know whether something is committed,
// knows what it has given before.
func TestTheNextDeskOfATermKnowsItsLeases(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	defer q.stop()
	q.send("a", "b")
	got := q.receive("x", 1, 0)
	g, err := q.partition().groupOf(testGroup)
	if err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	for _, d := range g.inOrder() {
		g.dropDesk(d)
	}
	g.mu.Unlock()
	invented := got[0].Lease
	invented.Offset = 1
	if errs := q.partition().QueueSettle(t.Context(), testGroup, []queue.Settlement{{Lease: invented, Verdict: queue.Acknowledge}}); !errors.Is(errs[0], queue.ErrLeaseUnknown) {
		t.Errorf("a lease that was never given is acknowledged with %v", errs[0])
	}
	q.ack(got...)
	want(t, q.receive("x", 9, 0), "b@1#1 ")
}

// Two groups of a topic have the same offsets, and give leases with the same nonces.
func TestALeaseOfOneGroupSettlesNothingInAnother(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	defer q.stop()
	const other = testGroup + 1
	q.spec.LastID = other
	q.spec.Groups = append(q.spec.Groups, QueueGroup{ID: other, Name: "audit", Settings: queueSettings(nil)})
	q.tell()
	q.send("a", "b")
	take := func(id queue.GroupID) []queue.Delivery {
		got, err := q.QueueReceive(t.Context(), id, q.topic.ID, queue.Receiving{Member: member("x"), Max: 1})
		if err != nil || len(got) != 1 {
			t.Fatalf("%v, %v", got, err)
		}
		return got
	}
	first := take(testGroup)
	never := first[0].Lease // of a message that was not handed out to anybody
	never.Offset, never.Nonce = 1, never.Nonce+1
	held := take(other)
	for _, l := range []queue.Lease{first[0].Lease, {Offset: 1, Attempt: 1, Nonce: 7}} {
		for _, v := range []queue.Verdict{queue.Acknowledge, queue.Nack, queue.Dead, queue.Release, queue.Extend} {
			if errs := q.partition().QueueSettle(t.Context(), other, []queue.Settlement{{Lease: l, Verdict: v}}); !errors.Is(errs[0], queue.ErrLeaseUnknown) {
				t.Errorf("verdict %d on lease %s: %v, want unknown", v, l, errs[0])
			}
		}
	}
	if errs := q.partition().QueueSettle(t.Context(), testGroup, []queue.Settlement{{Lease: never, Verdict: queue.Acknowledge}}); !errors.Is(errs[0], queue.ErrLeaseUnknown) {
		t.Errorf("a lease that was not given yet is acknowledged with %v", errs[0])
	}
	q.ack(first...)
	if errs := q.partition().QueueSettle(t.Context(), other, []queue.Settlement{{Lease: held[0].Lease, Verdict: queue.Nack, Delay: 0}}); errs[0] != nil {
		t.Errorf("the other group's own lease: %v", errs[0])
	}
}
