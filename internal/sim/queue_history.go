package sim

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// queueHistory is one team's.
type queueHistory struct {
	t      *team
	log    []storedMessage                    // by offset
	start  record.Offset                      // where the log begins
	byID   map[string]record.Offset           // the latest of them
	byKey  map[string][]record.Offset         // without those that were sent with a delay
	groups map[queue.GroupID][]*cursorHistory // by member
	// generations have been given to cursors.
	generations uint32
	// intents are those of its completions that are not done.
	intents map[string]bool
	// clockMillis is the log's queue clock: the largest of its entries'. All that begun
	// cursors are done with is below passed; unclocked were done by what bears no clock.
	clockMillis int64
	passed      record.Offset
	unclocked   []record.Offset
}

type storedMessage struct {
	message
	id, key   string        // key "": none
	dueMillis int64         // 0: at once
	at        time.Duration // when its leader took it, or before
	// By the log's clock: when it was stored, and when all cursors were done with it.
	storedMillis, doneMillis int64
}

// sentAt is when a leader stamped a message; its window begins then, though it may be
// committed later. If his wall clock had jumped it is not known: long ago.
func (k *queueChecker) sentAt(stampMillis int64) time.Duration {
	at := time.UnixMilli(stampMillis).Sub(epoch)
	if at > k.c.now+clockSlack {
		return math.MinInt32
	}
	return at
}

// cursorHistory is a cursor's: of a group, or of a broadcast member.
type cursorHistory struct {
	g      *queueGroup
	member string // "": of the group
	// generation of the cursor; 0: it has not begun. placed is the term in which it got it.
	generation uint32
	placed     record.Term
	seeks      int
	fates      []*fate       // by offset
	floor      record.Offset // everything below is done
	// acked, died and gone are messages since it began; gone went with the log's start.
	acked, died, gone int64
	lost              map[record.Offset]int64 // what went when the log began there
	meters            map[record.Term]*meter
	// first, by key, is which of the key's messages may be the first that is not done.
	first map[string]int
	// letters are messages whose dead letter is committed and which are not let go.
	letters map[record.Offset]bool
	out     map[record.Offset]*handed // the latest leases that were neither settled nor ended
}

// fate is what became of a message in a group.
type fate struct {
	fails, suspects  int
	final            bool
	changed          record.Term // of the last entry about it
	done, dead       bool
	superseded       bool // the cursor was set elsewhere since: another fate has taken its place
	retried, skipped int  // so often somebody asked for it
	handed           int  // it left a node so often
	// said: so many acknowledgements were asked for, or inquiries answered with done,
	// and were not refused.
	said     int
	answered bool // an acknowledgement was answered
	leases   int  // handed out so often
}

// handed is a lease that was handed out.
type handed struct {
	node    *node
	life    int
	term    record.Term
	nonce   uint64
	session string
	key     string
	alone   bool
	until   time.Duration // certainly valid until then, unless it was settled or its session ended
}

func (k *queueChecker) of(t *team) *queueHistory {
	h := k.teams[t.id]
	if h == nil {
		h = &queueHistory{t: t, byID: map[string]record.Offset{}, byKey: map[string][]record.Offset{}, groups: map[queue.GroupID][]*cursorHistory{}, intents: map[string]bool{}}
		for _, g := range t.queue.groups {
			for _, m := range g.members {
				h.groups[g.id] = append(h.groups[g.id], &cursorHistory{
					g: g, member: m, first: map[string]int{}, letters: map[record.Offset]bool{}, out: map[record.Offset]*handed{},
					lost: map[record.Offset]int64{}, meters: map[record.Term]*meter{},
				})
			}
		}
		k.teams[t.id] = h
	}
	return h
}

func (h *cursorHistory) fate(o record.Offset) *fate {
	for record.Offset(len(h.fates)) <= o {
		h.fates = append(h.fates, &fate{})
	}
	return h.fates[o]
}

func (h *cursorHistory) String() string {
	if h.member == "" {
		return h.g.String()
	}
	return h.g.String() + " for " + h.member
}

// cursor is the history of a group's cursor.
func (k *queueChecker) cursor(g *queueGroup, member string) *cursorHistory {
	for _, h := range k.of(g.t).groups[g.id] {
		if h.member == member {
			return h
		}
	}
	k.fail("%s has no cursor %q", g, member)
	return nil
}

// leased is the history of the cursor that a lease bears.
func (k *queueChecker) leased(g *queueGroup, l queue.Lease) *cursorHistory {
	for _, h := range k.of(g.t).groups[g.id] {
		if queue.CursorOf(g.id, h.member) == l.Cursor {
			return h
		}
	}
	k.fail("%s gives a lease of cursor %x", g, l.Cursor)
	return nil
}

// cursors goes through those of all teams, in order.
func (k *queueChecker) cursors(yield func(*cursorHistory) bool) {
	for _, t := range k.c.teams {
		if t.queue == nil {
			continue
		}
		for h := range k.of(t).cursors {
			if !yield(h) {
				return
			}
		}
	}
}

func (h *queueHistory) cursors(yield func(*cursorHistory) bool) {
	for _, g := range h.t.queue.groups {
		for _, x := range h.groups[g.id] {
			if !yield(x) {
				return
			}
		}
	}
}

// parse reads what encodeMessage wrote.
func parse(v []byte) message {
	return message{client: binary.LittleEndian.Uint32(v), sequence: binary.LittleEndian.Uint32(v[4:]), sum: crc32.ChecksumIEEE(v[8:])}
}

func summed(m message) message {
	m.sum = crc32.ChecksumIEEE(text(m))
	return m
}

func isLetter(id string) bool { return strings.HasPrefix(id, "dead-") }

// letterID is the message id of a message's dead letter.
func (h *cursorHistory) letterID(o record.Offset) string {
	d := queue.DeadLetter{Group: h.g.id, Member: h.member, Source: h.g.t.partition(), Message: &queue.Message{Offset: o}}
	return d.ID()
}

// applied is told of every entry of a team, once.
func (k *queueChecker) applied(t *team, e replica.Entry, result any) {
	a := broker.WasApplied(e, result)
	h := k.of(t)
	h.tick(a.ClockMillis)
	if a.Base >= 0 {
		k.batch(t, e.Data, a.Base)
	}
	for i := range a.Ops {
		k.op(t, e.Term, &a.Ops[i])
	}
	k.begins(h, e.Term, a.Start)
	h.pass(a.ClockMillis > 0)
}

// tick takes note of an entry's clock, if it bears one.
func (h *queueHistory) tick(millis int64) {
	if millis == 0 {
		return
	}
	h.clockMillis = max(h.clockMillis, millis)
	for _, o := range h.unclocked {
		h.log[o].doneMillis = h.clockMillis
	}
	h.unclocked = nil
}

// pass takes note of what all cursors are done with since an entry.
func (h *queueHistory) pass(clocked bool) {
	floor := record.Offset(len(h.log))
	for x := range h.cursors {
		if x.generation != 0 {
			floor = min(floor, x.floorNow())
		}
	}
	h.unclocked = slices.DeleteFunc(h.unclocked, func(o record.Offset) bool { return o >= floor })
	for h.passed = min(h.passed, floor); h.passed < floor; h.passed++ {
		h.log[h.passed].doneMillis = h.clockMillis
		if !clocked {
			h.unclocked = append(h.unclocked, h.passed)
		}
	}
}

// batch takes down a batch's messages.
func (k *queueChecker) batch(t *team, data []byte, base record.Offset) {
	h := k.of(t)
	if base != record.Offset(len(h.log)) {
		k.fail("group %d stores a batch at offset %d, %d messages are there", t.id, base, len(h.log))
	}
	head, err := record.ParseHeader(data)
	if err == nil {
		err = record.Each(data[:head.SizeBytes()], record.Limits{}, func(r record.Record) bool {
			m := storedMessage{message: parse(r.Value), key: string(r.Key), at: k.sentAt(r.Timestamp), storedMillis: h.clockMillis}
			m.offset = uint64(len(h.log))
			for _, x := range r.Headers {
				switch x.Key {
				case queue.HeaderMessageID:
					m.id = string(x.Value)
				case queue.HeaderDeliverAt:
					m.dueMillis, _ = strconv.ParseInt(string(x.Value), 10, 64)
				}
			}
			k.stored(h, m)
			return true
		})
	}
	if err != nil {
		k.fail("group %d stores what is no batch at offset %d: %v", t.id, base, err)
	}
}

func (k *queueChecker) stored(h *queueHistory, m storedMessage) {
	o := record.Offset(m.offset)
	h.log = append(h.log, m)
	if first, known := h.byID[m.id]; known && m.id != "" && h.t.queue.window > 0 {
		k.repeated(h, &m, first)
	}
	if m.id != "" {
		h.byID[m.id] = o
	}
	if m.key != "" && m.dueMillis == 0 {
		h.byKey[m.key] = append(h.byKey[m.key], o)
	}
	if m.dueMillis > 0 {
		k.c.faults.count("queue: sent with a delay")
	}
	if m.client > completing && !isLetter(m.id) {
		x := k.completions[fmt.Sprint("complete-", m.client-completing)]
		x.stored++
		switch {
		case !x.intended:
			k.fail("%s sends its message to group %d, and nothing is acknowledged", x.id, h.t.id)
		case x.stored > 1:
			k.fail("%s sends its message to group %d %d times", x.id, h.t.id, x.stored)
		}
	}
	if isLetter(m.id) {
		k.letter(m)
	}
}

// repeated: an id is stored once more. That may be once its window has passed since the
// one before was sent, and since all groups were done with that.
func (k *queueChecker) repeated(h *queueHistory, m *storedMessage, first record.Offset) {
	was, window := &h.log[first], h.t.queue.window
	if age := k.c.now - was.at; k.q.straight && age < window-clockSlack {
		k.fail("group %d stores id %s at offset %d, and has had it at %d for %v, the window is %v", h.t.id, m.id, m.offset, first, age, window)
	}
	for x := range h.cursors {
		if x.generation != 0 && x.floorNow() <= first {
			k.fail("group %d stores id %s at offset %d, and had it at %d, up to which %s is not done: %d", h.t.id, m.id, m.offset, first, x, x.floor)
		}
	}
	// By the log's own clock, to the millisecond: no wall clock moves that.
	if age := h.clockMillis - max(was.storedMillis, was.doneMillis); age <= window.Milliseconds() {
		k.fail("group %d stores id %s at offset %d, and all were done %d ms ago with the one at %d, stored %d ms ago; the window is %v",
			h.t.id, m.id, m.offset, h.clockMillis-was.doneMillis, first, h.clockMillis-was.storedMillis, window)
	}
	if was.doneMillis > was.storedMillis+window.Milliseconds()/2 {
		k.c.faults.count("queue: id stored anew after a group was late")
	}
	k.c.faults.count("queue: id stored anew behind its window")
}

// says is 1 if a word on a lease counts: the cursor was not set elsewhere since it was given.
func (h *cursorHistory) says(l queue.Lease) int {
	if l.Generation == h.generation {
		return 1
	}
	return 0
}

// floorNow is below which everything is done.
func (h *cursorHistory) floorNow() record.Offset {
	for h.floor < record.Offset(len(h.fates)) && h.fates[h.floor].done {
		h.floor++
	}
	return h.floor
}

// letter: a dead letter is committed.
func (k *queueChecker) letter(m storedMessage) {
	k.c.faults.count("queue: dead letter written")
	for h := range k.cursors {
		t := h.g.t
		rest, ok := strings.CutPrefix(m.id, "dead-"+t.partition().String()+"-")
		offset, _, _ := strings.Cut(rest, "-")
		o, _ := strconv.ParseInt(offset, 10, 64)
		if !ok || h.letterID(record.Offset(o)) != m.id {
			continue
		}
		if !h.fate(record.Offset(o)).done {
			h.letters[record.Offset(o)] = true
			k.q.window(t, windowLetter, func() bool { return h.letters[record.Offset(o)] })
		}
	}
}

// op takes down one change of a queue's state.
func (k *queueChecker) op(t *team, term record.Term, op *queue.Op) {
	h := k.of(t)
	switch op.Kind {
	case queue.OpIntend:
		x := k.completions[op.Member]
		x.intended, h.intents[x.id] = true, true
		if x.refused {
			k.fail("%s was refused, and is intended all the same", x.id)
		}
		for _, l := range x.leases {
			home := k.leased(x.home, l)
			if l.Generation == home.generation && !home.fate(l.Offset).done {
				k.fail("%s is intended, and offset %d of %s is not acknowledged", x.id, l.Offset, x.home)
			}
		}
		k.c.faults.count("queue: complete intended")
		k.q.window(t, windowIntent, func() bool { return h.intents[x.id] })
		return
	case queue.OpIntended:
		x := k.completions[op.Member]
		if x.stored == 0 {
			k.fail("%s is done, and its message was not sent", x.id)
		}
		x.carried = true
		delete(h.intents, x.id)
		return
	}
	for _, g := range h.groups[op.Group] {
		if op.Kind == queue.OpSeek || g.member == op.Member {
			k.cursorOp(h, g, term, op)
		}
	}
}

// cursorOp takes down what changes a cursor.
func (k *queueChecker) cursorOp(h *queueHistory, g *cursorHistory, term record.Term, op *queue.Op) {
	switch {
	case op.Kind == queue.OpOpen:
		if g.generation == 0 && op.Offset >= 0 {
			k.place(h, g, term, op.Offset)
		}
		return
	case g.generation == 0 || op.Generation != 0 && op.Generation != g.generation:
		return // the cursor was set elsewhere since
	case op.Kind == queue.OpSeek:
		if op.Member == "" || op.Member == g.member {
			g.seeks++
			k.place(h, g, term, op.Offset)
			k.c.faults.count("queue: cursor set elsewhere")
		}
		return
	}
	for _, o := range op.Offsets {
		k.settled(h, g, term, op.Kind, o)
	}
	f := g.fate(op.Offset)
	switch {
	case op.Kind == queue.OpRetry:
		f.changed = term
		if f.retried == 0 {
			k.fail("the failures of offset %d of %s are forgotten, and nobody said so", op.Offset, g)
		}
		f.fails, f.final = 0, false
		k.c.faults.count("queue: parked message tried again")
	case op.Kind == queue.OpFail && !f.done:
		f.changed = term
		f.fails++
		f.final = f.final || op.Final
		k.c.faults.count("queue: delivery failed")
		if f.fails > g.g.settings.MaxAttempts {
			k.fail("offset %d of %s failed %d times, %d are allowed", op.Offset, g, f.fails, g.g.settings.MaxAttempts)
		}
	}
}

// place puts a cursor at an offset: what is behind is not done, what is before it is.
func (k *queueChecker) place(h *queueHistory, g *cursorHistory, term record.Term, at record.Offset) {
	h.generations++
	g.generation, g.placed = h.generations, term
	at = min(max(at, h.start), record.Offset(len(h.log)))
	for _, f := range g.fates {
		f.superseded = true
	}
	g.fates, g.floor = nil, 0
	for o := range h.log {
		f := g.fate(record.Offset(o))
		f.changed, f.done = term, record.Offset(o) < at
	}
	clear(g.first)
	clear(g.letters)
	clear(g.out)
}

// begins: the log begins at an offset. What cursors are not done with is gone.
func (k *queueChecker) begins(h *queueHistory, term record.Term, at record.Offset) {
	if at <= h.start {
		return
	}
	h.start = at
	for g := range h.cursors {
		if g.generation == 0 {
			continue
		}
		lost := int64(0)
		for o := g.floorNow(); o < at; o++ {
			f := g.fate(o)
			if f.done {
				continue
			}
			lost++
			f.changed, f.done = term, true
			delete(g.letters, o)
			delete(g.out, o)
		}
		g.gone += lost
		g.lost[at] = lost
		if lost > 0 {
			k.c.faults.count("queue: messages lost to retention")
		}
	}
	k.c.faults.count("queue: log begins later")
}

// lost: a leader says that messages went with the log's start. It is broker.QueueHooks.Lost.
func (k *queueChecker) lost(x broker.QueueLost) {
	for g := range k.cursors {
		if g.g.id != x.Group || g.member != x.Member {
			continue
		}
		k.c.faults.count("queue: loss told")
		if g.lost[x.Before] != x.Count {
			k.fail("%s is said to have lost %d messages as the log begins at %d, it lost %d", g, x.Count, x.Before, g.lost[x.Before])
		}
	}
}

// seeks is how often a group was set elsewhere, with all its members.
func (k *queueChecker) seeks(g *queueGroup) (n int) {
	for _, h := range k.of(g.t).groups[g.id] {
		n += h.seeks
	}
	return n
}

// parked is a message that keeps its key back.
func (k *queueChecker) parked(g *queueGroup) (record.Offset, bool) {
	if !g.settings.ParkKey {
		return 0, false
	}
	h := k.cursor(g, "")
	for o := h.floorNow(); o < record.Offset(len(h.fates)); o++ {
		if f := h.fates[o]; !f.done && (f.final || f.fails >= g.settings.MaxAttempts) {
			return o, true
		}
	}
	return 0, false
}

// unparking: a parked message is to be tried again, or set aside; the answer is to be told.
func (k *queueChecker) unparking(g *queueGroup, o record.Offset, skip bool) (heard func(error)) {
	f := k.cursor(g, "").fate(o)
	word := &f.retried
	if skip {
		word = &f.skipped
	}
	*word++
	return func(err error) {
		if err != nil && !unheard(err) {
			*word--
		}
	}
}

// settled: an offset is done, dead or a suspect.
func (k *queueChecker) settled(h *queueHistory, g *cursorHistory, term record.Term, kind queue.OpKind, o record.Offset) {
	if o >= record.Offset(len(h.log)) {
		k.fail("offset %d of %s is settled (%d), and not there", o, g, kind)
	}
	f := g.fate(o)
	f.changed = term
	if f.done {
		return
	}
	switch kind {
	case queue.OpAck:
		unwanted := g.g.unwanted != nil && g.g.unwanted(h.log[o].message)
		switch {
		case unwanted:
			k.c.faults.count("queue: message filtered out")
		case g.g.settings.AutoAck && f.leases > 0:
		case f.said == 0:
			k.fail("offset %d of %s is acknowledged, and nobody said so", o, g)
		}
		f.done = true
		g.acked++
		k.c.faults.count("queue: message acknowledged")
	case queue.OpDead:
		if g.g.settings.DeadLetter != "" {
			if _, written := k.of(h.t.queue.other).byID[g.letterID(o)]; !written {
				k.fail("offset %d of %s is let go as dead, and no dead letter of it is committed", o, g)
			}
		}
		switch {
		case !f.final && f.fails < g.g.settings.MaxAttempts:
			k.fail("offset %d of %s is dead after %d failures of %d", o, g, f.fails, g.g.settings.MaxAttempts)
		case g.g.settings.ParkKey && f.skipped == 0:
			k.fail("offset %d of %s, which is parked, is let go, and nobody said so", o, g)
		}
		f.done, f.dead = true, true
		g.died++
		delete(g.letters, o)
		k.c.faults.count("queue: message dead")
	case queue.OpSuspect:
		if f.suspects++; f.suspects > 1 {
			k.fail("offset %d of %s is a suspect for the second time", o, g)
		}
		k.c.faults.count("queue: message suspected")
	}
	if f.done {
		delete(g.out, o)
	}
}
