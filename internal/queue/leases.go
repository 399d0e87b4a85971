package queue

import (
	"maps"
	"slices"

	"github.com/tube-mq/tube/internal/record"
)

// lease is a message in hand: with a consumer, or between its settlement and that
// being committed. There may be a million of them: it takes 40 bytes, and has no
// pointers that the garbage collector would follow.
type lease struct {
	offset record.Offset
	nonce  uint64
	// since is when it was handed out, in tenths of a second since the desk began;
	// lengthMillis for how long from then on it is held.
	since        uint32
	lengthMillis uint32
	hand         uint32 // whose: hand.number; 0: nobody's (trusted, or settled without being held)

	// Of those that are held: the lease that ends before this one and the one after, or
	// the place in the heap (before) if this one is a stray. Numbers of slots; 0: none.
	before, after int32

	attempt int16
	state   leaseState
	alone   bool // a suspect
}

type leaseState uint8

const (
	held    leaseState = iota
	asked              // ran out; its consumer was asked
	acking             // acknowledged, not committed yet
	failing            // failed or lost, not committed yet
)

// leases has a desk's leases: by offset, by end and by hand.
//
// They lie in blocks, in numbered slots that are used again. A page has the slots of
// 256 offsets in a row. Most leases are of one length, so they end in the order in
// which they begin: those are a list, to whose end they are put. Only a lease that
// ends before the list's last one is a stray, in a heap.
type leases struct {
	blocks []*[leaseBlock]lease
	used   int32 // slots that were ever used, with slot 0, which never is
	free   int32 // the first that is free again; the next one is its after
	count  int

	pages    map[int64]*leasePage
	lastPage *leasePage // the one that was looked at last
	lastHigh int64
	spare    *leasePage

	first, last int32   // of the list
	strays      []int32 // heap

	// hands is how many leases of each page a hand holds, of those hands and pages that
	// have some; about 100 KB for a million. (A set of offsets for each hand is moved
	// along whenever its first one is taken out.)
	hands map[uint32]map[int64]int
}

const (
	leaseBlock = 1024
	pageBits   = 8
	stray      = -1 // after, of a stray
)

type leasePage struct {
	slots [1 << pageBits]int32
	used  int
}

func newLeases() *leases {
	return &leases{used: 1, pages: map[int64]*leasePage{}, hands: map[uint32]map[int64]int{}}
}

func (t *leases) slot(n int32) *lease { return &t.blocks[n/leaseBlock][n%leaseBlock] }

func (t *leases) page(high int64) *leasePage {
	if t.lastPage == nil || t.lastHigh != high {
		p := t.pages[high]
		if p == nil {
			return nil
		}
		t.lastPage, t.lastHigh = p, high
	}
	return t.lastPage
}

// number is the slot of an offset's lease; 0: there is none.
func (t *leases) number(o record.Offset) int32 {
	p := t.page(int64(o) >> pageBits)
	if p == nil {
		return 0
	}
	return p.slots[o&(1<<pageBits-1)]
}

func (t *leases) has(o record.Offset) bool { return t.count > 0 && t.number(o) != 0 }

// at is the lease of an offset; nil: there is none. It is good until it is removed.
func (t *leases) at(o record.Offset) *lease {
	if t.count == 0 {
		return nil
	}
	n := t.number(o)
	if n == 0 {
		return nil
	}
	return t.slot(n)
}

// add makes a lease of an offset that has none, in nobody's hand.
func (t *leases) add(o record.Offset) *lease {
	n := t.free
	if n != 0 {
		t.free = t.slot(n).after
	} else {
		if int(t.used) == len(t.blocks)*leaseBlock || len(t.blocks) == 0 {
			t.blocks = append(t.blocks, new([leaseBlock]lease))
		}
		n = t.used
		t.used++
	}
	high := int64(o) >> pageBits
	p := t.page(high)
	if p == nil {
		if p, t.spare = t.spare, nil; p == nil {
			p = &leasePage{}
		}
		t.pages[high] = p
		t.lastPage, t.lastHigh = p, high
	}
	p.slots[o&(1<<pageBits-1)] = n
	p.used++
	t.count++
	l := t.slot(n)
	*l = lease{offset: o}
	return l
}

// remove forgets a lease that is not held.
func (t *leases) remove(o record.Offset) {
	n := t.number(o)
	if n == 0 {
		return
	}
	p := t.lastPage
	p.slots[o&(1<<pageBits-1)] = 0
	if p.used--; p.used == 0 {
		delete(t.pages, int64(o)>>pageBits)
		t.lastPage, t.spare = nil, p
	}
	if t.count--; t.count == 0 {
		// What a million of them took is given back.
		t.blocks, t.used, t.free = t.blocks[:min(len(t.blocks), 1):1], 1, 0
		return
	}
	t.slot(n).after, t.free = t.free, n
}

// each goes through the leases from an offset on, in their order, until f says no.
func (t *leases) each(from record.Offset, f func(*lease) bool) {
	for _, high := range slices.Sorted(maps.Keys(t.pages)) {
		if high < int64(from)>>pageBits {
			continue
		}
		for _, n := range &t.pages[high].slots {
			if n != 0 && t.slot(n).offset >= from && !f(t.slot(n)) {
				return
			}
		}
	}
}

// untilMillis is when a lease ends, in ms since the desk began.
func (l *lease) untilMillis() int64 { return l.sinceMillis() + int64(l.lengthMillis) }

// sinceMillis is when it was handed out, likewise.
func (l *lease) sinceMillis() int64 { return 100 * int64(l.since) }

// hold puts a lease into a hand, and among those that end.
func (t *leases) hold(l *lease, hand uint32) {
	l.hand = hand
	t.ends(t.number(l.offset), l)
	in := t.hands[hand]
	if in == nil {
		in = map[int64]int{}
		t.hands[hand] = in
	}
	in[int64(l.offset)>>pageBits]++
}

// letGo takes a lease out of its hand and of those that end.
func (t *leases) letGo(l *lease) {
	t.noEnd(l)
	in, high := t.hands[l.hand], int64(l.offset)>>pageBits
	if in[high]--; in[high] > 0 {
		return
	}
	if delete(in, high); len(in) == 0 {
		delete(t.hands, l.hand)
	}
}

// inHand lists what a hand holds, by offset.
func (t *leases) inHand(hand uint32) (list []*lease) {
	for _, high := range slices.Sorted(maps.Keys(t.hands[hand])) {
		for _, n := range &t.pages[high].slots {
			if n == 0 {
				continue
			}
			if l := t.slot(n); l.hand == hand && t.held(n, l) {
				list = append(list, l)
			}
		}
	}
	return list
}

// held reports whether a lease is in its hand still: those are, that end.
func (t *leases) held(n int32, l *lease) bool { return n == t.first || l.before != 0 || l.after != 0 }

// prolong moves the end of a lease that is held.
func (t *leases) prolong(l *lease, lengthMillis uint32) {
	t.noEnd(l)
	l.lengthMillis = lengthMillis
	t.ends(t.number(l.offset), l)
}

// ending is the lease that ends first; nil: none is held.
func (t *leases) ending() *lease {
	switch {
	case t.first == 0 && len(t.strays) == 0:
		return nil
	case t.first == 0:
		return t.slot(t.strays[0])
	case len(t.strays) == 0:
		return t.slot(t.first)
	}
	l, s := t.slot(t.first), t.slot(t.strays[0])
	if s.untilMillis() < l.untilMillis() {
		return s
	}
	return l
}

// ends puts a lease among those that end.
func (t *leases) ends(n int32, l *lease) {
	switch {
	case t.last == 0:
		t.first, t.last, l.before, l.after = n, n, 0, 0
	case t.slot(t.last).untilMillis() <= l.untilMillis():
		t.slot(t.last).after = n
		l.before, l.after, t.last = t.last, 0, n
	default:
		l.after = stray
		t.strays = append(t.strays, n)
		t.up(len(t.strays) - 1)
	}
}

// noEnd takes it out.
func (t *leases) noEnd(l *lease) {
	if l.after == stray {
		t.unstray(int(l.before))
		l.before, l.after = 0, 0
		return
	}
	if l.before != 0 {
		t.slot(l.before).after = l.after
	} else {
		t.first = l.after
	}
	if l.after != 0 {
		t.slot(l.after).before = l.before
	} else {
		t.last = l.before
	}
	l.before, l.after = 0, 0
}

// The heap of strays: the one that ends next is at 0. Each knows its place.

func (t *leases) unstray(i int) {
	end := len(t.strays) - 1
	moved := t.strays[end]
	t.strays = t.strays[:end]
	if i < end {
		t.strays[i] = moved
		t.down(i)
		t.up(int(t.slot(moved).before))
	}
	if end == 0 {
		t.strays = nil
	}
}

func (t *leases) sooner(a, b int32) bool { return t.slot(a).untilMillis() < t.slot(b).untilMillis() }

func (t *leases) up(i int) {
	n := t.strays[i]
	for i > 0 && t.sooner(n, t.strays[(i-1)/2]) {
		t.put(i, t.strays[(i-1)/2])
		i = (i - 1) / 2
	}
	t.put(i, n)
}

func (t *leases) down(i int) {
	n := t.strays[i]
	for {
		c := 2*i + 1
		if c >= len(t.strays) {
			break
		}
		if c+1 < len(t.strays) && t.sooner(t.strays[c+1], t.strays[c]) {
			c++
		}
		if !t.sooner(t.strays[c], n) {
			break
		}
		t.put(i, t.strays[c])
		i = c
	}
	t.put(i, n)
}

func (t *leases) put(i int, n int32) {
	t.strays[i] = n
	t.slot(n).before = int32(i)
}
