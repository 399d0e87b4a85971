package queue

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tube-mq/tube/internal/record"
)

// TestScripts runs the files of testdata: each is a story about one partition and
// the group 7. Rewrite their outputs with -rewrite.
//
//	group [max-attempts=N lease=D max-handling=D backoff=(D,…) key park broadcast auto rate=N rate-bytes=N in-flight=N paused filter=TEXT from=start|end]
//	configure …        the same, for the group that is there
//	send V… [key=K] [delay=D] [id=ID] [window=S] [after=S] [keep]     one batch; ids are remembered for so many seconds
//	take M [n=N] [bytes=N] [held=N] [ask]        M is member and session; ask: it can be asked
//	ack|nack|release|extend|dead O… [of=M] [delay=D] [reason=TEXT] [lease=ID|nonce-of=O]   the latest lease of each offset; or one that is made of another's
//	answer O done|working|unknown
//	gone M             the session ends
//	advance D          time passes; what is due is done on time
//	hold               from now on what is decided stays under way; apply [n=N]: it is committed, hold ends
//	failover           another leader takes over with what is committed; what was under way is lost
//	drop               the same leader begins anew with what is committed
//	restart            the state goes through a snapshot; its bytes must stay; then failover
//	written O…|unwritten O TEXT   what became of dead letters
//	retry|skip O       an operator's word on a failed message
//	seek O|purge|trim O|cancel O…|move O D|forget M|delete|reopen      forget: a member's cursor; delete: the group; reopen: and it begins anew at the start
//	state, explain, pending, trace O…, delayed
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		w := newWorld()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t, w.d = t, d
			w.out.Reset()
			w.run(d.Cmd)
			if w.out.Len() == 0 {
				return "ok\n"
			}
			return w.out.String()
		})
	})
}

const scriptGroup = GroupID(7)

// world is a partition with a scripted clock and log.
type world struct {
	t        testing.TB
	d        *datadriven.TestData
	out      strings.Builder
	now      int64
	log      []Message
	start    record.Offset
	state    *State
	settings Settings
	filter   Filter
	hands    *Hands
	desks    map[string]*Desk
	given    map[string]Given // by desks that ended in this term
	term     uint64
	held     bool
	underWay []worldOps
	leases   map[string]Lease // by member and offset, and by offset
	quiet    bool
}

type worldOps struct {
	member string
	ops    []Op
}

func newWorld() *world {
	w := &world{now: 1_800_000_000_000, state: NewState(), leases: map[string]Lease{}}
	w.lead()
	return w
}

func (w *world) lead() {
	w.term++
	w.desks, w.hands, w.held, w.underWay = map[string]*Desk{}, NewHands(), false, nil
	w.given = map[string]Given{}
}

// drop ends all desks; the same leader makes new ones.
func (w *world) drop() {
	for _, n := range w.names() {
		w.desks[n].Close(w.now)
		w.given[n] = w.desks[n].Given()
		delete(w.desks, n)
	}
}

// Messages implements Source.
func (w *world) Messages(o record.Offset) ([]Message, error) {
	if o < w.start {
		return nil, ErrGone
	}
	return w.log[o:min(o+3, w.End())], nil
}

// End implements Source.
func (w *world) End() record.Offset { return record.Offset(len(w.log)) }

func (w *world) read(f func(*State)) { f(w.state) }

// desk is the desk of a cursor, made when it is first needed.
func (w *world) desk(member string) *Desk {
	name := ""
	if w.settings.Broadcast {
		name = member
	}
	d := w.desks[name]
	if d == nil {
		if w.settings.Broadcast {
			w.commit(name, []Op{{Kind: OpOpen, Group: scriptGroup, Member: name, Offset: w.from()}})
		}
		given, ok := w.given[name]
		if !ok {
			given = FirstOf(w.term)
		}
		d = NewDesk(DeskConfig{
			Group: scriptGroup, Member: name, Settings: w.settings, Filter: w.filter, Read: w.read, Source: w, Hands: w.hands, Given: given,
		}, w.now)
		w.desks[name] = d
	}
	return d
}

func (w *world) from() record.Offset {
	if w.settings.StartAtMillis == StartAtEnd {
		return w.End()
	}
	return 0
}

func (w *world) names() []string {
	var names []string
	for n := range w.desks {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// settle carries out what desks want done, until nothing is left.
func (w *world) carry() {
	for again := true; again; {
		again = false
		for _, n := range w.names() {
			e := w.desks[n].Effects()
			for _, a := range e.Asks {
				var list []string
				for _, l := range a.Leases {
					list = append(list, fmt.Sprint(l.Offset))
				}
				w.printf("ask %s about %s\n", a.Member.ID, strings.Join(list, " "))
			}
			for _, o := range e.Dying {
				count, records := w.state.Attempts(scriptGroup, n, o)
				w.printf("dead letter %d after %d:", o, count)
				for _, r := range records {
					w.printf(" [%s %s %q]", r.Member, r.Address, r.Reason)
				}
				w.printf("\n")
			}
			if e.Gone {
				w.commit("", []Op{{Kind: OpTrim, Offset: w.start}})
				again = true
			}
			if len(e.Ops) > 0 {
				again = true
				w.commit(n, e.Ops)
			}
		}
	}
}

// commit applies ops, or keeps them under way.
func (w *world) commit(name string, ops []Op) {
	if w.held {
		w.underWay = append(w.underWay, worldOps{name, ops})
		return
	}
	a, err := w.state.Apply(AppendCommand(nil, w.now, ops), w.End())
	if err != nil {
		w.t.Fatal(err)
	}
	w.applied(a)
	for i := range ops {
		if d := w.desks[name]; d != nil && ops[i].Kind != OpOpen {
			d.Committed(w.now, &ops[i])
		}
	}
}

func (w *world) applied(a Applied) {
	for _, l := range a.Lost {
		w.printf("lost %d before %d%s\n", l.Count, l.Before, suffix(l.Member))
		if d := w.desks[l.Member]; d != nil {
			d.Trimmed(l.Before)
		}
	}
	for _, n := range w.names() {
		if len(a.Fired) > 0 {
			w.desks[n].Fired(a.Fired)
		}
	}
}

func (w *world) printf(format string, args ...any) {
	if !w.quiet {
		fmt.Fprintf(&w.out, format, args...)
	}
}

func (w *world) has(key string) bool { return w.d.HasArg(key) }

func (w *world) list(key string) []string {
	for _, a := range w.d.CmdArgs {
		if a.Key == key {
			return a.Vals
		}
	}
	return nil
}

func (w *world) arg(key, def string) string {
	if v := w.list(key); v != nil {
		return strings.Join(v, ",")
	}
	return def
}

func (w *world) num(key string, def int) int {
	n, err := strconv.Atoi(w.arg(key, strconv.Itoa(def)))
	if err != nil {
		w.t.Fatalf("%s: %v", key, err)
	}
	return n
}

func (w *world) dur(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// plain are the arguments that are no keys with values.
func (w *world) plain() []string {
	var out []string
	for _, a := range w.d.CmdArgs {
		if len(a.Vals) == 0 {
			out = append(out, a.Key)
		}
	}
	return out
}

func (w *world) offsets() []record.Offset {
	var out []record.Offset
	for _, s := range w.plain() {
		if n, err := strconv.Atoi(s); err == nil {
			out = append(out, record.Offset(n))
		}
	}
	return out
}

func (w *world) run(cmd string) {
	switch cmd {
	case "group":
		w.configure()
		at := w.from()
		if w.settings.Broadcast {
			at = -1
		}
		w.commit("", []Op{{Kind: OpOpen, Group: scriptGroup, Offset: at}})
	case "configure":
		w.configure()
		for _, n := range w.names() {
			w.desks[n].Configure(w.settings, w.filter, w.now)
		}
	case "send":
		w.send()
	case "take":
		w.take()
	case "ack", "nack", "release", "extend", "dead":
		w.verdict(map[string]Verdict{"ack": Acknowledge, "nack": Nack, "release": Release, "extend": Extend, "dead": Dead}[cmd])
	case "answer":
		a := map[string]Answer{"done": AnswerDone, "working": AnswerWorking, "unknown": AnswerUnknown}[w.plain()[1]]
		o := w.offsets()[0]
		w.desk(w.arg("of", "")).Answer(w.now, w.leases[fmt.Sprint(o)], a)
	case "gone":
		for _, n := range w.names() {
			w.desks[n].SessionGone(w.now, w.plain()[0])
		}
	case "advance":
		w.advance(w.dur(w.plain()[0]).Milliseconds())
	case "hold":
		w.held = true
	case "apply":
		w.apply(w.num("n", len(w.underWay)))
	case "failover":
		w.lead()
	case "drop":
		w.drop()
	case "restart":
		w.restart()
	default:
		w.operate(cmd)
	}
	w.carry()
}

// apply commits the first n of what is under way; if it is all, hold ends.
func (w *world) apply(n int) {
	list := w.underWay[:n]
	w.underWay = w.underWay[n:]
	w.held = false
	for _, u := range list {
		w.commit(u.member, u.ops)
	}
	w.held = len(w.underWay) > 0
}

// operate runs what an operator does, and what shows something.
func (w *world) operate(cmd string) {
	switch cmd {
	case "written":
		w.desk("").DeadWritten(w.offsets())
	case "unwritten":
		w.desk("").DeadFailed(w.now, w.offsets()[0], errors.New(w.plain()[1]))
	case "retry", "skip":
		if err := w.desk("").Retry(w.offsets()[0], cmd == "skip"); err != nil {
			w.printf("%v\n", err)
		}
	case "seek":
		w.everywhere(Op{Kind: OpSeek, Group: scriptGroup, Offset: w.offsets()[0]})
	case "purge":
		w.everywhere(Op{Kind: OpSeek, Group: scriptGroup, Offset: w.End()})
	case "trim":
		w.start = w.offsets()[0]
		if !w.has("silent") {
			w.applied(w.state.Trim(w.start))
		}
	case "cancel":
		w.commit("none", []Op{{Kind: OpCancel, Offsets: w.offsets()}})
	case "move":
		w.commit("none", []Op{{Kind: OpMove, Offset: w.offsets()[0], DueMillis: w.now + w.dur(w.plain()[1]).Milliseconds()}})
	case "forget":
		w.commit("none", []Op{{Kind: OpDrop, Group: scriptGroup, Member: w.plain()[0]}})
		delete(w.desks, w.plain()[0])
	case "delete":
		w.commit("none", []Op{{Kind: OpDrop, Group: scriptGroup}})
		w.lead()
	case "reopen":
		w.commit("none", []Op{{Kind: OpDrop, Group: scriptGroup}, {Kind: OpOpen, Group: scriptGroup, Offset: 0}})
		w.lead()
	default:
		w.show(cmd)
	}
}

// everywhere commits an op of an operator, of which all desks hear.
func (w *world) everywhere(op Op) {
	w.commit("none", []Op{op})
	for _, n := range w.names() {
		w.desks[n].Committed(w.now, &op)
	}
}

func (w *world) configure() {
	s := Settings{
		MaxAttempts: w.num("max-attempts", 5), Lease: w.dur(w.arg("lease", "30s")), MaxHandling: w.dur(w.arg("max-handling", "1h")),
		OrderByKey: w.has("key"), ParkKey: w.has("park"), Broadcast: w.has("broadcast"), AutoAck: w.has("auto"),
		Rate: float64(w.num("rate", 0)), RateBytes: float64(w.num("rate-bytes", 0)), MaxInFlight: w.num("in-flight", 1000),
		Paused: w.has("paused"), StartAtMillis: StartAtStart,
	}
	for _, b := range w.list("backoff") {
		s.Backoff = append(s.Backoff, w.dur(b))
	}
	if w.arg("from", "start") == "end" {
		s.StartAtMillis = StartAtEnd
	}
	w.settings, w.filter = s, nil
	if text := w.arg("filter", ""); text != "" {
		w.filter = func(m *Message) (bool, error) {
			if string(m.Value) == "bad" {
				return false, errors.New("no such field")
			}
			return strings.Contains(string(m.Value), text), nil
		}
	}
}

func (w *world) send() {
	a := &Annexe{ClockMillis: w.now, WindowMillis: int64(w.num("window", 0)) * 1000, AfterMillis: int64(w.num("after", 0)) * 1000, Keep: w.has("keep")}
	values := slices.DeleteFunc(w.plain(), func(s string) bool { return s == "keep" })
	for i := range values {
		if d := w.arg("delay", ""); d != "" {
			a.Delays = append(a.Delays, AnnexeDelay{int32(i), w.now + w.dur(d).Milliseconds()})
		}
		if id := w.list("id"); i < len(id) && id[i] != "-" {
			a.IDs = append(a.IDs, AnnexeID{int32(i), HashID(id[i])})
		}
	}
	parsed, err := ParseAnnexe(a.Append(nil), int32(len(values)))
	if err != nil {
		w.t.Fatal(err)
	}
	known := w.state.Known(&parsed)
	if len(known) > 0 && (!a.Keep || len(known) == len(values)) {
		for _, r := range known {
			w.printf("%s is known, at %d\n", values[r.Delta], r.First)
		}
		return
	}
	base := w.End()
	key := w.arg("key", "")
	for _, v := range values {
		w.log = append(w.log, Message{Offset: w.End(), Value: []byte(v), Key: []byte(key), KeyNull: key == ""})
	}
	if !a.Empty() {
		w.applied(w.state.Batch(&parsed, base, known))
	}
}

func (w *world) take() {
	who := w.plain()[0]
	m := Member{ID: who, Session: who, Address: "host-of-" + who, CanBeAsked: w.has("ask")}
	if s := w.arg("session", ""); s != "" {
		m.Session = s
	}
	d := w.desk(who)
	t := Taking{Member: m, Max: w.num("n", 1), MaxBytes: w.num("bytes", 1<<20), Held: w.num("held", 0)}
	more := true
	var taken []Taken
	for more {
		taken, more, _ = d.Take(w.now, t)
	}
	var line []string
	for _, x := range taken {
		alone := ""
		if x.Alone {
			alone = " alone"
		}
		line = append(line, fmt.Sprintf("%d:%s attempt %d%s", x.Lease.Offset, x.Message.Value, x.Lease.Attempt, alone))
		w.leases[fmt.Sprint(x.Lease.Offset)] = x.Lease
		w.leases[who+fmt.Sprint(x.Lease.Offset)] = x.Lease
	}
	if line == nil {
		line = []string{"nothing"}
	}
	w.printf("%s\n", strings.Join(line, ", "))
}

func (w *world) verdict(v Verdict) {
	of := w.arg("of", "")
	for _, o := range w.offsets() {
		s := Settlement{Lease: w.leases[of+fmt.Sprint(o)], Verdict: v, Delay: -1, Reason: w.arg("reason", "")}
		if delay := w.arg("delay", ""); delay != "" {
			s.Delay = w.dur(delay)
		}
		if other := w.arg("nonce-of", ""); other != "" {
			s.Lease = w.leases[of+other]
			s.Lease.Offset = o
		}
		if id := w.arg("lease", ""); id != "" {
			var err error
			if s.Lease, err = ParseLease(id); err != nil {
				w.printf("%v\n", err)
				continue
			}
		}
		if _, err := w.desk(of).Settle(w.now, s); err != nil {
			w.printf("%d: %v\n", o, err)
		}
	}
}

// advance goes from one deadline to the next.
func (w *world) advance(by int64) {
	end := w.now + by
	for {
		w.carry()
		next := w.state.NextDueMillis()
		for _, n := range w.names() {
			if at := w.desks[n].DeadlineMillis(); at != 0 && (next == 0 || at < next) {
				next = at
			}
		}
		if next == 0 || next > end {
			break
		}
		before := w.now
		w.now = max(w.now, next)
		if at := w.state.NextDueMillis(); at != 0 && at <= w.now {
			w.commit("none", []Op{{Kind: OpTick}})
		}
		for _, n := range w.names() {
			w.desks[n].Tick(w.now)
		}
		if w.now == before && w.held {
			break
		}
	}
	w.now = end
}

func (w *world) restart() {
	b := w.state.Append(nil)
	s, err := Restore(b, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if again := s.Append(nil); !bytes.Equal(b, again) {
		w.t.Fatalf("a state that was restored is written differently:\n%x\n%x", b, again)
	}
	w.state = s
	w.lead()
}

// show prints what is known.
func (w *world) show(cmd string) {
	switch cmd {
	case "state":
		g := w.state.groups[scriptGroup]
		for _, n := range slices.Sorted(func(yield func(string) bool) {
			for n := range g.cursors {
				if !yield(n) {
					return
				}
			}
		}) {
			c, _ := w.state.Counts(scriptGroup, n, w.End())
			w.printf("%sfloor %d, backlog %d, delayed %d, failed %d, suspects %d, acknowledged %d, dead %d, lost %d\n",
				strings.TrimPrefix(suffix(n)+": ", ": "), c.Floor, c.Backlog, c.Delayed, c.Failed, c.Suspects, c.Acknowledged, c.Dead, c.Lost)
		}
	case "explain":
		e := w.desk(w.arg("of", "")).Explain(w.now, w.num("waiting", 0))
		w.printf("%s: %s\nready %d, leased %d, waiting %d, delayed %d, held back %d, dying %d, parked %d\n",
			e.Reason, e.Sentence, e.Ready, e.Leased, e.Waiting, e.Delayed, e.HeldBack, e.Dying, e.Parked)
	case "pending":
		for _, p := range w.desk(w.arg("of", "")).Pending(w.now, 0, 100) {
			w.printf("%d %s, failed %d", p.Offset, p.Status, p.Attempts)
			if p.Member != "" {
				w.printf(", with %s at %s", p.Member, p.Address)
			}
			if p.BlockedBy >= 0 {
				w.printf(", by %d", p.BlockedBy)
			}
			if p.DueMillis > w.now {
				w.printf(", due in %v", time.Duration(p.DueMillis-w.now)*time.Millisecond)
			}
			w.printf("\n")
		}
	case "trace":
		for _, o := range w.offsets() {
			status, _, _ := w.desk(w.arg("of", "")).Trace(w.now, o)
			w.printf("%d %s\n", o, status)
		}
	case "delayed":
		for _, d := range w.state.Delayed(0, 100) {
			w.printf("%d due in %v\n", d.Offset, time.Duration(d.DueMillis-w.now)*time.Millisecond)
		}
	default:
		w.t.Fatalf("unknown command %s", cmd)
	}
}
