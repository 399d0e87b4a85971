package queue

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tube-mq/tube/internal/record"
)

// A set of offsets does what a map does, and is written the same whatever its history.
func TestOffsetsAreASet(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var s offsets
		model := map[record.Offset]bool{}
		at := rapid.Custom(func(rt *rapid.T) record.Offset {
			base := rapid.SampledFrom([]record.Offset{0, 1<<16 - 3, 1<<32 - 3, 1 << 40}).Draw(rt, "base")
			return base + record.Offset(rapid.IntRange(0, 8).Draw(rt, "offset"))
		})
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				o := at.Draw(rt, "o")
				if s.add(o) == model[o] {
					rt.Fatalf("adding %d is told wrongly", o)
				}
				model[o] = true
			},
			"remove": func(rt *rapid.T) {
				o := at.Draw(rt, "o")
				if s.remove(o) != model[o] {
					rt.Fatalf("removing %d is told wrongly", o)
				}
				delete(model, o)
			},
			"remove below": func(rt *rapid.T) {
				o := at.Draw(rt, "o")
				n := int64(0)
				for k := range model {
					if k < o {
						delete(model, k)
						n++
					}
				}
				if got := s.removeBelow(o); got != n {
					rt.Fatalf("%d removed below %d, want %d", got, o, n)
				}
			},
			"": func(rt *rapid.T) { checkSet(rt, &s, model, at.Draw(rt, "from")) },
		})
		var fresh, back offsets
		for _, o := range slices.Backward(slices.Sorted(keysOf(model))) {
			fresh.add(o)
		}
		b := s.append(nil)
		if !bytes.Equal(b, fresh.append(nil)) {
			rt.Fatalf("the same set is written in two ways")
		}
		r := &reader{b: b}
		back.restore(r)
		if err := r.end(); err != nil || back.count() != s.count() || !bytes.Equal(back.append(nil), b) {
			rt.Fatalf("a set does not read back: %v", err)
		}
	})
}

func checkSet(rt *rapid.T, s *offsets, model map[record.Offset]bool, from record.Offset) {
	sorted := slices.Sorted(keysOf(model))
	if s.count() != int64(len(sorted)) || s.empty() != (len(sorted) == 0) {
		rt.Fatalf("%d members, want %d", s.count(), len(sorted))
	}
	i, _ := slices.BinarySearch(sorted, from)
	if s.from(from) != int64(len(sorted)-i) {
		rt.Fatalf("%d members from %d on, want %d", s.from(from), from, len(sorted)-i)
	}
	next, ok := s.next(from)
	if ok != (i < len(sorted)) || ok && next != sorted[i] {
		rt.Fatalf("next of %d is %d, %v", from, next, ok)
	}
	absent := from
	for model[absent] {
		absent++
	}
	if got := s.nextAbsent(from); got != absent {
		rt.Fatalf("next absent of %d is %d, want %d", from, got, absent)
	}
	if s.has(from) != model[from] {
		rt.Fatalf("membership of %d", from)
	}
}

// Long ranges and alternating ones are written the same after any detour.
func TestOffsetsOfAllShapesAreCanonical(t *testing.T) {
	shape := func(step, n record.Offset, detour bool) []byte {
		var s offsets
		for i := range n {
			s.add(i * step)
			if detour && i%3 == 0 {
				s.add(i*step + 70_000)
			}
		}
		if detour {
			s.append(nil) // a snapshot in between changes the form in memory
			for i := range n {
				if o := i*step + 70_000; i%3 == 0 && (o%step != 0 || o/step >= n) {
					s.remove(o)
				}
			}
		}
		return s.append(nil)
	}
	if n := len(shape(1, 200_000, false)); n > 100 {
		t.Errorf("a range takes %d bytes", n)
	}
	for _, step := range []record.Offset{1, 2, 3, 17, 1000} {
		for _, n := range []record.Offset{1, 100, 5000, 200_000} {
			if !bytes.Equal(shape(step, n, false), shape(step, n, true)) {
				t.Errorf("every %dth of %d: written in two ways", step, n)
			}
		}
	}
}
