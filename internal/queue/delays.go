package queue

import (
	"container/heap"
	"slices"
	"sort"

	"github.com/tube-mq/tube/internal/record"
)

// MaxDelayed is how many messages of one partition may be waiting for their time;
// more are refused when they are sent. Each takes 32 to 64 bytes of memory.
const MaxDelayed = 4_000_000

// Delayed is a message that waits for its time.
type Delayed struct {
	Offset    record.Offset
	DueMillis int64
}

// delays is the partition's index of messages that are not due yet, shared by all
// groups. Messages come in the order of their offsets, so entries are sorted by
// construction; a heap has them by time. What is settled otherwise (fired, cancelled,
// moved) leaves a dead entry behind, and both are cleaned up when half is dead.
type delays struct {
	entries []Delayed // by offset; due < 0: dead
	dead    int
	byTime  dueHeap // may hold what entries do not agree with: stale
}

const goneDue = -1

type dueHeap []Delayed

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	return h[i].DueMillis < h[j].DueMillis || h[i].DueMillis == h[j].DueMillis && h[i].Offset < h[j].Offset
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)   { *h = append(*h, x.(Delayed)) }
func (h *dueHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func (d *delays) len() int { return len(d.entries) - d.dead }

// find is the position of the first entry ≥ o.
func (d *delays) find(o record.Offset) int {
	return sort.Search(len(d.entries), func(i int) bool { return d.entries[i].Offset >= o })
}

// due is when a message is due; 0: it is not waiting.
func (d *delays) due(o record.Offset) int64 {
	if i := d.find(o); i < len(d.entries) && d.entries[i].Offset == o && d.entries[i].DueMillis != goneDue {
		return d.entries[i].DueMillis
	}
	return 0
}

// add takes a message whose offset is larger than all before.
func (d *delays) add(o record.Offset, dueMillis int64) {
	if n := len(d.entries); dueMillis <= 0 || n > 0 && d.entries[n-1].Offset >= o {
		return
	}
	d.entries = append(d.entries, Delayed{o, dueMillis})
	heap.Push(&d.byTime, Delayed{o, dueMillis})
}

// move gives a waiting message another time; ≤ 0 takes it out. It reports whether it waits.
func (d *delays) move(o record.Offset, dueMillis int64) bool {
	i := d.find(o)
	if i == len(d.entries) || d.entries[i].Offset != o || d.entries[i].DueMillis == goneDue {
		return false
	}
	if dueMillis <= 0 {
		d.entries[i].DueMillis = goneDue
		d.dead++
	} else {
		d.entries[i].DueMillis = dueMillis
		heap.Push(&d.byTime, Delayed{o, dueMillis})
	}
	d.tidy()
	return true
}

// fire takes out what is due by nowMillis, in the order of time.
func (d *delays) fire(nowMillis int64) []record.Offset {
	var fired []record.Offset
	for len(d.byTime) > 0 && d.byTime[0].DueMillis <= nowMillis {
		e := heap.Pop(&d.byTime).(Delayed)
		if i := d.find(e.Offset); i < len(d.entries) && d.entries[i] == e {
			d.entries[i].DueMillis = goneDue
			d.dead++
			fired = append(fired, e.Offset)
		}
	}
	if fired != nil {
		d.tidy()
	}
	return fired
}

// next is when something may be due; 0: nothing waits. It may be too early by what
// was cancelled or moved: then firing finds nothing.
func (d *delays) next() int64 {
	if len(d.byTime) == 0 {
		return 0
	}
	return d.byTime[0].DueMillis
}

// removeBelow forgets messages that are gone from the log and says how many.
func (d *delays) removeBelow(o record.Offset) (n int64) {
	for i := range d.entries[:d.find(o)] {
		if d.entries[i].DueMillis != goneDue {
			d.entries[i].DueMillis = goneDue
			d.dead++
			n++
		}
	}
	d.tidy()
	return n
}

// tidy cleans up when half of the entries are dead or of the heap stale.
func (d *delays) tidy() {
	if live := d.len(); len(d.entries) <= 2*live+64 && len(d.byTime) <= 2*live+64 {
		return
	}
	d.entries = slices.DeleteFunc(d.entries, func(e Delayed) bool { return e.DueMillis == goneDue })
	if cap(d.entries) > 4*len(d.entries)+64 {
		d.entries = slices.Clone(d.entries)
	}
	d.dead = 0
	d.reheap()
}

func (d *delays) reheap() {
	if cap(d.byTime) > 4*len(d.entries)+64 {
		d.byTime = nil
	}
	d.byTime = append(d.byTime[:0], d.entries...)
	heap.Init(&d.byTime)
}

// list shows waiting messages from an offset on, at most max.
func (d *delays) list(from record.Offset, max int) []Delayed {
	var out []Delayed
	for _, e := range d.entries[d.find(from):] {
		if len(out) == max {
			break
		}
		if e.DueMillis != goneDue {
			out = append(out, e)
		}
	}
	return out
}

// from is how many wait at or behind an offset, when all before it are few or none.
func (d *delays) from(o record.Offset) int64 {
	if len(d.entries) == 0 || o <= d.entries[0].Offset {
		return int64(d.len())
	}
	n := int64(0)
	for _, e := range d.entries[d.find(o):] {
		if e.DueMillis != goneDue {
			n++
		}
	}
	return n
}

// uvarint entries; each: offset as a difference, due time as a difference to the last (zigzag)
func (d *delays) append(b []byte) []byte {
	b = appendUint(b, uint64(d.len()))
	last := Delayed{}
	for _, e := range d.entries {
		if e.DueMillis != goneDue {
			b = appendUint(b, uint64(e.Offset-last.Offset))
			b = appendInt(b, e.DueMillis-last.DueMillis)
			last = e
		}
	}
	return b
}

func (d *delays) restore(r *reader) {
	*d = delays{}
	n := r.count(2)
	d.entries = make([]Delayed, 0, n)
	last := Delayed{Offset: -1}
	for i := range n {
		e := Delayed{r.offset(), r.int()}
		if i > 0 {
			e.Offset += last.Offset
			e.DueMillis += last.DueMillis
		}
		if r.err != nil || e.Offset <= last.Offset || e.DueMillis <= 0 {
			r.fail("delayed messages out of order")
			return
		}
		d.entries, last = append(d.entries, e), e
	}
	d.reheap()
}
