package queue

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tube-mq/tube/internal/record"
)

// memorySwap is a Swap that keeps blocks in a map.
type memorySwap struct {
	budget, held int
	full         bool
	slots        map[Slot][]byte
	last         Slot
	puts, gets   int
	lost         error
}

func newMemorySwap(budgetBytes int) *memorySwap {
	return &memorySwap{budget: budgetBytes, slots: map[Slot][]byte{}}
}

func (m *memorySwap) Grow(deltaBytes int) { m.held += deltaBytes }
func (m *memorySwap) Over() bool          { return m.held > m.budget }
func (m *memorySwap) Free(s Slot) {
	if m.slots[s] == nil {
		panic(fmt.Sprintf("slot %d is freed and holds nothing", s))
	}
	delete(m.slots, s)
}
func (m *memorySwap) Lost(err error) { m.lost = err }
func (m *memorySwap) Put(block []byte) (Slot, error) {
	if m.full {
		return 0, errors.New("full")
	}
	m.puts++
	m.last++
	m.slots[m.last] = slices.Clone(block)
	return m.last, nil
}

func (m *memorySwap) Get(s Slot, block []byte) error {
	m.gets++
	if len(block) != len(m.slots[s]) {
		return fmt.Errorf("%d bytes asked for of a block of %d", len(block), len(m.slots[s]))
	}
	copy(block, m.slots[s])
	return nil
}

// check compares what the swap was told with what the index has.
func (m *memorySwap) check(rt *rapid.T, d *delays) {
	held, outside, slots := 0, 0, 0
	for i, b := range d.blocks {
		held += 8 * cap(b.entries)
		if b.slot != 0 {
			slots++
		}
		if b.entries == nil {
			if outside += int(b.live); b.slot == 0 {
				rt.Fatalf("block %d is nowhere", i)
			}
		} else if len(b.entries) != int(b.count) {
			rt.Fatalf("block %d of %d entries has %d", i, b.count, len(b.entries))
		}
	}
	if held != m.held || held != d.heldBytes || slots != len(m.slots) || outside != d.outside {
		rt.Fatalf("%d bytes, told %d; %d slots, used %d; %d outside, counted %d", held, m.held, slots, len(m.slots), outside, d.outside)
	}
}

// Bringing near blocks back, as a node does it, with blocks that change in between.
func bringBack(rt *rapid.T, s *State, dueMillis int64, between func()) {
	list := s.Near(dueMillis, rapid.IntRange(1, 10).Draw(rt, "most"))
	m := s.delays.swap.(*memorySwap)
	for _, r := range list {
		if err := m.Get(r.Slot, r.Bytes); err != nil {
			rt.Fatal(err)
		}
	}
	between()
	s.Load(list)
}

// With what is not due for long on disk, memory is bounded, whatever happens; and
// nothing that was put out once and only fired since is written again.
func TestSwappedDelaysKeepToTheBudget(t *testing.T) {
	const n, budget = 300_000, 200_000
	m := newMemorySwap(budget)
	d := delays{swapping: swapping{swap: m}}
	due := func(o int) int64 { return 1000 + int64(o*7919%n) }
	most := 0
	look := func() { most = max(most, m.held) }
	for o := range n {
		d.add(record.Offset(o), due(o))
		look()
	}
	puts := m.puts
	for now, fired := int64(1000), 0; fired < n; now += 500 {
		got := d.fire(now)
		fired += len(got)
		look()
		for _, o := range got {
			if due(int(o)) > now || due(int(o)) <= now-500 {
				t.Fatalf("%d fired at %d, was due at %d", o, now, due(int(o)))
			}
		}
	}
	if most > budget+2*SwapBlockBytes {
		t.Errorf("%d bytes in memory, the budget is %d", most, budget)
	}
	if d.len() != 0 || m.held != 0 || len(m.slots) != 0 {
		t.Errorf("%d wait, %d bytes are held, %d slots used, of none", d.len(), m.held, len(m.slots))
	}
	// Blocks are put together as they empty: half of those there were, and so on.
	if again := m.puts - puts; again > 2*puts {
		t.Errorf("%d blocks were written when the index was filled, %d while it was fired", puts, again)
	}
}

// Those due last go first.
func TestThoseDueLastAreSwappedFirst(t *testing.T) {
	m := newMemorySwap(100 * SwapBlockBytes)
	s := NewState()
	s.SwapTo(m)
	d := &s.delays
	for o := range 200 * blockEntries {
		d.add(record.Offset(o), int64(1+o)) // due as they come: the new ones last
	}
	first := d.blocks[0]
	for i, b := range d.blocks[:90] {
		if b.entries == nil {
			t.Errorf("block %d of 200 is out, and only 100 had to go", i)
		}
	}
	if d.outside < 99*blockEntries {
		t.Errorf("%d are out", d.outside)
	}
	s.PutOut(1000, int64(first.earliest+1))
	if first.entries == nil || d.blocks[1].entries != nil {
		t.Error("what is due before the time goes, or what is due behind does not")
	}
}

// A swap that takes nothing leaves everything in memory, and all goes on.
func TestFullSwapLeavesDelaysInMemory(t *testing.T) {
	m := newMemorySwap(0)
	m.full = true
	d := delays{swapping: swapping{swap: m}}
	for o := range 10_000 {
		d.add(record.Offset(o), int64(1+o))
	}
	if m.held < 80_000 || d.outside != 0 {
		t.Fatalf("%d bytes in memory", m.held)
	}
	m.full = false
	d.add(10_000, 1)
	for o := range 10_000 {
		d.add(record.Offset(10_001+o), int64(1+o))
	}
	if m.held > 4*SwapBlockBytes {
		t.Errorf("%d bytes in memory once there is room again", m.held)
	}
}

// A block that is not what was written is found out by whatever needs it, and nothing
// that the State says from then on hands out, or forgets, a message.
func TestDamagedSwapIsFoundOut(t *testing.T) {
	uses := map[string]func(s *State){
		"fire":          func(s *State) { _, _ = s.Apply(AppendCommand(nil, 5_000_000, []Op{{Kind: OpTick}}), 5000) },
		"cancel":        func(s *State) { s.cancel([]record.Offset{10}) },
		"reschedule":    func(s *State) { s.delays.move(10, 7) },
		"one":           func(s *State) { s.DueMillis(10) },
		"list":          func(s *State) { s.Delayed(0, 10) },
		"count":         func(s *State) { s.Counts(7, "", 5000) },
		"write":         func(s *State) { s.Append(nil) },
		"what is fresh": func(s *State) { s.Fresh(nil, 7, "", 0, 5000, 100) },
		"trim":          func(s *State) { s.Trim(10) },
	}
	harm := map[string]func(m *memorySwap, slot Slot){
		"flipped": func(m *memorySwap, slot Slot) { m.slots[slot][9] ^= 1 },
		"another": func(m *memorySwap, slot Slot) { m.slots[slot] = m.slots[slot+1] },
		"gone":    func(m *memorySwap, slot Slot) { m.slots[slot] = []byte{} },
	}
	for use, f := range uses {
		for how, damage := range harm {
			t.Run(use+"/"+how, func(t *testing.T) {
				m := newMemorySwap(0)
				s := NewState()
				s.SwapTo(m)
				if _, err := s.Apply(AppendCommand(nil, 1, []Op{{Kind: OpOpen, Group: 7}}), 0); err != nil {
					t.Fatal(err)
				}
				s.groups[7].cursors[""].floor = 5
				for o := range record.Offset(5000) {
					s.delays.add(o, 1_000_000+int64(o))
				}
				b := s.delays.blocks[0]
				if b.entries != nil {
					t.Fatal("it is in memory")
				}
				damage(m, b.slot)
				f(s)
				if s.Err() == nil || m.lost == nil {
					t.Fatal("not found out")
				}
				if _, ok := s.Candidate(7, "", 300, 5000); ok {
					t.Error("a message that waits can be had")
				}
				if list, next := s.Fresh(nil, 7, "", 0, 5000, 100); len(list) > 0 || next != 5000 {
					t.Errorf("%d messages that wait can be had, then from %d on", len(list), next)
				}
				if a, _ := s.Apply(AppendCommand(nil, 9_000_000, []Op{{Kind: OpTick}}), 5000); len(a.Fired) > 0 {
					t.Error("something fires")
				}
			})
		}
	}
}
