package queue

import (
	"cmp"
	"container/heap"
	"slices"
	"sort"

	"github.com/tube-mq/tube/internal/record"
)

// MaxDelayed is how many messages of one partition may be waiting for their time;
// more are refused when they are sent. Each takes 8 to 10 bytes, in memory or in the
// Swap, while they lie close together. What bounds them is the checkpoint: it writes all
// of them, 4 to 7 bytes each, with the partition at a stand for 20 ns each.
const MaxDelayed = 16_000_000

// Delayed is a message that waits for its time.
type Delayed struct {
	Offset    record.Offset
	DueMillis int64
}

func (a Delayed) compareDue(b Delayed) int {
	return cmp.Or(cmp.Compare(a.DueMillis, b.DueMillis), cmp.Compare(a.Offset, b.Offset))
}

// delays is the partition's index of messages that are not due yet, shared by all
// groups: blocks in the order of offsets, and a heap of the blocks by when the first
// of each is due, so that a message is kept once. Messages come in the order of their
// offsets, so only the last block grows.
//
// Sorted runs by due time were rejected: whether one message waits, which is asked
// for each that is handed out again, would have to be looked up in a second index.
type delays struct {
	blocks []*delayBlock // by offset. Invariant: each has a message that waits.
	byDue  blockHeap     // the same blocks
	live   int           // messages that wait
	swapping
}

// delayBlock is some messages whose offsets are close together.
type delayBlock struct {
	first record.Offset
	// earliest is before or at the first due time.
	earliest int64
	// entries: the offset less first in the upper 16 bits, when it is due (ms) in the
	// lower 48, 0 there for a message that waits no more. So they are in the order of
	// offsets, and as wide as a year's milliseconds want it. Nil: they are in the swap.
	entries []uint64
	place   int32 // in the heap
	// slot is where the swap has a copy of the entries, and sum its CRC32C; 0: it has none.
	slot Slot
	sum  uint32
	// count entries, the last of them at first + span; live of them wait.
	live, count, span uint16
}

const (
	// blockEntries is how many a block has at most. All of them are looked at when one
	// is due; a block takes some 90 bytes besides, wherever they are.
	blockEntries = 256
	blockSpan    = 1 << 16 // of offsets
	dueBits      = 48
	// maxDue is in the year 10889; what is due later is due then.
	maxDue = 1<<dueBits - 1
)

// at is what an entry of the block says.
func (b *delayBlock) at(entry uint64) Delayed {
	return Delayed{b.first + record.Offset(entry>>dueBits), int64(entry & maxDue)}
}

func (b *delayBlock) end() record.Offset { return b.first + record.Offset(b.span) + 1 }

// find is the place of the first of the block's entries ≥ o.
func (b *delayBlock) find(entries []uint64, o record.Offset) int {
	if o <= b.first {
		return 0
	}
	if o >= b.end() {
		return len(entries)
	}
	i, _ := slices.BinarySearch(entries, uint64(o-b.first)<<dueBits)
	return i
}

// room says whether a message can be put behind the others of a block.
func (b *delayBlock) room(o record.Offset) bool {
	return b.count < blockEntries && o-b.first < blockSpan
}

// put puts a message behind the others of a block, which is in memory.
func (d *delays) put(b *delayBlock, e Delayed) {
	d.hold(b, append(b.entries, uint64(e.Offset-b.first)<<dueBits|uint64(e.DueMillis)))
	b.count++
	b.live++
	b.span = uint16(e.Offset - b.first)
	b.earliest = min(b.earliest, e.DueMillis)
}

// take takes an entry out of a block that is in memory and has no copy.
func (d *delays) take(b *delayBlock, i int) {
	b.entries[i] &^= maxDue
	b.live--
	d.live--
}

// blockHeap has the block on top that has something due first.
type blockHeap []*delayBlock

func (h blockHeap) Len() int           { return len(h) }
func (h blockHeap) Less(i, j int) bool { return h[i].earliest < h[j].earliest }
func (h blockHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = int32(i), int32(j)
}
func (h *blockHeap) Push(x any) {
	b := x.(*delayBlock)
	b.place = int32(len(*h))
	*h = append(*h, b)
}
func (h *blockHeap) Pop() any {
	old := *h
	b := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return b
}

func (d *delays) len() int { return d.live }

// block is the place of the first block with an entry ≥ o.
func (d *delays) block(o record.Offset) int {
	i := sort.Search(len(d.blocks), func(i int) bool { return d.blocks[i].first > o })
	if i > 0 && o < d.blocks[i-1].end() {
		return i - 1
	}
	return i
}

// find is where a message that waits is.
func (d *delays) find(o record.Offset) (block, entry int, dueMillis int64) {
	block = d.block(o)
	if block == len(d.blocks) || o < d.blocks[block].first {
		return 0, 0, 0
	}
	b := d.blocks[block]
	entries := d.peek(b)
	if entry = b.find(entries, o); entry == len(entries) {
		return 0, 0, 0
	}
	if e := b.at(entries[entry]); e.Offset == o {
		return block, entry, e.DueMillis
	}
	return 0, 0, 0
}

// due is when a message is due; 0: it is not waiting. If that is lost, it waits.
func (d *delays) due(o record.Offset) int64 {
	_, _, due := d.find(o)
	if d.lost != nil {
		return maxDue
	}
	return due
}

// add takes a message whose offset is larger than all before.
func (d *delays) add(o record.Offset, dueMillis int64) {
	if dueMillis <= 0 {
		return
	}
	e := Delayed{o, min(dueMillis, maxDue)}
	if n := len(d.blocks); n > 0 {
		last := d.blocks[n-1]
		if o < last.end() {
			return
		}
		if last.room(o) && d.change(last) {
			before := last.earliest
			d.put(last, e)
			d.live++
			if last.earliest != before {
				heap.Fix(&d.byDue, int(last.place))
			}
			return
		}
	}
	b := &delayBlock{first: o, earliest: e.DueMillis}
	d.put(b, e)
	d.blocks = append(d.blocks, b)
	heap.Push(&d.byDue, b)
	d.live++
	if n := len(d.blocks); n > 1 && d.blocks[n-2].entries != nil {
		d.mayGo(d.blocks[n-2])
	}
	d.relieve()
}

// move gives a waiting message another time; ≤ 0 takes it out. It reports whether it waits.
func (d *delays) move(o record.Offset, dueMillis int64) bool {
	i, k, at := d.find(o)
	if at == 0 {
		return false
	}
	b := d.blocks[i]
	if !d.change(b) {
		return false
	}
	defer d.relieve()
	if dueMillis <= 0 {
		d.take(b, k)
		d.shrink(i)
		return true
	}
	due := min(dueMillis, maxDue)
	b.entries[k] = b.entries[k]&^maxDue | uint64(due)
	if due < b.earliest {
		b.earliest = due
		heap.Fix(&d.byDue, int(b.place))
	}
	return true
}

// fire takes out what is due by nowMillis, in the order of time.
func (d *delays) fire(nowMillis int64) []record.Offset {
	var due []Delayed
	for len(d.byDue) > 0 && d.byDue[0].earliest <= nowMillis {
		b := d.byDue[0]
		if due = d.fireBlock(b, nowMillis, due); d.lost != nil {
			return nil
		}
		if b.live > 0 {
			heap.Fix(&d.byDue, int(b.place))
		}
		d.shrink(d.place(b))
		d.relieve()
	}
	if due == nil {
		return nil
	}
	slices.SortFunc(due, Delayed.compareDue)
	fired := make([]record.Offset, len(due))
	for i, e := range due {
		fired[i] = e.Offset
	}
	return fired
}

// fireBlock takes out what is due of one block. Of one that is not in memory nothing is
// written: what is before its earliest has been fired.
func (d *delays) fireBlock(b *delayBlock, nowMillis int64, due []Delayed) []Delayed {
	entries := d.peek(b)
	before, earliest := len(due), int64(maxDue)
	for i, e := range entries {
		switch at := int64(e & maxDue); {
		case at > nowMillis:
			earliest = min(earliest, at)
		case at > 0:
			due = append(due, b.at(e))
			entries[i] &^= maxDue
		}
	}
	fired := len(due) - before
	b.live -= uint16(fired)
	d.live -= fired
	if b.entries == nil {
		d.outside -= fired
		d.peekedFrom = earliest
	}
	b.earliest = earliest
	return due
}

// place is where a block is.
func (d *delays) place(b *delayBlock) int {
	return sort.Search(len(d.blocks), func(i int) bool { return d.blocks[i].first >= b.first })
}

// shrink is called when messages were taken out of a block. An empty one goes; one
// half of whose entries wait no more is written anew, together with the neighbours
// that fit in: else a few messages that wait for long would keep a block each.
func (d *delays) shrink(i int) {
	b := d.blocks[i]
	if b.live == 0 {
		d.drop(i)
		return
	}
	if 2*b.live > b.count {
		return
	}
	from, to, n := i, i+1, b.live
	for to < len(d.blocks) && n+d.blocks[to].live <= blockEntries && d.blocks[to].end()-b.first <= blockSpan {
		n += d.blocks[to].live
		to++
	}
	for end := d.blocks[to-1].end(); from > 0 && n+d.blocks[from-1].live <= blockEntries && end-d.blocks[from-1].first <= blockSpan; {
		from--
		n += d.blocks[from].live
	}
	d.rewrite(from, to, n)
}

// rewrite makes one block of those from a place to another: of the n messages that wait.
func (d *delays) rewrite(from, to int, n uint16) {
	into := d.blocks[from]
	made := &delayBlock{first: into.first, earliest: maxDue}
	entries := make([]uint64, 0, n)
	for _, b := range d.blocks[from:to] {
		for _, x := range d.peek(b) {
			if e := b.at(x); e.DueMillis != 0 {
				entries = append(entries, uint64(e.Offset-made.first)<<dueBits|uint64(e.DueMillis))
				made.earliest, made.span = min(made.earliest, e.DueMillis), uint16(e.Offset-made.first)
			}
		}
	}
	if d.lost != nil {
		return
	}
	made.count, made.live, made.place = n, n, into.place
	for _, b := range d.blocks[from:to] {
		d.letGo(b)
	}
	d.hold(made, entries)
	d.blocks[from], d.byDue[made.place] = made, made
	heap.Fix(&d.byDue, int(made.place))
	for i := to - 1; i > from; i-- {
		d.drop(i)
	}
	if from < len(d.blocks)-1 {
		d.mayGo(made)
	}
}

// letGo gives up what a block has in memory and in the swap.
func (d *delays) letGo(b *delayBlock) {
	if b.entries == nil {
		d.outside -= int(b.live)
	}
	d.forget(b)
	d.hold(b, nil)
	b.live = 0
}

func (d *delays) drop(i int) {
	heap.Remove(&d.byDue, int(d.blocks[i].place))
	d.letGo(d.blocks[i])
	d.blocks = slices.Delete(d.blocks, i, i+1)
	if cap(d.blocks) > 4*len(d.blocks)+64 {
		d.blocks, d.byDue = slices.Clip(slices.Clone(d.blocks)), slices.Clip(slices.Clone(d.byDue))
	}
}

// next is when something may be due; 0: nothing waits. It may be too early by what
// was cancelled or moved: then firing finds nothing.
func (d *delays) next() int64 {
	if len(d.byDue) == 0 {
		return 0
	}
	return d.byDue[0].earliest
}

// removeBelow forgets messages that are gone from the log and says how many.
func (d *delays) removeBelow(o record.Offset) (n int64) {
	before := d.live
	whole := 0
	for whole < len(d.blocks) && d.blocks[whole].end() <= o {
		b := d.blocks[whole]
		d.live -= int(b.live)
		heap.Remove(&d.byDue, int(b.place))
		d.letGo(b)
		whole++
	}
	d.blocks = slices.Delete(d.blocks, 0, whole)
	if len(d.blocks) > 0 && d.blocks[0].first < o && d.change(d.blocks[0]) {
		b := d.blocks[0]
		for i := range b.find(b.entries, o) {
			if b.entries[i]&maxDue != 0 {
				d.take(b, i)
			}
		}
		d.shrink(0)
	}
	d.relieve()
	return int64(before - d.live)
}

// walk goes through the messages that wait, from an offset on.
func (d *delays) walk(from record.Offset) delayWalk {
	w := delayWalk{d: d, block: d.block(from)}
	if w.block < len(d.blocks) {
		b := d.blocks[w.block]
		w.entry = b.find(d.peek(b), from)
	}
	return w
}

// delayWalk is a place among the messages that wait; it ends with the next change.
type delayWalk struct {
	d            *delays
	block, entry int
}

// next is the next message; false: there is none, or it is lost.
func (w *delayWalk) next() (Delayed, bool) {
	for w.block < len(w.d.blocks) {
		b := w.d.blocks[w.block]
		for entries := w.d.peek(b); w.entry < len(entries); {
			e := b.at(entries[w.entry])
			w.entry++
			if e.DueMillis != 0 {
				return e, true
			}
		}
		w.block, w.entry = w.block+1, 0
	}
	return Delayed{}, false
}

// list shows waiting messages from an offset on, at most max.
func (d *delays) list(from record.Offset, max int) []Delayed {
	var out []Delayed
	for w := d.walk(from); len(out) < max; {
		e, ok := w.next()
		if !ok {
			break
		}
		out = append(out, e)
	}
	return out
}

// from is how many wait at or behind an offset.
func (d *delays) from(o record.Offset) (n int64) {
	i := d.block(o)
	if 2*i < len(d.blocks) {
		n = int64(d.live)
		for _, b := range d.blocks[:i] {
			n -= int64(b.live)
		}
	} else {
		for _, b := range d.blocks[i:] {
			n += int64(b.live)
		}
	}
	if i < len(d.blocks) {
		b := d.blocks[i]
		if entries := d.peek(b); o > b.first {
			for _, e := range entries[:b.find(entries, o)] {
				if e&maxDue != 0 {
					n--
				}
			}
		}
	}
	return n
}

// uvarint messages; each: offset as a difference, due time as a difference to the
// last (zigzag). The blocks do not show: however they came to be, the bytes are the same.
func (d *delays) append(b []byte) []byte {
	b = slices.Grow(b, 10+4*d.live)
	b = appendUint(b, uint64(d.live))
	last := Delayed{}
	for _, block := range d.blocks {
		for _, x := range d.peek(block) {
			e := block.at(x)
			if e.DueMillis == 0 {
				continue
			}
			b = appendUint(b, uint64(e.Offset-last.Offset))
			b = appendInt(b, e.DueMillis-last.DueMillis)
			last = e
		}
	}
	return b
}

func (d *delays) restore(r *reader) {
	d.release()
	last := Delayed{Offset: -1}
	for i := range r.count(2) {
		e := Delayed{r.offset(), r.int()}
		if i > 0 {
			e.Offset += last.Offset
			e.DueMillis += last.DueMillis
		}
		if r.err != nil || e.Offset <= last.Offset || e.DueMillis <= 0 {
			r.fail("delayed messages out of order")
			return
		}
		d.add(e.Offset, e.DueMillis)
		last = e
	}
}
