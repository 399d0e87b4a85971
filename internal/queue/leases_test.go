package queue

import (
	"maps"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/tube-mq/tube/internal/record"
)

// modelLease is what a simple map knows of a lease.
type modelLease struct {
	hand  uint32 // 0: in none
	until int64
}

// TestLeasesAgainstModel adds, holds, prolongs, lets go and removes leases at random:
// by offset, by end and by hand they are what a map and a search through it say.
func TestLeasesAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table, model := newLeases(), map[record.Offset]modelLease{}
		now := uint32(0)
		any := func() (record.Offset, *lease) {
			o := record.Offset(rapid.Int64Range(0, 1200).Draw(rt, "offset"))
			l := table.at(o)
			if _, ok := model[o]; ok != (l != nil) || ok != table.has(o) {
				rt.Fatalf("offset %d: the table has %v, the model %v", o, l, ok)
			}
			return o, l
		}
		length := func() uint32 {
			return rapid.SampledFrom([]uint32{30_000, 30_000, 30_000, 2000, 1, 70_000}).Draw(rt, "length")
		}
		letGo := func(o record.Offset, l *lease) {
			if model[o].hand != 0 {
				table.letGo(l)
				model[o] = modelLease{}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(*rapid.T) {
				first, _ := any()
				for o := first; o < first+record.Offset(rapid.IntRange(1, 300).Draw(rt, "run")); o++ {
					if table.has(o) {
						continue
					}
					l := table.add(o)
					l.since, l.lengthMillis = now, length()
					hand := uint32(rapid.IntRange(0, 3).Draw(rt, "hand"))
					if model[o] = (modelLease{}); hand > 0 {
						table.hold(l, hand)
						model[o] = modelLease{hand, l.untilMillis()}
					}
				}
			},
			"prolong": func(*rapid.T) {
				if o, l := any(); l != nil && model[o].hand != 0 {
					table.prolong(l, length())
					model[o] = modelLease{model[o].hand, l.untilMillis()}
				}
			},
			"let go": func(*rapid.T) {
				if o, l := any(); l != nil {
					letGo(o, l)
				}
			},
			"remove": func(*rapid.T) {
				first, _ := any()
				for o := first; o < first+record.Offset(rapid.IntRange(1, 400).Draw(rt, "run")); o++ {
					if l := table.at(o); l != nil {
						letGo(o, l)
						table.remove(o)
						delete(model, o)
					}
				}
			},
			"time": func(*rapid.T) { now += uint32(rapid.IntRange(0, 50).Draw(rt, "tenths")) },
			"":     func(*rapid.T) { checkLeases(rt, table, model) },
		})
	})
}

func checkLeases(rt *rapid.T, table *leases, model map[record.Offset]modelLease) {
	if table.count != len(model) {
		rt.Fatalf("%d leases, %d in the model", table.count, len(model))
	}
	var seen []record.Offset
	table.each(100, func(l *lease) bool {
		seen = append(seen, l.offset)
		return true
	})
	want := slices.DeleteFunc(slices.Sorted(maps.Keys(model)), func(o record.Offset) bool { return o < 100 })
	if !slices.Equal(seen, want) {
		rt.Fatalf("each: %v, want %v", seen, want)
	}
	ending, inHand := int64(-1), map[uint32][]record.Offset{}
	for _, o := range slices.Sorted(maps.Keys(model)) {
		if m := model[o]; m.hand != 0 {
			inHand[m.hand] = append(inHand[m.hand], o)
			if ending < 0 || m.until < ending {
				ending = m.until
			}
		}
	}
	if l := table.ending(); (l != nil) != (ending >= 0) || l != nil && l.untilMillis() != ending {
		rt.Fatalf("the next to end: %+v, want one that ends at %d", l, ending)
	}
	for hand := uint32(1); hand <= 3; hand++ {
		var got []record.Offset
		for _, l := range table.inHand(hand) {
			got = append(got, l.offset)
		}
		if !slices.Equal(got, inHand[hand]) {
			rt.Fatalf("hand %d: %v, want %v", hand, got, inHand[hand])
		}
	}
	if len(model) == 0 && (len(table.pages) > 0 || len(table.blocks) > 1) {
		rt.Fatalf("%d pages and %d blocks for nothing", len(table.pages), len(table.blocks))
	}
}

// Leases that end in any order end in the order of their ends, whichever are settled
// before, and what they took is given back.
func TestStraysEndInOrder(t *testing.T) {
	table := newLeases()
	const n = 3 * leaseBlock
	for o := range record.Offset(n) {
		l := table.add(o)
		l.lengthMillis = uint32(1 + (o*7919)%n)
		table.hold(l, 1)
	}
	drop := func(l *lease) {
		o := l.offset
		table.letGo(l)
		table.remove(o)
	}
	for i := range record.Offset(n / 2) {
		if l := table.at((i * 5237) % n); l != nil {
			drop(l)
		}
	}
	last := int64(0)
	for l := table.ending(); l != nil; l = table.ending() {
		if l.untilMillis() < last {
			t.Fatalf("a lease ends at %d after one that ends at %d", l.untilMillis(), last)
		}
		last = l.untilMillis()
		drop(l)
	}
	if table.count != 0 || len(table.blocks) > 1 || len(table.pages) != 0 || len(table.hands) != 0 {
		t.Errorf("%d leases, %d blocks, %d pages, %d hands", table.count, len(table.blocks), len(table.pages), len(table.hands))
	}
}

// The stray that takes a settled one's place may end before those above that place.
func TestAStrayMovesUp(t *testing.T) {
	table := newLeases()
	for o, length := range []uint32{1000, 10, 100, 20, 110, 120, 40, 50, 130, 140, 150, 160, 45} { // 1000 is no stray
		l := table.add(record.Offset(o))
		l.lengthMillis = length
		table.hold(l, 1)
	}
	table.letGo(table.at(4)) // 110: the last, 45, takes its place, below 100
	var got []uint32
	for l := table.ending(); l != nil; l = table.ending() {
		got = append(got, l.lengthMillis)
		table.letGo(l)
	}
	if want := []uint32{10, 20, 40, 45, 50, 100, 120, 130, 140, 150, 160, 1000}; !slices.Equal(got, want) {
		t.Errorf("they end in the order %v", got)
	}
}

// A session that is forgotten is forgotten by its number too.
func TestHandsAreForgotten(t *testing.T) {
	h := NewHands()
	x := h.of(Member{Session: "s"}, 1)
	if h.numbered(x.number) != x {
		t.Fatal("it is not found by its number")
	}
	if h.Gone("s"); h.numbered(x.number) != nil || len(h.byNumber) != 0 {
		t.Error("it is still there")
	}
}

// A lease has 40 bytes, as its comment says.
func TestLeaseSize(t *testing.T) {
	if n := unsafe.Sizeof(lease{}); n != 40 {
		t.Errorf("a lease has %d bytes", n)
	}
}
