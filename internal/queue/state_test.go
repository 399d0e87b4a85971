package queue

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// heapBytes is how much memory is in use that something refers to.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// manyMessages is a source of as many messages as are wanted.
type manyMessages struct{ end record.Offset }

func (s manyMessages) Messages(o record.Offset) ([]Message, error) {
	return []Message{{Offset: o, KeyNull: true}}, nil
}
func (s manyMessages) End() record.Offset { return s.end }

// Messages that are not acknowledged, with as many in between that are, take less
// than 100 bytes each, so that a million stay within 100 MB: first leased, then lost.
func TestUnacknowledgedTakeLittleMemory(t *testing.T) {
	const messages, most = 400_000, 20 << 20
	before := heapBytes()
	s := NewState()
	apply := func(now int64, ops ...Op) {
		if _, err := s.Apply(AppendCommand(nil, now, ops), messages); err != nil {
			t.Fatal(err)
		}
	}
	apply(1, Op{Kind: OpOpen, Group: 7})
	d := NewDesk(DeskConfig{
		Group: 7, Settings: Settings{MaxAttempts: 5, Lease: time.Minute, MaxInFlight: 1_000_000, MaxHandling: time.Hour},
		Read: func(f func(*State)) { f(s) }, Source: manyMessages{messages}, Hands: NewHands(),
	}, 1)
	m := Member{ID: "x", Session: "x"}
	odd := false
	for taken := 0; taken < messages; {
		got, _, err := d.Take(1, Taking{Member: m, Max: 4000, MaxBytes: 1 << 30})
		if err != nil || len(got) == 0 {
			t.Fatalf("%d taken, then %v", taken, err)
		}
		taken += len(got)
		for _, x := range got {
			if odd = !odd; odd {
				if _, err := d.Settle(1, Settlement{Lease: x.Lease, Verdict: Acknowledge}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, op := range d.Effects().Ops {
			apply(1, op)
			d.Committed(1, &op)
		}
	}
	limit := func(what string) {
		used := heapBytes() - before
		t.Logf("%s: %d MB", what, used>>20)
		if used > most {
			t.Errorf("%s: %d MB", what, used>>20)
		}
	}
	c, _ := s.Counts(7, "", messages)
	if c.Backlog != messages/2 || d.leases.count != messages/2 {
		t.Fatalf("backlog %d, %d leases", c.Backlog, d.leases.count)
	}
	limit("leased")
	d.Tick(61_000)
	for _, op := range d.Effects().Ops {
		apply(61_000, op)
		d.Committed(61_000, &op)
	}
	if c, _ := s.Counts(7, "", messages); c.Suspects != messages/2 {
		t.Fatalf("%d suspects", c.Suspects)
	}
	limit("lost")
	b := s.Append(nil)
	t.Logf("snapshot: %d bytes", len(b))
	if len(b) > 2<<20 {
		t.Errorf("a snapshot of %d bytes", len(b))
	}
	runtime.KeepAlive(d)
}

// Delayed messages take less than ten bytes each, a million 10 MB, also while they
// are moved, and fire fast.
func TestDelayedTakeLittleMemory(t *testing.T) {
	before := heapBytes()
	s := NewState()
	const n, most = 200_000, 2_000_000
	for base := 0; base < n; base += 1000 {
		a := Annexe{ClockMillis: 1000}
		for i := range 1000 {
			a.Delays = append(a.Delays, AnnexeDelay{int32(i), 10_000 + int64((base+i)*7919%n)})
		}
		s.Batch(&a, record.Offset(base), nil)
	}
	used := heapBytes() - before
	t.Logf("delayed: %d bytes", used)
	if used > most {
		t.Errorf("%d bytes", used)
	}
	for range 5 {
		for o := range record.Offset(n) {
			s.delays.move(o, 10_000+int64(o))
		}
	}
	if used := heapBytes() - before; used > most {
		t.Errorf("after five times as many moves: %d bytes", used)
	}
	b := s.Append(nil)
	back, err := Restore(b, nil)
	if err != nil || !bytes.Equal(back.Append(nil), b) {
		t.Fatalf("it does not read back: %v", err)
	}
	started := time.Now()
	a, err := back.Apply(AppendCommand(nil, 10_000+n, []Op{{Kind: OpTick}}), n)
	if err != nil || len(a.Fired) != n || back.DelayedCount() != 0 {
		t.Fatalf("%d fired, %v", len(a.Fired), err)
	}
	t.Logf("snapshot %d MB; all fired in %v", len(b)>>20, time.Since(started))
}

// Nothing a group can do makes the state grow without end.
func TestLimitsHold(t *testing.T) {
	s := NewState()
	do := func(ops ...Op) {
		if _, err := s.Apply(AppendCommand(nil, 1, ops), 1<<40); err != nil {
			t.Fatal(err)
		}
	}
	do(Op{Kind: OpOpen, Group: 7})
	for i := range 2 * MaxRecords {
		do(Op{Kind: OpFail, Group: 7, Offset: 5, Attempt: Attempt{Millis: int64(i), Member: strings.Repeat("m", 10_000), Reason: strings.Repeat("ä", 5_000)}})
	}
	count, records := s.Attempts(7, "", 5)
	if count != 2*MaxRecords || len(records) != MaxRecords || records[MaxRecords-1].Millis != 2*MaxRecords-1 {
		t.Errorf("%d attempts, %d records", count, len(records))
	}
	if r := records[0]; len(r.Reason) > MaxReasonBytes || strings.Trim(r.Reason, "ä") != "" || len(r.Member) > MaxMemberBytes {
		t.Errorf("a reason of %d bytes is kept, a member of %d", len(r.Reason), len(r.Member))
	}
	// Far beyond the first that is not done nothing is taken note of.
	do(Op{Kind: OpAck, Group: 7, Offsets: []record.Offset{MaxSpan + 10}}, Op{Kind: OpSuspect, Group: 7, Offsets: []record.Offset{MaxSpan + 10}})
	if c, _ := s.Counts(7, "", 1<<40); c.Acknowledged != 0 || c.Suspects != 0 {
		t.Errorf("%+v", c)
	}
	var dead []record.Offset
	for i := range MaxDead + 10 {
		dead = append(dead, record.Offset(i))
	}
	do(Op{Kind: OpDead, Group: 7, Offsets: dead})
	if n := s.groups[7].cursors[""].dead.count(); n != MaxDead {
		t.Errorf("%d dead offsets are known", n)
	}
	// The bytes that records take are counted right, or the limit means nothing.
	do(Op{Kind: OpDrop, Group: 7})
	if s.recordBytes != 0 || s.failures != 0 || s.cursors != 0 {
		t.Errorf("an empty state has %d bytes of records, %d failures, %d cursors", s.recordBytes, s.failures, s.cursors)
	}
	for i := range MaxIDs/1000 + 3 {
		a := Annexe{ClockMillis: 5, WindowMillis: 1 << 40}
		for k := range 1000 {
			a.IDs = append(a.IDs, AnnexeID{int32(k), MessageHash{byte(i), byte(i >> 8), byte(k), byte(k >> 8)}})
		}
		s.Batch(&a, record.Offset(1000*i), nil)
	}
	if n := s.ids.len(); n > MaxIDs+1000 || len(s.ids.byHash) != n {
		t.Errorf("%d message ids are remembered", n)
	}
}

func TestTooManyFailuresHoldBackWhatIsNew(t *testing.T) {
	w := newWorld()
	w.t = t
	w.settings = Settings{MaxAttempts: 5, Lease: time.Minute, MaxInFlight: 10}
	w.commit("", []Op{{Kind: OpOpen, Group: scriptGroup}})
	w.log = make([]Message, 10)
	w.state.failures = MaxFailures
	m := Taking{Member: Member{ID: "x", Session: "x"}, Max: 5, MaxBytes: 100}
	if got, _, _ := w.desk("").Take(w.now, m); len(got) != 0 {
		t.Fatalf("%d handed out", len(got))
	}
	if e := w.desk("").Explain(w.now, 1); e.Reason != ReasonFailures {
		t.Errorf("explained as %s: %s", e.Reason, e.Sentence)
	}
	w.state.failures--
	if got, _, _ := w.desk("").Take(w.now, m); len(got) != 5 {
		t.Fatalf("%d handed out", len(got))
	}
}

func TestLeaseIDs(t *testing.T) {
	for _, l := range []Lease{{1, 2, 3, 4, 0, 0}, {0, 1 << 60, 1, 1<<64 - 1, CursorOf(7, "cache-7"), 0}, {0, 1 << 60, 1, 1<<64 - 1, CursorOf(7, "cache-7"), 1<<32 - 1}} {
		if back, err := ParseLease(l.String()); err != nil || back != l {
			t.Errorf("%s is read as %v, %v", l, back, err)
		}
	}
	for _, id := range []string{
		"", "1-2-3", "1-2-3-4-0", "1-2-3-0", "1-2-3-4-5-0", "1-2-3-4-0-6", "1-2-3-4-5-100000000", "1-2-3-4-5-6-7", "1-2-3-4-", "1-2-3-4-8-", "1-2-3-4-5-6-",
		"1-2-3-4-100000000", "2147483648-2-3-4", "1-2-f-4", "x-2-3-4", "-1-2-3-4", "1-99999999999999999999-3-4", strings.Repeat("1", 100),
	} {
		if l, err := ParseLease(id); !errors.Is(err, ErrLeaseUnknown) {
			t.Errorf("%q is read as %v, %v", id, l, err)
		}
	}
}

// The clock follows the time that passes. A wall clock that jumps moves it by a
// thousandth of that at most, either way; in the long run they agree.
func TestClockDoesNotJump(t *testing.T) {
	var c Clock
	const start = int64(1_800_000_000_000)
	if c.Now(start, 0) != start {
		t.Fatal("it does not begin with the wall clock")
	}
	running := time.Duration(0)
	step := func(ahead time.Duration, by time.Duration) int64 {
		running += by
		return c.Now(start+running.Milliseconds()+ahead.Milliseconds(), running)
	}
	at := step(1000*time.Hour, time.Minute)
	if off := at - start - 60_000; off < 0 || off > 60 {
		t.Errorf("a jump forward by 1000 h moved it by %d ms in a minute", off)
	}
	next := step(-1000*time.Hour, time.Minute)
	if off := next - at - 60_000; off > 0 || off < -60 {
		t.Errorf("a jump back moved it by %d ms in a minute", off)
	}
	last := next
	for range 10_000 {
		now := step(500*time.Millisecond, time.Second)
		if now < last {
			t.Fatal("it went back")
		}
		last = now
	}
	if off := last - start - running.Milliseconds(); off < 499 || off > 501 {
		t.Errorf("after hours it is off by %d ms, not by 500 as the wall clock", off)
	}
	c.AtLeast(last+1000, start+running.Milliseconds(), running)
	if now := step(0, 0); now < last+1000 {
		t.Errorf("it is behind what others were told")
	}
}

func FuzzState(f *testing.F) {
	w := newWorld()
	a := Annexe{ClockMillis: w.now, WindowMillis: 60_000, AfterMillis: 50_000, Delays: []AnnexeDelay{{0, w.now + 5}, {2, w.now + 9}}, IDs: []AnnexeID{{1, HashID("x")}}}
	ops := []Op{
		{Kind: OpOpen, Group: 7, Offset: 0}, {Kind: OpOpen, Group: 8, Offset: -1}, {Kind: OpOpen, Group: 8, Member: "m", Offset: 2},
		{Kind: OpAck, Group: 7, Offsets: []record.Offset{3, 5, 6}}, {Kind: OpSuspect, Group: 7, Offsets: []record.Offset{4}},
		{Kind: OpFail, Group: 7, Offset: 7, DueMillis: 12, Attempt: Attempt{1, "m", "a", "r"}}, {Kind: OpDead, Group: 8, Member: "m", Offsets: []record.Offset{2}},
	}
	w.state.Batch(&a, 0, nil)
	if _, err := w.state.Apply(AppendCommand(nil, 5, ops), 10); err != nil {
		f.Fatal(err)
	}
	f.Add(w.state.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Restore(b, nil)
		if err != nil {
			return
		}
		out := s.Append(nil)
		again, err := Restore(out, nil)
		if err != nil {
			t.Fatalf("a state that was read does not read back: %v", err)
		}
		if !bytes.Equal(again.Append(nil), out) {
			t.Fatal("a state is written in two ways")
		}
		if _, err := s.Apply(AppendCommand(nil, 1<<50, ops), 20); err != nil {
			t.Fatal(err)
		}
		s.Trim(15)
		if _, err := Restore(s.Append(nil), nil); err != nil {
			t.Fatalf("a state that went on does not read back: %v", err)
		}
	})
}

func FuzzCommand(f *testing.F) {
	f.Add(AppendCommand(nil, 5, []Op{{Kind: OpAck, Group: 7, Offsets: []record.Offset{1, 2}}, {Kind: OpTick}}), []byte{})
	a := Annexe{ClockMillis: 9, Delays: []AnnexeDelay{{0, 100}}, IDs: []AnnexeID{{1, HashID("x")}}}
	f.Add([]byte{}, a.Append(nil))
	a.WindowMillis, a.AfterMillis = 8, 7
	f.Add([]byte{}, a.Append(nil))
	f.Fuzz(func(t *testing.T, command, annexe []byte) {
		s := NewState()
		_, _ = s.Apply(AppendCommand(nil, 1, []Op{{Kind: OpOpen, Group: 7}, {Kind: OpOpen, Group: 8, Member: "m"}}), 10)
		if _, err := s.Apply(command, 10); err == nil {
			if _, err := Restore(s.Append(nil), nil); err != nil {
				t.Fatalf("after a command the state does not read back: %v", err)
			}
		}
		if a, err := ParseAnnexe(annexe, 5); err == nil {
			s.Batch(&a, 10, s.Known(&a))
			if _, err := Restore(s.Append(nil), nil); err != nil {
				t.Fatalf("after a batch the state does not read back: %v", err)
			}
		}
	})
}

// An id that has to be remembered for long is, though others of the partition are not.
func TestEachIDHasTheWindowThatItCameWith(t *testing.T) {
	s := NewState()
	long, short := AnnexeID{0, HashID("long")}, AnnexeID{0, HashID("short")}
	s.Batch(&Annexe{ClockMillis: 1000, WindowMillis: 100_000, IDs: []AnnexeID{long}}, 0, nil)
	s.Batch(&Annexe{ClockMillis: 1000, WindowMillis: 10, IDs: []AnnexeID{short}}, 1, nil)
	later := func(id AnnexeID, at int64) bool {
		return len(s.Known(&Annexe{ClockMillis: at, WindowMillis: 10, IDs: []AnnexeID{id}})) == 1
	}
	if !later(long, 50_000) || later(long, 200_000) || !later(short, 1005) || later(short, 50_000) {
		t.Errorf("long: %v at 50 s, %v at 200 s; short: %v at once, %v at 50 s", later(long, 50_000), later(long, 200_000), later(short, 1005), later(short, 50_000))
	}
	r, err := Restore(s.Append(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	s = r
	if !later(long, 50_000) || later(short, 50_000) {
		t.Error("forgotten by a snapshot")
	}
}
