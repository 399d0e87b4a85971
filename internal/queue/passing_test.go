package queue

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tube-mq/tube/internal/record"
)

// idModel says when an id may be forgotten, and has to be.
type idModel struct {
	offset   record.Offset
	window   int64
	sent     int64
	done     bool
	doneFrom int64 // not before
	doneTo   int64 // not after; later than doneFrom only if it was done by what bears no clock
	free     bool  // there was a time when it need not be remembered
	loose    bool  // and then it was undone once more: whether it was forgotten in between is not said
}

// idWorld is a state with groups that come, go, acknowledge and are set elsewhere.
type idWorld struct {
	t    *rapid.T
	s    *State
	now  int64
	end  record.Offset
	ids  map[string]*idModel
	late []*idModel // done by what bears no clock, and nothing with a clock came since
}

// until is when it may be forgotten, atLatest when it has to be.
func (m *idModel) until() int64 { return max(m.sent, m.doneFrom) + m.window }

func (m *idModel) atLatest() int64 {
	return max(m.sent, m.doneTo) + m.window + max(m.window/32, leastStepMillis)
}

// clocked is told of every entry with a clock, before it is applied.
func (w *idWorld) clocked() {
	for _, m := range w.late {
		m.doneFrom, m.doneTo = w.now, w.now
	}
	w.late = nil
	for _, m := range w.ids {
		if m.done && w.now > m.until() {
			m.free = true
		}
	}
}

// look compares with the floor of all groups, after an entry.
func (w *idWorld) look(clocked bool) {
	floor := w.s.MinFloor()
	for _, m := range w.ids {
		switch {
		case floor <= m.offset:
			m.loose = m.loose || m.free && m.done
			m.done = false
		case !m.done:
			m.done, m.doneFrom, m.doneTo = true, w.s.clockMillis, w.s.clockMillis
			if !clocked {
				w.late = append(w.late, m)
			}
		}
	}
	if p := w.s.ids.passing; p.inUse() && p.floor > floor {
		w.t.Fatalf("everything below %d is said to be done, the floor is %d", p.floor, floor)
	}
}

func (w *idWorld) apply(ops ...Op) {
	w.clocked()
	if _, err := w.s.Apply(AppendCommand(nil, w.now, ops), w.end); err != nil {
		w.t.Fatal(err)
	}
	w.look(true)
}

// send sends a message with an id, and looks whether it should have been known.
func (w *idWorld) send(id string, window int64) {
	w.clocked()
	a := Annexe{ClockMillis: w.now, WindowMillis: window, AfterMillis: window, IDs: []AnnexeID{{0, HashID(id)}}}
	known := w.s.Known(&a)
	m := w.ids[id]
	if m != nil && !m.loose {
		must := !m.free
		mustNot := m.done && w.now > m.atLatest()
		if len(known) == 0 && must || len(known) > 0 && mustNot {
			w.t.Fatalf("at %d id %s is known: %v; %+v", w.now, id, known, *m)
		}
	}
	if len(known) > 0 {
		if m == nil || known[0].First != m.offset {
			w.t.Fatalf("id %s is known, at %d: %+v", id, known[0].First, m)
		}
		return
	}
	w.ids[id] = &idModel{offset: w.end, sent: w.now, window: window}
	w.end++
	w.s.Batch(&a, w.end-1, nil)
	w.look(true)
	if w.s.MinFloor() > w.end {
		w.ids[id].done, w.ids[id].doneFrom = true, 0 // nobody waits for it
	}
}

func (w *idWorld) restart() {
	b := w.s.Append(nil)
	s, err := Restore(b, nil)
	if err != nil || !bytes.Equal(s.Append(nil), b) {
		w.t.Fatalf("it does not read back: %v", err)
	}
	w.s = s
}

// An id is remembered for its window from when its message was stored, and from when all
// groups were done with it; and by a step longer at most.
func TestIDsAreRememberedForTheWindowFromWhenAllGroupsAreDone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &idWorld{t: t, s: NewState(), now: 1_000_000, ids: map[string]*idModel{}}
		windows := rapid.SampledFrom([][]int64{{50}, {1000}, {10_000}, {4000, 3_200_000}}).Draw(t, "windows")
		send := func(t *rapid.T) {
			w.send(fmt.Sprint(rapid.IntRange(1, 8).Draw(t, "id")), rapid.SampledFrom(windows).Draw(t, "window"))
		}
		group := rapid.Map(rapid.IntRange(1, 3), func(i int) GroupID { return GroupID(i) })
		offset := rapid.Custom(func(t *rapid.T) record.Offset { return record.Offset(rapid.IntRange(0, int(w.end)).Draw(t, "offset")) })
		t.Repeat(map[string]func(*rapid.T){
			"time": func(t *rapid.T) {
				x := rapid.SampledFrom(windows).Draw(t, "window")
				w.now += rapid.SampledFrom([]int64{1, 20, x / 32, x / 2, x + 1, x + x/16, 3 * x}).Draw(t, "ms")
			},
			"send": send, "resend": send,
			"open": func(t *rapid.T) {
				w.apply(Op{Kind: OpOpen, Group: group.Draw(t, "group"), Offset: offset.Draw(t, "at")})
			},
			"drop": func(t *rapid.T) { w.apply(Op{Kind: OpDrop, Group: group.Draw(t, "group")}) },
			"seek": func(t *rapid.T) {
				w.apply(Op{Kind: OpSeek, Group: group.Draw(t, "group"), Offset: offset.Draw(t, "to")})
			},
			"ack": func(t *rapid.T) {
				g := group.Draw(t, "group")
				if at := w.s.Floor(g); at >= 0 && at < w.end {
					w.apply(Op{Kind: OpAck, Group: g, Offsets: []record.Offset{at}})
				}
			},
			"ack all": func(t *rapid.T) {
				var ops []Op
				for g := range GroupID(4) {
					for o := max(0, w.s.Floor(g)); o < w.end; o++ {
						ops = append(ops, Op{Kind: OpAck, Group: g, Offsets: []record.Offset{o}})
					}
				}
				w.apply(ops...)
			},
			"trim": func(t *rapid.T) {
				w.s.Trim(offset.Draw(t, "start"))
				w.look(false)
			},
			"restart": func(*rapid.T) { w.restart() },
		})
	})
}

// What came without a window that counts from when all are done is judged and written as
// programs before it do: they may be replicas of the same partition.
func TestWithoutTheNewWindowNothingChanges(t *testing.T) {
	s := NewState()
	if _, err := s.Apply(AppendCommand(nil, 1000, []Op{{Kind: OpOpen, Group: 7}}), 0); err != nil {
		t.Fatal(err)
	}
	id := func(after int64, name string) *Annexe {
		return &Annexe{ClockMillis: s.clockMillis, WindowMillis: 60_000, AfterMillis: after, IDs: []AnnexeID{{0, HashID(name)}}}
	}
	s.Batch(id(0, "old"), 0, nil)
	if v := s.Append(nil)[0]; v != 2 {
		t.Fatalf("written as version %d", v)
	}
	if v := id(0, "old").Append(nil)[0]; v != 1 {
		t.Fatalf("an annexe of version %d", v)
	}
	if _, err := s.Apply(AppendCommand(nil, 100_000, []Op{{Kind: OpAck, Group: 7, Offsets: []record.Offset{0}}}), 1); err != nil {
		t.Fatal(err)
	}
	if known := s.Known(id(0, "old")); len(known) != 0 {
		t.Fatal("remembered when the window had passed and the group was done")
	}
	// From the first that has one on, others are refused the state.
	s.Batch(id(60_000, "new"), 1, nil)
	b := s.Append(nil)
	if b[0] != 3 || id(60_000, "new").Append(nil)[0] != 2 {
		t.Fatalf("written as version %d", b[0])
	}
	if len(s.Known(id(60_000, "old"))) != 0 || len(s.Known(id(60_000, "new"))) != 1 {
		t.Fatal("ids beside each other are not judged each by its own")
	}
	if _, err := Restore(append([]byte{2}, b[1:]...), nil); err == nil {
		t.Fatal("it is read as a state of version 2")
	}
	// And when none of them is left it is as it was.
	if _, err := s.Apply(AppendCommand(nil, 200_000, []Op{{Kind: OpAck, Group: 7, Offsets: []record.Offset{1}}}), 2); err != nil {
		t.Fatal(err)
	}
	s.Batch(&Annexe{ClockMillis: 400_000, Delays: []AnnexeDelay{{0, 400_001}}}, 2, nil)
	if v := s.Append(nil)[0]; v != 2 {
		t.Fatalf("written as version %d without ids", v)
	}
}
