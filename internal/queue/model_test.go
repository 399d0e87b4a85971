package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tube-mq/tube/internal/record"
)

// model is a world with what a watcher of its consumers knows.
type model struct {
	*world
	rt *rapid.T

	committed map[record.Offset]bool   // acknowledged, and the consumer was told so
	counted   map[record.Offset]int    // deliveries that failed or were lost alone
	given     map[record.Offset]int    // deliveries
	released  map[record.Offset]int    // of which handed back
	valid     map[record.Offset]Taken  // the latest delivery by the present leader
	owner     map[record.Offset]string // of it
	due       map[record.Offset]int64
	dead      map[record.Offset]bool
	keys      map[record.Offset]string
	takers    []Taken // everything ever handed out, for late words
	drops     int     // so often the leader began anew
}

func newModel(rt *rapid.T) *model {
	m := &model{world: newWorld(), rt: rt}
	m.quiet = true
	m.committed, m.counted, m.given, m.released = map[record.Offset]bool{}, map[record.Offset]int{}, map[record.Offset]int{}, map[record.Offset]int{}
	m.valid, m.owner, m.due = map[record.Offset]Taken{}, map[record.Offset]string{}, map[record.Offset]int64{}
	m.dead, m.keys = map[record.Offset]bool{}, map[record.Offset]string{}
	m.settings = Settings{
		MaxAttempts: rapid.IntRange(1, 4).Draw(rt, "max attempts"), Lease: 30 * time.Second, MaxHandling: 5 * time.Minute,
		Backoff: []time.Duration{time.Second, time.Minute}, OrderByKey: rapid.Bool().Draw(rt, "by key"), MaxInFlight: rapid.SampledFrom([]int{3, 1000}).Draw(rt, "in flight"),
	}
	m.commit("", []Op{{Kind: OpOpen, Group: scriptGroup, Offset: 0}})
	return m
}

func (m *model) send() {
	base := m.End()
	a := &Annexe{ClockMillis: m.now}
	for i := range rapid.IntRange(1, 5).Draw(m.rt, "messages") {
		o := base + record.Offset(i)
		key := rapid.SampledFrom([]string{"", "a", "b"}).Draw(m.rt, "key")
		m.log = append(m.log, Message{Offset: o, Value: []byte("v"), Key: []byte(key), KeyNull: key == ""})
		m.keys[o] = key
		if rapid.IntRange(0, 4).Draw(m.rt, "delayed") == 0 {
			m.due[o] = m.now + rapid.Int64Range(1, 100_000).Draw(m.rt, "delay")
			a.Delays = append(a.Delays, AnnexeDelay{int32(i), m.due[o]})
		}
	}
	if !a.Empty() {
		m.applied(m.state.Batch(a, base, nil))
	}
	m.carry()
}

func (m *model) take() {
	who := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(m.rt, "member")
	taking := Taking{Member: Member{ID: who, Session: who, CanBeAsked: rapid.Bool().Draw(m.rt, "can be asked")}, Max: rapid.IntRange(1, 6).Draw(m.rt, "max"), MaxBytes: 1 << 20}
	m.desk("").Tick(m.now)
	m.carry()
	taken, _, err := m.desk("").Take(m.now, taking)
	if err != nil {
		m.rt.Fatal(err)
	}
	if len(taken) > taking.Max {
		m.rt.Fatalf("%d messages for a consumer that asked for %d", len(taken), taking.Max)
	}
	for _, x := range taken {
		m.delivered(who, x)
	}
	m.carry()
}

// delivered checks what every delivery must be.
func (m *model) delivered(who string, x Taken) {
	o := x.Lease.Offset
	if m.committed[o] {
		m.rt.Fatalf("offset %d was acknowledged and is delivered again", o)
	}
	if m.dead[o] {
		m.rt.Fatalf("offset %d is a dead letter and is delivered again", o)
	}
	if at, ok := m.due[o]; ok && m.now < at {
		m.rt.Fatalf("offset %d is delivered %d ms early", o, at-m.now)
	}
	if old, ok := m.valid[o]; ok {
		m.rt.Fatalf("offset %d has a valid lease %v and gets another, %v", o, old.Lease, x.Lease)
	}
	if x.Alone {
		for other, owner := range m.owner {
			if owner == who && m.isValid(other) {
				m.rt.Fatalf("offset %d is to be handed out alone, but %s holds %d", o, who, other)
			}
		}
	}
	if m.settings.OrderByKey && m.keys[o] != "" {
		m.inOrder(o)
	}
	m.given[o]++
	// Once it may be lost together with others, uncounted; and what a leader handed out
	// that leads no more is not counted either.
	if most := m.settings.MaxAttempts + 1 + m.released[o] + int(m.term-1) + m.drops; m.given[o] > most {
		m.rt.Fatalf("offset %d is delivered for the %dth time, at most %d are allowed", o, m.given[o], most)
	}
	m.valid[o], m.owner[o] = x, who
	m.takers = append(m.takers, x)
}

// inOrder: all of the key before it is done, but for what was not due when this one
// could go.
func (m *model) inOrder(o record.Offset) {
	for p := record.Offset(0); p < o; p++ {
		if _, late := m.due[p]; m.keys[p] == m.keys[o] && !late && !m.state.IsDone(scriptGroup, "", p) {
			m.rt.Fatalf("offset %d is delivered before %d of the same key is done", o, p)
		}
	}
	for p, x := range m.valid {
		if m.keys[p] == m.keys[o] && x.Message != nil {
			m.rt.Fatalf("offsets %d and %d of one key are in hand at once", p, o)
		}
	}
}

func (m *model) isValid(o record.Offset) bool { _, ok := m.valid[o]; return ok }

// settle says something of a delivery: a present one or any of the past.
func (m *model) settle() {
	if len(m.takers) == 0 {
		return
	}
	x := m.takers[rapid.IntRange(max(0, len(m.takers)-8), len(m.takers)-1).Draw(m.rt, "which")]
	o := x.Lease.Offset
	v := rapid.SampledFrom([]Verdict{Acknowledge, Acknowledge, Acknowledge, Nack, Release, Extend, Dead}).Draw(m.rt, "verdict")
	now, ok := m.valid[o]
	ok = ok && now.Lease == x.Lease
	wasDone := m.state.IsDone(scriptGroup, "", o)
	_, err := m.desk("").Settle(m.now, Settlement{Lease: x.Lease, Verdict: v, Delay: rapid.SampledFrom([]time.Duration{-1, 0, 3 * time.Second}).Draw(m.rt, "delay")})
	if ok && err != nil && v != Extend {
		m.rt.Fatalf("the valid lease %v cannot be settled with %d: %v", x.Lease, v, err)
	}
	if errors.Is(err, ErrLeaseUnknown) {
		m.rt.Fatalf("lease %v, which was given, is unknown to %d", x.Lease, v)
	}
	if v == Acknowledge && wasDone && err != nil {
		m.rt.Fatalf("offset %d is done; acknowledging it again fails: %v", o, err)
	}
	if ok && v != Extend {
		delete(m.valid, o)
	}
	if err == nil && v == Release && ok {
		m.released[o]++
	}
	m.carry()
	if err == nil && v == Acknowledge && !m.held {
		m.committed[o] = true
		delete(m.valid, o)
		if !m.state.IsDone(scriptGroup, "", o) {
			m.rt.Fatalf("offset %d was acknowledged and committed, and is not done", o)
		}
	}
}

// invent says something of a message that nobody has had, by a lease of another one.
func (m *model) invent() {
	if len(m.takers) == 0 || m.End() == 0 {
		return
	}
	x := m.takers[len(m.takers)-1]
	l := x.Lease
	l.Offset = record.Offset(rapid.IntRange(0, int(m.End())-1).Draw(m.rt, "offset"))
	if m.given[l.Offset] > 0 || l.Nonce>>32 != m.term {
		return
	}
	v := rapid.SampledFrom([]Verdict{Acknowledge, Nack, Release, Extend, Dead}).Draw(m.rt, "verdict")
	if _, err := m.desk("").Settle(m.now, Settlement{Lease: l, Verdict: v, Delay: -1}); !errors.Is(err, ErrLeaseUnknown) {
		m.rt.Fatalf("lease %v, which was never given, is answered %v to %d", l, err, v)
	}
}

// dropDesks: the leader begins anew, as it does when it does not know whether what it
// wanted is committed.
func (m *model) dropDesks() {
	if m.held {
		return
	}
	m.drop()
	m.drops++
	clear(m.valid)
}

// carry overrides world's: it also takes note of leases that ended by themselves.
func (m *model) carry() {
	m.world.carry()
	d := m.desks[""]
	for o := range m.valid {
		l := (*lease)(nil)
		if d != nil {
			l = d.leases.at(o)
		}
		if l == nil || l.nonce != m.valid[o].Lease.Nonce || l.state == failing || l.state == acking {
			delete(m.valid, o)
		}
	}
}

func (m *model) pass() {
	m.advance(rapid.Int64Range(1, 70_000).Draw(m.rt, "ms"))
	m.carry()
}

// gone: a session ends; or a consumer answers a question.
func (m *model) gone() {
	who := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(m.rt, "who")
	d := m.desk("")
	if rapid.Bool().Draw(m.rt, "answers") {
		d.leases.each(0, func(l *lease) bool {
			if l.state != asked {
				return true
			}
			a := rapid.SampledFrom([]Answer{AnswerDone, AnswerWorking, AnswerUnknown}).Draw(m.rt, "answer")
			d.Answer(m.now, d.leaseOf(l), a)
			return false
		})
	} else {
		d.SessionGone(m.now, who)
	}
	m.carry()
}

func keysOf[K comparable, V any](in map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range in {
			if !yield(k) {
				return
			}
		}
	}
}

// deadLetters are written, or not; then their sources are let go.
func (m *model) deadLetters() {
	d := m.desk("")
	for o, ok := d.dying.next(0); ok; o, ok = d.dying.next(o + 1) {
		if rapid.IntRange(0, 3).Draw(m.rt, "fails") == 0 {
			d.DeadFailed(m.now, o, fmt.Errorf("no leader"))
			continue
		}
		if m.state.failureOf(o) == nil {
			m.rt.Fatalf("offset %d is a dead letter and never failed", o)
		}
		d.DeadWritten([]record.Offset{o})
		if !m.held {
			m.dead[o] = true
		}
	}
	m.carry()
}

func (s *State) failureOf(o record.Offset) *failure { return s.cursor(scriptGroup, "").failures[o] }

func (m *model) leaderChanges() {
	if rapid.Bool().Draw(m.rt, "snapshot") {
		m.restart()
	} else {
		m.lead()
	}
	m.valid = map[record.Offset]Taken{}
}

// fatalT lets the world's helpers, made for scripts, fail a property.
type fatalT struct {
	testing.TB
	rt *rapid.T
}

func (f fatalT) Fatal(args ...any) { f.rt.Fatal(args...) }

func (f fatalT) Fatalf(format string, args ...any) { f.rt.Fatalf(format, args...) }

// TestQueueProperties drives a group with members that acknowledge, refuse, release,
// vanish, answer and speak late, through failovers, restarts and commits that take
// their time. Whatever they do:
//
//   - what was acknowledged, and told so, is never delivered again; nor what is dead;
//   - a message has one valid lease at a time;
//   - one message of a key is in hand at a time, in order;
//   - deliveries are bounded: by the limit, one more that was lost together with others,
//     and one for each change of the leader or its desk, or release;
//   - a lease that was given is known, one that was not is not;
//   - nothing is delivered before it is due;
//   - in the end, with members that do their work, everything is done.
func TestQueueProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(rt)
		m.t = fatalT{t, rt}
		m.rt.Repeat(map[string]func(*rapid.T){
			"send":   func(rt *rapid.T) { m.rt = rt; m.send() },
			"take":   func(rt *rapid.T) { m.rt = rt; m.take() },
			"take 2": func(rt *rapid.T) { m.rt = rt; m.take() },
			"settle": func(rt *rapid.T) { m.rt = rt; m.settle() },
			"time":   func(rt *rapid.T) { m.rt = rt; m.pass() },
			"gone":   func(rt *rapid.T) { m.rt = rt; m.gone() },
			"invent": func(rt *rapid.T) { m.rt = rt; m.invent() },
			"drop":   func(rt *rapid.T) { m.rt = rt; m.dropDesks() },
			"dead":   func(rt *rapid.T) { m.rt = rt; m.deadLetters() },
			"leader": func(rt *rapid.T) { m.rt = rt; m.leaderChanges() },
			"hold":   func(rt *rapid.T) { m.held = true },
			"apply":  func(rt *rapid.T) { m.rt = rt; m.apply() },
		})
		m.finish()
	})
}

func (m *model) apply() {
	m.held = false
	list := m.underWay
	m.underWay = nil
	for _, u := range list {
		m.commit(u.member, u.ops)
		for _, op := range u.ops {
			if op.Kind == OpDead {
				for _, o := range op.Offsets {
					m.dead[o] = true
				}
			}
		}
	}
	m.carry()
}

// finish: members do their work until nothing comes any more.
func (m *model) finish() {
	m.apply()
	for range 2000 {
		c, _ := m.state.Counts(scriptGroup, "", m.End())
		if c.Backlog == 0 {
			return
		}
		taken, _, _ := m.desk("").Take(m.now, Taking{Member: Member{ID: "last", Session: "last"}, Max: 100, MaxBytes: 1 << 20})
		for _, x := range taken {
			m.delivered("last", x)
			if _, err := m.desk("").Settle(m.now, Settlement{Lease: x.Lease, Verdict: Acknowledge}); err != nil {
				m.rt.Fatal(err)
			}
		}
		m.carry()
		d := m.desk("")
		for o, ok := d.dying.next(0); ok; o, ok = d.dying.next(o + 1) {
			d.DeadWritten([]record.Offset{o})
		}
		m.carry()
		m.advance(1000)
		m.carry()
	}
	m.rt.Fatalf("messages are lost: %+v; %+v", m.desk("").Explain(m.now, 1), m.desk("").Pending(m.now, 0, 10))
}
