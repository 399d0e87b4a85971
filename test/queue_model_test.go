package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// The settings of the group under test.
const (
	chaosLease    = time.Second
	chaosAttempts = 4
	chaosLag      = 50 * time.Millisecond // between this process's clock and the nodes'
)

// delivery is one message handed out, as the answer told.
type delivery struct {
	lease          string
	attempt        int32
	granted, until time.Time // the lease's, by the node
	over           time.Time // when its holder first let go of it, or may have; zero: never
}

// term is the part of a lease that says under which leader it was given: a new leader
// does not know of the leases of the last one.
func (d *delivery) term() string {
	nonce, _ := strconv.ParseUint(strings.Split(d.lease, "-")[3], 16, 64)
	return fmt.Sprint(nonce >> 32)
}

// story is all that is known of one message.
type story struct {
	sent       bool // acknowledged to the sender
	notBefore  time.Time
	places     map[string]bool
	deliveries []*delivery
	doneTried  bool // somebody acknowledged it, whatever was answered
	done       time.Time
	later      []later
	nacks      int // answered: counted
	lastNack   string
	dead       *tubev1.DeadMessage
}

// later is a nack with a delay that was answered.
type later struct{ answered, notBefore time.Time }

// queueHistory is what clients did and were told.
type queueHistory struct {
	mu      sync.Mutex
	stories map[string]*story
	leases  map[string]*delivery
	of      map[string]string // lease → message id
	wrong   []string
}

func newQueueHistory() *queueHistory {
	return &queueHistory{stories: map[string]*story{}, leases: map[string]*delivery{}, of: map[string]string{}}
}

// story of a message; the caller holds mu.
func (h *queueHistory) story(id string) *story {
	if h.stories[id] == nil {
		h.stories[id] = &story{places: map[string]bool{}}
	}
	return h.stories[id]
}

func (h *queueHistory) delivered(ms []*tubev1.QueueMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range ms {
		until := m.LeaseUntil.AsTime()
		d := &delivery{lease: m.LeaseId, attempt: m.Attempt, granted: until.Add(-chaosLease), until: until}
		s := h.story(m.Id)
		s.places[fmt.Sprint(m.Partition, "/", m.Offset)] = true
		s.deliveries = append(s.deliveries, d)
		if h.leases[m.LeaseId] != nil {
			h.wrong = append(h.wrong, fmt.Sprintf("lease %s was given twice", m.LeaseId))
		}
		h.leases[m.LeaseId], h.of[m.LeaseId] = d, m.Id
	}
}

// lets notes that the holder lets go, before it is told to the node.
func (h *queueHistory) lets(leases ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range leases {
		if d := h.leases[l]; d != nil && d.over.IsZero() {
			d.over = time.Now()
		}
	}
}

func (h *queueHistory) acknowledging(leases ...string) {
	h.lets(leases...)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range leases {
		if id, ok := h.of[l]; ok {
			h.stories[id].doneTried = true
		}
	}
}

func (h *queueHistory) acknowledged(lease string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.stories[h.of[lease]]; s != nil && s.done.IsZero() {
		s.done = time.Now()
	}
}

func (h *queueHistory) nacked(lease string, begin time.Time, delay time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.stories[h.of[lease]]; s != nil && s.lastNack != lease {
		s.nacks, s.lastNack = s.nacks+1, lease
		s.later = append(s.later, later{time.Now(), begin.Add(delay)})
	}
}

func (h *queueHistory) extended(lease string, begin time.Time, by time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.leases[lease]; d != nil && begin.Add(by).After(d.until) {
		d.until = begin.Add(by)
	}
}

// problems are what must not be, once all is settled.
func (h *queueHistory) problems() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.Clone(h.wrong)
	for id, s := range h.stories {
		for _, p := range s.problems() {
			out = append(out, fmt.Sprintf("message %s: %s (%s)", id, p, s))
		}
	}
	return out
}

// String is the story in short, for who looks for a mistake.
func (s *story) String() string {
	clock := func(t time.Time) string { return t.Format("05.000") }
	out := fmt.Sprintf("done %s, %d nacks", clock(s.done), s.nacks)
	for p := range s.places {
		out += ", at " + p
	}
	for _, d := range s.deliveries {
		out += fmt.Sprintf(", lease %s from %s to %s over %s", d.lease, clock(d.granted), clock(d.until), clock(d.over))
	}
	return out
}

func (s *story) problems() (out []string) {
	problem := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if s.sent && !s.doneTried && s.dead == nil {
		problem("lost: it was sent, and was neither acknowledged by anybody nor is it dead; %d deliveries", len(s.deliveries))
	}
	if len(s.places) > 1 {
		problem("stored more than once: %v", s.places)
	}
	if s.nacks >= chaosAttempts && s.dead == nil && !s.doneTried {
		problem("failed %d times and is no dead letter", s.nacks)
	}
	if d := s.dead; d != nil && (len(d.Attempts) == 0 || len(d.Attempts) > chaosAttempts || d.Topic == "" || len(d.Value) == 0) {
		problem("its dead letter is not whole: %v", d)
	}
	slices.SortFunc(s.deliveries, func(a, b *delivery) int { return a.granted.Compare(b.granted) })
	for i, d := range s.deliveries {
		if d.attempt < 1 || d.attempt > chaosAttempts {
			problem("delivered as attempt %d of %d", d.attempt, chaosAttempts)
		}
		if d.granted.Before(s.notBefore.Add(-chaosLag)) {
			problem("delivered %v early", s.notBefore.Sub(d.granted))
		}
		if !s.done.IsZero() && d.granted.After(s.done.Add(chaosLag)) {
			problem("delivered %v after its acknowledgement was answered", d.granted.Sub(s.done))
		}
		for _, l := range s.later {
			if d.granted.After(l.answered.Add(chaosLag)) && d.granted.Before(l.notBefore.Add(-chaosLag)) {
				problem("delivered %v before a nack allows", l.notBefore.Sub(d.granted))
			}
		}
		for _, e := range s.deliveries[:i] {
			if e.term() == d.term() && d.granted.Before(e.until.Add(-chaosLag)) && (e.over.IsZero() || e.over.After(d.granted.Add(chaosLag))) {
				problem("lease %s was given %v before lease %s ended", d.lease, e.until.Sub(d.granted), e.lease)
			}
		}
	}
	return out
}

// A check that finds nothing proves nothing unless it finds what is there.
func TestTheQueueHistoryFindsEveryKindOfDamage(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(1_800_000_000_000 + int64(ms)) }
	give := func(nonce, from int) *delivery {
		return &delivery{lease: fmt.Sprintf("0-0-1-%x-1", nonce), attempt: 1, granted: at(from), until: at(from + 1000)}
	}
	whole := func() *story {
		return &story{sent: true, doneTried: true, done: at(1600), places: map[string]bool{"0/0": true}, deliveries: []*delivery{give(1, 0), give(2, 1500)}}
	}
	for name, damage := range map[string]func(*story){
		"lost":            func(s *story) { s.doneTried = false },
		"doubled":         func(s *story) { s.places["0/1"] = true },
		"after done":      func(s *story) { s.deliveries = append(s.deliveries, give(3, 3000)) },
		"two leases":      func(s *story) { s.deliveries[1] = give(2, 500) },
		"early":           func(s *story) { s.notBefore = at(200) },
		"early again":     func(s *story) { s.later = []later{{at(500), at(2000)}} },
		"endless":         func(s *story) { s.deliveries[0].attempt = chaosAttempts + 1 },
		"failed for good": func(s *story) { s.nacks, s.doneTried = chaosAttempts, false },
		"no record":       func(s *story) { s.dead = &tubev1.DeadMessage{Topic: "t", Value: []byte("v")} },
	} {
		s := whole()
		damage(s)
		if len(s.problems()) == 0 {
			t.Errorf("%s: not found", name)
		}
	}
	let := whole()
	let.deliveries[1] = give(2, 500)
	let.deliveries[0].over = at(400)
	for _, s := range []*story{whole(), let} {
		if p := s.problems(); len(p) > 0 {
			t.Errorf("found what is not there: %v", p)
		}
	}
}

// queueCrowd is a run: who sends and who receives, at any of the nodes.
type queueCrowd struct {
	t     *testing.T
	nodes []*queues
	h     *queueHistory
	ctx   context.Context
	count atomic.Int64 // messages sent
	acks  atomic.Int64
}

func (c *queueCrowd) any(r *rand.Rand) *queues { return c.nodes[r.IntN(len(c.nodes))] }

// sender sends each message until it is answered; the topic stores each id once.
func (c *queueCrowd) sender(who int, r *rand.Rand) {
	for n := 0; c.ctx.Err() == nil; n++ {
		id := fmt.Sprintf("%d-%d", who, n)
		m := out("value of "+id, withID(id), withKey(fmt.Sprint(n%7)))
		begin := time.Now()
		if r.IntN(4) == 0 {
			delay := time.Duration(r.IntN(1500)) * time.Millisecond
			m = out(string(m.Value), withID(id), withKey(string(m.Key)), after(delay))
			c.h.mu.Lock()
			c.h.story(id).notBefore = begin.Add(delay)
			c.h.mu.Unlock()
		}
		for {
			a, err := ask(context.Background(), c.any(r).Send, &tubev1.SendRequest{Topic: "chaos", Messages: []*tubev1.OutgoingMessage{m}})
			if err == nil && a.Results[0].Error == nil {
				c.h.mu.Lock()
				c.h.story(id).sent = true
				c.h.mu.Unlock()
				c.count.Add(1)
				break
			}
			if c.ctx.Err() != nil {
				return // its outcome is not known
			}
			time.Sleep(20 * time.Millisecond) // no node is there
		}
		time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond)
	}
}

// receiver takes by calls. It works, fails, gives back, takes its time, vanishes, and
// lies about leases that it had before.
func (c *queueCrowd) receiver(who string, r *rand.Rand) {
	var old []string
	for c.ctx.Err() == nil {
		q := c.any(r)
		a, err := ask(context.Background(), q.Receive, &tubev1.ReceiveRequest{Group: "chaos", MaxMessages: int32(1 + r.IntN(4)), Wait: durationpb.New(300 * time.Millisecond), ConsumerId: who})
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		c.h.delivered(a.Messages)
		for _, m := range a.Messages {
			old = append(old, m.LeaseId)
			c.handle(q, m.LeaseId, r)
		}
		if len(old) > 0 && r.IntN(3) == 0 {
			c.lie(q, old[r.IntN(len(old))], r)
		}
	}
}

func (c *queueCrowd) handle(q *queues, lease string, r *rand.Rand) {
	switch r.IntN(10) {
	case 0: // vanishes with it
	case 1, 2:
		c.nack(q, lease, time.Duration(r.IntN(800))*time.Millisecond)
	case 3:
		c.h.lets(lease)
		_, _ = ask(context.Background(), q.Release, &tubev1.ReleaseRequest{Group: "chaos", LeaseIds: []string{lease}})
	case 4:
		begin, by := time.Now(), 2*chaosLease
		if a, err := ask(context.Background(), q.Extend, &tubev1.ExtendRequest{Group: "chaos", LeaseIds: []string{lease}, Duration: durationpb.New(by)}); err == nil && a.Results[0].Error == nil {
			c.h.extended(lease, begin, by)
		}
	case 5:
		time.Sleep(time.Duration(r.IntN(1200)) * time.Millisecond) // slow
		fallthrough
	default:
		c.ack(q, lease)
	}
}

func (c *queueCrowd) ack(q *queues, lease string) {
	c.h.acknowledging(lease)
	if a, err := ask(context.Background(), q.Acknowledge, &tubev1.AcknowledgeRequest{Group: "chaos", LeaseIds: []string{lease}}); err == nil && a.Results[0].Error == nil {
		c.h.acknowledged(lease)
		c.acks.Add(1)
	}
}

func (c *queueCrowd) nack(q *queues, lease string, delay time.Duration) {
	c.h.lets(lease)
	begin := time.Now()
	e := &tubev1.NackEntry{LeaseId: lease, Reason: "chaos", When: &tubev1.NackEntry_Delay{Delay: durationpb.New(delay)}}
	if a, err := ask(context.Background(), q.Nack, &tubev1.NackRequest{Group: "chaos", Entries: []*tubev1.NackEntry{e}}); err == nil && a.Results[0].Error == nil {
		c.h.nacked(lease, begin, delay)
	}
}

// lie settles a lease that was settled or lost, in its group and in another one's name.
func (c *queueCrowd) lie(q *queues, lease string, r *rand.Rand) {
	if r.IntN(2) == 0 {
		c.ack(q, lease) // if it is the last word on the message, it counts
		return
	}
	a, err := ask(context.Background(), q.Acknowledge, &tubev1.AcknowledgeRequest{Group: "witness", LeaseIds: []string{lease, "0-0-1-1"}})
	if err != nil {
		return
	}
	for _, x := range a.Results {
		switch {
		case x.Error == nil:
			c.t.Errorf("lease %s of another group was acknowledged", x.LeaseId)
		case x.Error.Reason != tubev1.QueueErrorDetail_LEASE_UNKNOWN && x.Error.Reason != tubev1.QueueErrorDetail_UNAVAILABLE && x.Error.Reason != tubev1.QueueErrorDetail_OUTCOME_UNKNOWN:
			c.t.Errorf("lease %s of another group is answered with %v", x.LeaseId, x.Error)
		}
	}
}

// streamer takes by streams, one after the other; each ends in its own way.
func (c *queueCrowd) streamer(who string, r *rand.Rand) {
	for c.ctx.Err() == nil {
		if err := c.stream(c.any(r), who, r); err != nil {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func (c *queueCrowd) stream(q *queues, who string, r *rand.Rand) error {
	ctx, vanish := context.WithTimeout(context.Background(), time.Duration(500+r.IntN(3000))*time.Millisecond)
	defer vanish()
	s := q.Consume(ctx)
	var had []string
	// Whatever ends the stream, from then on the node may take back what it had.
	defer func() { c.h.lets(had...) }()
	defer vanish()
	up := func(m *tubev1.ConsumeRequest) { _ = s.Send(m) } // what is wrong Receive tells
	up(&tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_Start{Start: &tubev1.ConsumeStart{Group: "chaos", ConsumerId: who, Credit: 5}}})
	acking := map[uint64]string{}
	seq := uint64(0)
	for {
		m, err := s.Receive()
		if err != nil {
			// The node may have known before: whose lease it took back meanwhile was not told.
			c.h.mu.Lock()
			for _, l := range had {
				if d := c.h.leases[l]; d.over.IsZero() {
					d.over = time.Now().Add(-time.Second)
				}
			}
			c.h.mu.Unlock()
			return err
		}
		switch down := m.Down.(type) {
		case *tubev1.ConsumeResponse_Messages:
			ms := down.Messages.Messages
			c.h.delivered(ms)
			for _, m := range ms {
				had = append(had, m.LeaseId)
				seq++
				switch r.IntN(6) {
				case 0: // thinks about it until it is asked
				case 1:
					c.h.lets(m.LeaseId)
					up(&tubev1.ConsumeRequest{Seq: seq, Up: &tubev1.ConsumeRequest_Nack{Nack: &tubev1.ConsumeNack{Entries: []*tubev1.NackEntry{{LeaseId: m.LeaseId}}}}})
				default:
					c.h.acknowledging(m.LeaseId)
					acking[seq] = m.LeaseId
					up(&tubev1.ConsumeRequest{Seq: seq, Up: &tubev1.ConsumeRequest_Acknowledge{Acknowledge: &tubev1.ConsumeLeases{LeaseIds: []string{m.LeaseId}}}})
				}
			}
			up(&tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_Credit{Credit: &tubev1.ConsumeCredit{Messages: int32(len(ms))}}})
		case *tubev1.ConsumeResponse_Results:
			for _, x := range down.Results.Requests {
				if l, ok := acking[x.Seq]; ok && x.Succeeded == 1 {
					c.h.acknowledged(l)
					c.acks.Add(1)
				}
			}
		case *tubev1.ConsumeResponse_Inquiry:
			c.answer(up, down.Inquiry, r)
		}
	}
}

// answer says done or working, or nothing.
func (c *queueCrowd) answer(up func(*tubev1.ConsumeRequest), ask *tubev1.ConsumeInquiry, r *rand.Rand) {
	a := &tubev1.ConsumeAnswer{Inquiry: ask.Inquiry}
	switch r.IntN(3) {
	case 0:
		c.h.acknowledging(ask.LeaseIds...)
		a.Done = ask.LeaseIds
	case 1:
		a.Working = ask.LeaseIds
	default:
		return
	}
	up(&tubev1.ConsumeRequest{Up: &tubev1.ConsumeRequest_InquiryAnswer{InquiryAnswer: a}})
}

// drain takes and acknowledges what is left, and reads the dead letters.
func (c *queueCrowd) drain() {
	c.t.Helper()
	q := c.nodes[0]
	var last error
	for deadline := time.Now().Add(40 * time.Second); ; {
		if time.Now().After(deadline) {
			c.t.Fatalf("not settled after 40 s: %v", last)
		}
		a, err := ask(context.Background(), q.Receive, &tubev1.ReceiveRequest{Group: "chaos", MaxMessages: 100, Wait: durationpb.New(200 * time.Millisecond), ConsumerId: "drain"})
		if last = err; err != nil {
			continue
		}
		c.h.delivered(a.Messages)
		for _, m := range a.Messages {
			c.ack(q, m.LeaseId)
		}
		g, err := ask(context.Background(), q.admin.GetGroup, &tubev1.GetGroupRequest{Group: "chaos"})
		if last = err; err != nil {
			continue
		}
		if last = errors.New(g.Total.String()); g.Total.Known && g.Total.Backlog == 0 {
			break
		}
	}
	for token := ""; ; {
		l := must(c.t, q.admin.ListDead, &tubev1.ListDeadRequest{Group: "chaos", Values: true, PageToken: token, Limit: 1000})
		for _, d := range l.Messages {
			c.h.mu.Lock()
			c.h.story(d.Id).dead = d
			c.h.mu.Unlock()
		}
		if token = l.NextPageToken; token == "" {
			return
		}
	}
}

// run has everybody work while kill breaks something, kills times.
func (c *queueCrowd) run(kills int, kill func(*rand.Rand)) {
	t := c.t
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	q := c.nodes[0]
	q.group("chaos", "chaos", &tubev1.QueueSettings{
		Lease: durationpb.New(chaosLease), MaxAttempts: new(int32(chaosAttempts)), MaxHandling: durationpb.New(10 * time.Second),
		Backoff: []*durationpb.Duration{durationpb.New(50 * time.Millisecond), durationpb.New(200 * time.Millisecond)},
	})
	q.group("witness", "chaos", nil)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c.ctx = ctx
	var all sync.WaitGroup
	for i := range 2 {
		all.Go(func() { c.sender(i, rand.New(rand.NewPCG(seed, uint64(i)))) })
		all.Go(func() { c.receiver(fmt.Sprint("receiver-", i), rand.New(rand.NewPCG(seed, uint64(10+i)))) })
		all.Go(func() { c.streamer(fmt.Sprint("streamer-", i), rand.New(rand.NewPCG(seed, uint64(20+i)))) })
	}
	r := rand.New(rand.NewPCG(seed, 99))
	for range kills {
		before := c.acks.Load()
		time.Sleep(time.Duration(300+r.IntN(1200)) * time.Millisecond)
		eventually(t, 30*time.Second, func() error {
			if c.acks.Load() == before {
				return errors.New("nothing was acknowledged since the last kill")
			}
			return nil
		})
		kill(r)
	}
	stop()
	all.Wait()
	c.drain()
	problems := c.h.problems()
	for _, p := range problems[:min(len(problems), 20)] {
		t.Error(p)
	}
	dead := 0
	for _, s := range c.h.stories {
		if s.dead != nil {
			dead++
		}
	}
	t.Logf("%d sent, %d acknowledgements, %d dead, %d kills, %d problems", c.count.Load(), c.acks.Load(), dead, kills, len(problems))
	g := must(t, q.admin.GetGroup, &tubev1.GetGroupRequest{Group: "witness"})
	for _, p := range g.Partitions {
		if p.Floor != 0 || p.Backlog != p.End {
			t.Errorf("the group that nobody reads is done with something: %v", p)
		}
	}
}

func TestQueueHistoryOfANodeThatIsKilled(t *testing.T) {
	n := newNode(t)
	n.createTopic("chaos", 3, "tube.dedupe.window", "3600000")
	c := &queueCrowd{t: t, nodes: []*queues{n.queues()}, h: newQueueHistory()}
	c.run(6, func(*rand.Rand) { n.kill(); n.start() })
}

func TestQueueHistoryOfAClusterWhoseNodesAreKilled(t *testing.T) {
	cl := newCluster(t, 3)
	cl.createTopic("chaos", 3, "tube.dedupe.window", "3600000")
	c := &queueCrowd{t: t, h: newQueueHistory()}
	for _, id := range cl.order {
		c.nodes = append(c.nodes, cl.node(id).queues())
	}
	c.run(4, func(r *rand.Rand) {
		id := cl.leader("chaos", r.Int32N(3))
		cl.node(id).kill()
		time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
		cl.start(id)
	})
}
