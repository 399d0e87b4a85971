package queue

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tube-mq/tube/internal/record"
)

// waitingModel is a plain way to keep what delays keeps.
type waitingModel map[record.Offset]int64

func (m waitingModel) sorted(from record.Offset, max int) []Delayed {
	var out []Delayed
	for o, due := range m {
		if o >= from {
			out = append(out, Delayed{o, due})
		}
	}
	slices.SortFunc(out, func(a, b Delayed) int { return cmp.Compare(a.Offset, b.Offset) })
	return out[:min(max, len(out))]
}

func (m waitingModel) fire(now int64) []record.Offset {
	var due []Delayed
	for o, at := range m {
		if at <= now {
			due = append(due, Delayed{o, at})
			delete(m, o)
		}
	}
	slices.SortFunc(due, func(a, b Delayed) int {
		return cmp.Or(cmp.Compare(a.DueMillis, b.DueMillis), cmp.Compare(a.Offset, b.Offset))
	})
	var out []record.Offset
	for _, e := range due {
		out = append(out, e.Offset)
	}
	return out
}

// The index of delayed messages does what a map does, keeps its blocks filled, and is
// written the same whatever its history; in memory or, with a small budget, mostly not.
func TestDelaysAreAMap(t *testing.T) {
	t.Run("in memory", func(t *testing.T) { testDelaysAreAMap(t, nil) })
	t.Run("swapped", func(t *testing.T) {
		outside := 0
		testDelaysAreAMap(t, &outside)
		if outside == 0 {
			t.Error("nothing was ever out of memory")
		}
	})
}

func testDelaysAreAMap(t *testing.T, outside *int) {
	rapid.Check(t, func(rt *rapid.T) {
		s := NewState()
		d := &s.delays
		var swap *memorySwap
		if outside != nil {
			swap = newMemorySwap(rapid.SampledFrom([]int{0, 4 * SwapBlockBytes}).Draw(rt, "budget"))
			s.SwapTo(swap)
		}
		model := waitingModel{}
		end := record.Offset(rapid.SampledFrom([]int64{0, 1<<16 - 100, 1 << 40}).Draw(rt, "begin"))
		now := int64(1000)
		some := rapid.Custom(func(rt *rapid.T) record.Offset {
			if list := model.sorted(0, len(model)); len(list) > 0 && rapid.IntRange(0, 9).Draw(rt, "known") > 0 {
				return list[rapid.IntRange(0, len(list)-1).Draw(rt, "which")].Offset
			}
			return end - record.Offset(rapid.IntRange(0, 1000).Draw(rt, "back"))
		})
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				step := record.Offset(rapid.SampledFrom([]int64{1, 3, 1000, blockSpan - 1, blockSpan, 1 << 33}).Draw(rt, "step"))
				spread := rapid.SampledFrom([]int64{1, 1000, MaxDelay.Milliseconds()}).Draw(rt, "spread")
				random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
				for range rapid.IntRange(1, 2*blockEntries).Draw(rt, "messages") {
					end += step
					due := now + 1 + random.Int64N(spread)
					d.add(end, due)
					model[end] = due
				}
				end++
			},
			"move": func(rt *rapid.T) {
				o, due := some.Draw(rt, "o"), now+rapid.Int64Range(1, 2000).Draw(rt, "due")
				if _, ok := model[o]; d.move(o, due) != ok {
					rt.Fatalf("moving %d is told wrongly", o)
				} else if ok {
					model[o] = due
				}
			},
			"cancel": func(rt *rapid.T) {
				o := some.Draw(rt, "o")
				for range rapid.SampledFrom([]int{1, 1, blockEntries}).Draw(rt, "messages") {
					if _, ok := model[o]; d.move(o, 0) != ok {
						rt.Fatalf("cancelling %d is told wrongly", o)
					}
					delete(model, o)
					o++
				}
			},
			"fire": func(rt *rapid.T) {
				now += rapid.SampledFrom([]int64{1, 50, 1000, 1 << 30}).Draw(rt, "later")
				if got, want := d.fire(now), model.fire(now); !slices.Equal(got, want) {
					rt.Fatalf("%d fired at %d, want %d: %d, %d", len(got), now, len(want), got, want)
				}
				if at := d.next(); at != 0 && at <= now {
					rt.Fatalf("next at %d, it is %d", at, now)
				}
			},
			"remove below": func(rt *rapid.T) {
				o := some.Draw(rt, "o")
				n := int64(0)
				for k := range model {
					if k < o {
						delete(model, k)
						n++
					}
				}
				if got := d.removeBelow(o); got != n {
					rt.Fatalf("%d removed below %d, want %d", got, o, n)
				}
			},
			"swap": func(rt *rapid.T) {
				if swap == nil {
					return
				}
				switch rapid.IntRange(0, 3).Draw(rt, "what") {
				case 0:
					swap.full = !swap.full
				case 1:
					s.PutOut(rapid.IntRange(1, 20).Draw(rt, "blocks"), now+rapid.Int64Range(0, 2000).Draw(rt, "due"))
				default:
					bringBack(rt, s, now+rapid.Int64Range(1, 1<<31).Draw(rt, "due"), func() {
						if o := some.Draw(rt, "o"); d.move(o, now+5) {
							model[o] = now + 5
						}
					})
				}
			},
			"": func(rt *rapid.T) {
				if swap != nil {
					swap.check(rt, d)
					*outside += d.outside
				}
				from, most := some.Draw(rt, "from"), rapid.SampledFrom([]int{1, 300, 1 << 30}).Draw(rt, "max")
				checkDelays(rt, d, model, from, most)
			},
		})
		checkWritten(rt, d, model)
		if swap != nil {
			if s.Release(); swap.held != 0 || len(swap.slots) > 0 {
				rt.Fatalf("%d bytes and %d slots are kept of nothing", swap.held, len(swap.slots))
			}
		}
	})
}

func checkDelays(rt *rapid.T, d *delays, model waitingModel, from record.Offset, most int) {
	if d.len() != len(model) {
		rt.Fatalf("%d wait, want %d", d.len(), len(model))
	}
	if due := d.due(from); due != model[from] {
		rt.Fatalf("%d is due at %d, want %d", from, due, model[from])
	}
	if got, want := d.list(from, most), model.sorted(from, most); !slices.Equal(got, want) {
		rt.Fatalf("from %d on there wait %v, want %v", from, got, want)
	}
	if got, want := d.from(from), len(model.sorted(from, 1<<30)); int(got) != want {
		rt.Fatalf("%d wait from %d on, want %d", got, from, want)
	}
	earliest := int64(0)
	for _, due := range model {
		if earliest == 0 || due < earliest {
			earliest = due
		}
	}
	if at := d.next(); at > earliest || earliest != 0 && at == 0 {
		rt.Fatalf("next at %d, something is due at %d", at, earliest)
	}
	if len(d.byDue) != len(d.blocks) {
		rt.Fatalf("%d blocks, %d in the heap", len(d.blocks), len(d.byDue))
	}
	slots := 0
	for i, b := range d.blocks {
		slots += int(b.count)
		if b.live == 0 || 2*b.live < b.count || d.byDue[b.place] != b || i > 0 && b.first < d.blocks[i-1].end() {
			rt.Fatalf("block %d of %d: %d of %d wait", i, len(d.blocks), b.live, b.count)
		}
	}
	if slots > 2*d.live {
		rt.Fatalf("room for %d, %d wait", slots, d.live)
	}
}

// checkWritten reads back what was written, and compares it with what is written of
// the same messages by one that never had others.
func checkWritten(rt *rapid.T, d *delays, model waitingModel) {
	b := d.append(nil)
	var fresh, back delays
	for _, e := range model.sorted(0, len(model)) {
		fresh.add(e.Offset, e.DueMillis)
	}
	if !bytes.Equal(b, fresh.append(nil)) {
		rt.Fatal("the same messages are written in two ways")
	}
	r := &reader{b: b}
	back.restore(r)
	if err := r.end(); err != nil || !bytes.Equal(back.append(nil), b) {
		rt.Fatalf("it does not read back: %v", err)
	}
}

// A few messages that wait long among many that do not are not what keeps the memory
// of the many: blocks are put together.
func TestDelaysShrinkWithWhatWaits(t *testing.T) {
	var d delays
	const n = 200_000
	for o := range record.Offset(n) {
		due := int64(10)
		if o%100 == 0 {
			due = 1_000_000
		}
		d.add(o, due)
	}
	if len(d.fire(10)) != n-n/100 {
		t.Fatal("not all fired")
	}
	// The least that holds them, and as much again.
	if most := 2*(n/100)/blockEntries + 2; len(d.blocks) > most {
		t.Errorf("%d blocks for %d messages, want at most %d", len(d.blocks), d.len(), most)
	}
}

// What a million pending messages cost: adding one, firing one when they were sent in
// the order of their times, and when a block has one due at a time.
func BenchmarkDelays(b *testing.B) {
	const n = 1_000_000
	fill := func(due func(i int64) int64) *delays {
		d := &delays{}
		for i := range int64(n) {
			d.add(record.Offset(i), due(i))
		}
		return d
	}
	random := rand.New(rand.NewPCG(1, 2))
	inOrder := func(i int64) int64 { return 1000 + i/20 }
	anyOrder := func(int64) int64 { return 1000 + random.Int64N(n/20) }
	b.Run("add", func(b *testing.B) {
		for b.Loop() {
			fill(inOrder)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/message")
	})
	for name, due := range map[string]func(int64) int64{"fire/in order": inOrder, "fire/any order": anyOrder} {
		b.Run(name, func(b *testing.B) {
			var longest time.Duration
			for b.Loop() {
				b.StopTimer()
				d := fill(due)
				b.StartTimer()
				for now := int64(1000); d.len() > 0; now += 10 { // 200 are due at a time
					began := time.Now()
					d.fire(now)
					longest = max(longest, time.Since(began))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/message")
			b.ReportMetric(float64(longest.Microseconds()), "µs/longest")
		})
	}
	b.Run("save", func(b *testing.B) {
		d := fill(anyOrder)
		size := 0
		for b.Loop() {
			size = len(d.append(nil))
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/message")
		b.ReportMetric(float64(size)/n, "B/message")
	})
	b.Run("restore", func(b *testing.B) {
		saved := fill(anyOrder).append(nil)
		for b.Loop() {
			var d delays
			d.restore(&reader{b: saved})
			if d.len() != n {
				b.Fatal(d.len())
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/message")
	})
}
