package sim

import (
	"fmt"
	"time"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// queueKind is a partition whose topic has queue groups: the broker's shell, desks and
// state, driven by the node's events.
type queueKind struct{ partitionKind }

func (queueKind) name() string { return "partition with queue groups" }

// queueTeam is what a team of queueKind has beside a partition.
type queueTeam struct {
	groups []*queueGroup
	other  *team // where its dead letters and what is completed go
	window time.Duration
	// parameters of its sender
	keys int
}

// queueGroup is a queue group as the metadata has it.
type queueGroup struct {
	t        *team
	id       queue.GroupID
	settings queue.Settings
	mode     groupMode // "": none of them
	// members have cursors: those of a broadcast group; else "" has one.
	members  []string
	unwanted func(message) bool // by its filter; nil: none is
	rate     float64            // messages/s; 0: no limit
	// paused has, by node, in which of its lives it was told that the group is paused.
	paused map[*node]int
}

func (g *queueGroup) String() string { return fmt.Sprintf("q%d of g%d", g.id, g.t.id) }

func (g *queueGroup) name() string { return fmt.Sprint("q", g.id) }

func (t *team) name() string { return fmt.Sprint("t", t.id) }

// queues is what a run has of queue groups.
type queues struct {
	c         *cluster
	groups    int // ids given
	senders   []*sender
	consumers []*consumer
	operator  *operator // nil: there is none
	sessions  map[string]*consumer
	completes int
	check     *queueChecker
	armed     map[string]bool // crash windows to be hit; see queue_faults.go
	// straight: wall clocks are right whenever a node starts. Otherwise what jumped
	// stays, and what depends on it is not looked at.
	straight bool
	// ahead is how far the wall clock of a node was ahead when it started, at most.
	ahead time.Duration
}

// withQueues: two runs of three have queue groups.
func (c *cluster) withQueues() bool { return c.cfg.Seed%3 != 2 }

// makeQueues makes two teams with queue groups, each of which takes the other's dead
// letters and what is sent on.
func (c *cluster) makeQueues() {
	if !c.withQueues() {
		return
	}
	q := &queues{c: c, sessions: map[string]*consumer{}, armed: map[string]bool{}, straight: c.oneIn(2)}
	q.check = newQueueChecker(q)
	c.queues = q
	var pair []*team
	for range 2 {
		t := c.makeTeam(queueKind{})
		t.queue = &queueTeam{keys: 2 + c.rng.IntN(5)}
		if len(pair) == 0 || c.oneIn(2) {
			t.queue.window = 100 * time.Hour // clocks jump by an hour
		}
		pair = append(pair, t)
	}
	pair[0].queue.other, pair[1].queue.other = pair[1], pair[0]
	for _, t := range pair {
		q.addGroup(t, false)
		q.addGroup(t, true)
	}
	q.addModes(pair)
}

func (q *queues) addGroup(t *team, byKey bool) {
	c := q.c
	q.groups++
	s := queue.DefaultSettings()
	s.OrderByKey = byKey
	s.MaxAttempts = 2 + c.rng.IntN(3)
	s.Lease = c.between(time.Second, 4*time.Second)
	s.MaxHandling = 3 * s.Lease
	s.Backoff = []time.Duration{100 * time.Millisecond, time.Second}
	s.MaxInFlight = 4 + c.rng.IntN(30)
	s.StartAtMillis = queue.StartAtStart
	if t.queue.window > 0 || !c.oneIn(3) {
		s.DeadLetter = fmt.Sprint("t", t.queue.other.id)
	}
	g := &queueGroup{t: t, id: queue.GroupID(q.groups), settings: s, members: []string{""}, paused: map[*node]int{}}
	t.queue.groups = append(t.queue.groups, g)
	c.log("%s: by key %v, %d attempts, lease %v, dead letters %q", g, byKey, s.MaxAttempts, s.Lease, s.DeadLetter)
}

// host implements kind.
func (k queueKind) host(n *node, h *hosted, founders []record.ReplicaID) (machine, error) {
	m, err := k.partitionKind.host(n, h, founders)
	if err != nil {
		return m, err
	}
	n.broker.SetQueueGroups(h.t.queueTopic())
	return m, nil
}

// hooks are what a node's queues need.
func (n *node) hooks() broker.QueueHooks {
	if n.c.queues == nil {
		return broker.QueueHooks{}
	}
	return broker.QueueHooks{DeadLetters: letterWriter{n}, Ask: n.askConsumer, CarryOut: n.carryOut, Lost: n.c.queues.check.lost}
}

// timer is a node's time.AfterFunc.
type timer struct {
	n    *node
	f    func()
	turn int
}

func (n *node) afterFunc(d time.Duration, f func()) broker.Timer {
	t := &timer{n: n, f: f}
	t.Reset(d)
	return t
}

// Reset implements broker.Timer.
func (t *timer) Reset(d time.Duration) bool {
	t.turn++
	turn := t.turn
	t.n.after(d, func() {
		if t.turn == turn {
			t.n.run(t.f)
		}
	})
	return true
}

// Stop implements broker.Timer.
func (t *timer) Stop() bool {
	t.turn++
	return true
}

// request asks whichever node seems to lead a team. f runs there, and what it gives to
// answer happens at who asks, unless the node has ended meanwhile or it takes too long:
// then lost is called instead. guess is kept between requests.
func (c *cluster) request(t *team, guess **node, f func(*node, *partition, func(func())), lost func()) {
	over := false
	finish := func(f func()) {
		if !over {
			over = true
			f()
		}
	}
	n := *guess
	if n == nil || !n.up {
		n = c.nodes[c.rng.IntN(len(c.nodes))]
		if lead := t.leader(); lead != nil && !c.oneIn(4) {
			n = lead
		}
	}
	*guess = n
	fail := func() {
		*guess = nil
		finish(lost)
	}
	c.after(c.between(500*time.Millisecond, 3*time.Second), fail)
	life := n.life
	n.after(c.between(50*time.Microsecond, 2*time.Millisecond), func() {
		n.run(func() {
			h := n.here[t.id]
			if h == nil || h.group == nil {
				c.after(time.Millisecond, fail)
				return
			}
			f(n, h.machine.(*partition), func(told func()) {
				if !n.dying && n.life == life {
					c.after(c.between(50*time.Microsecond, 2*time.Millisecond), func() { finish(told) })
				}
			})
		})
	})
}

// term is the leader's as the node knows it.
func (m *partition) term() record.Term { return record.Term(m.h.group.Status().Term) }
