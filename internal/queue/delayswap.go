package queue

import (
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/tube-mq/tube/internal/record"
)

// Swap is where blocks of the index of delayed messages go that are far from being
// due, when those of the whole node take more memory than they may. It is a cache:
// nothing in it outlives the process, and what it has never shows in what a State
// says or writes. One belongs to one State, and is called while that is used.
type Swap interface {
	// Grow is told by how many bytes the blocks in memory have grown or shrunk.
	Grow(deltaBytes int)
	// Over says that the blocks in memory, all over the node, are more than the budget.
	Over() bool
	// Put keeps up to SwapBlockBytes and says where. It may refuse; the block stays in
	// memory then.
	Put(block []byte) (Slot, error)
	// Get reads as many bytes as block has of what was put there.
	Get(s Slot, block []byte) error
	// Free: nobody asks for it any more.
	Free(s Slot)
	// Lost is told once when a block cannot be read or is not what was put there: the
	// State is of no use any more. See State.Err.
	Lost(err error)
}

// Slot is a place in a Swap; 0: none.
type Slot uint32

// SwapBlockBytes is the most that one Slot has to hold.
const SwapBlockBytes = 8 * blockEntries

// ErrSwapDamaged: a block of the index of delayed messages is not what was written.
// The messages are in the log, and with a new start the index is made anew.
var ErrSwapDamaged = errors.New("swapped block of the index of delayed messages is damaged")

// swapping is what delays keeps for its blocks in the swap.
//
// A block that was read back keeps its copy in the swap for as long as it says the
// same: what was fired of it does not count, as everything before the block's
// earliest is fired. So blocks that are read, fired in part and put out again are
// written once.
type swapping struct {
	swap Swap // nil: everything stays in memory
	// far has the blocks that may go, the one that is due last on top. An entry whose
	// time or block has changed since is found out when it comes to the top.
	far       farHeap
	outside   int   // messages in blocks that are not in memory
	heldBytes int   // of entries in memory
	lost      error // a block could not be read, or the state was released

	// The block that was read last and not taken into memory.
	peeked     *delayBlock
	peekedFrom int64 // its earliest then
	peekedList []uint64
	bytes      []byte
}

// hold makes entries the block's in memory; nil: none are.
func (d *delays) hold(b *delayBlock, entries []uint64) {
	delta := 8 * (cap(entries) - cap(b.entries))
	b.entries = entries
	d.heldBytes += delta
	if d.swap != nil && delta != 0 {
		d.swap.Grow(delta)
	}
}

// change makes sure that a block is in memory and its copy, if it has one, forgotten.
func (d *delays) change(b *delayBlock) bool {
	if b.entries == nil && !d.load(b) {
		return false
	}
	d.forget(b)
	return true
}

// forget gives up a block's copy.
func (d *delays) forget(b *delayBlock) {
	if b.slot != 0 {
		d.swap.Free(b.slot)
		b.slot = 0
	}
	if d.peeked == b {
		d.peeked = nil
	}
}

// peek is what a block has, to be looked at until the next call; nothing if it is lost.
func (d *delays) peek(b *delayBlock) []uint64 {
	switch {
	case b.entries != nil:
		return b.entries
	case d.peeked == b && d.peekedFrom == b.earliest:
		return d.peekedList
	}
	if d.peekedList == nil {
		d.peekedList = make([]uint64, blockEntries)
	}
	d.peeked, d.peekedList = nil, d.peekedList[:b.count]
	if !d.read(b, d.peekedList) {
		return nil
	}
	d.peeked, d.peekedFrom = b, b.earliest
	return d.peekedList
}

// load brings a block back into memory.
func (d *delays) load(b *delayBlock) bool {
	entries := make([]uint64, b.count)
	if !d.read(b, entries) {
		return false
	}
	d.loaded(b, entries)
	return true
}

func (d *delays) loaded(b *delayBlock, entries []uint64) {
	d.hold(b, entries)
	d.outside -= int(b.live)
	d.mayGo(b)
}

func (d *delays) read(b *delayBlock, into []uint64) bool {
	if d.lost != nil {
		return false
	}
	bytes := d.buffer()[:8*len(into)]
	err := d.swap.Get(b.slot, bytes)
	if err == nil {
		err = b.decode(bytes, into)
	}
	if err != nil {
		d.lost = fmt.Errorf("delayed messages from offset %d on: %w", b.first, err)
		d.swap.Lost(d.lost)
	}
	return err == nil
}

func (d *delays) buffer() []byte {
	if d.bytes == nil {
		d.bytes = make([]byte, SwapBlockBytes)
	}
	return d.bytes
}

// decode reads what was put into the swap: the entries, little endian.
func (b *delayBlock) decode(bytes []byte, into []uint64) error {
	if got := crc32.Checksum(bytes, record.Castagnoli); got != b.sum {
		return fmt.Errorf("%w: CRC %08x, want %08x", ErrSwapDamaged, got, b.sum)
	}
	live := uint16(0)
	for i := range into {
		e := binary.LittleEndian.Uint64(bytes[8*i:])
		if int64(e&maxDue) < b.earliest {
			e &^= maxDue // fired since
		} else {
			live++
		}
		into[i] = e
	}
	if live != b.live {
		return fmt.Errorf("%w: %d messages in it wait, not %d", ErrSwapDamaged, live, b.live)
	}
	return nil
}

// evict puts a block out of memory; false: the swap does not take it.
func (d *delays) evict(b *delayBlock) bool {
	if b.slot == 0 {
		bytes := d.buffer()[:0]
		for _, e := range b.entries {
			bytes = binary.LittleEndian.AppendUint64(bytes, e)
		}
		slot, err := d.swap.Put(bytes)
		if err != nil {
			return false
		}
		b.slot, b.sum = slot, crc32.Checksum(bytes, record.Castagnoli)
	}
	d.hold(b, nil)
	d.outside += int(b.live)
	return true
}

// mayGo notes that a block in memory can be put out. The last one goes only if PutOut says
// so, as it grows.
func (d *delays) mayGo(b *delayBlock) {
	if d.swap == nil {
		return
	}
	if len(d.far) > 2*len(d.blocks)+64 {
		d.far = d.far[:0]
		for _, b := range d.blocks[:len(d.blocks)-1] {
			if b.entries != nil {
				d.far = append(d.far, farBlock{b.earliest, b})
			}
		}
		heap.Init(&d.far)
	}
	heap.Push(&d.far, farBlock{b.earliest, b})
}

// farthest is the block in memory that is due last, of those that may go; nil: none.
func (d *delays) farthest() *delayBlock {
	for len(d.far) > 0 {
		top := &d.far[0]
		switch b := top.block; {
		case b.entries == nil || b == d.blocks[len(d.blocks)-1]:
			heap.Pop(&d.far)
		case b.earliest != top.earliest:
			top.earliest = b.earliest
			heap.Fix(&d.far, 0)
		default:
			return b
		}
	}
	return nil
}

// putOut puts up to so many blocks out of memory that have nothing due before a time;
// false: the swap does not take them.
func (d *delays) putOut(blocks int, dueMillis int64) bool {
	for ; blocks > 0; blocks-- {
		b := d.farthest()
		if b == nil || b.earliest < dueMillis {
			break
		}
		if !d.evict(b) {
			return false
		}
		heap.Pop(&d.far)
	}
	return true
}

// relieve is called when a block was added to those in memory, or changed there: twice
// as many go as have come, so that the whole keeps to the budget.
func (d *delays) relieve() {
	if d.swap != nil && d.swap.Over() {
		d.putOut(2, 0)
	}
}

// release gives back all that the index has in the swap, and its memory.
func (d *delays) release() {
	for _, b := range d.blocks {
		d.letGo(b)
	}
	*d = delays{swapping: swapping{swap: d.swap}}
}

// farHeap has the block on top that has nothing due for longest.
type farHeap []farBlock

type farBlock struct {
	earliest int64
	block    *delayBlock
}

func (h farHeap) Len() int           { return len(h) }
func (h farHeap) Less(i, j int) bool { return h[i].earliest > h[j].earliest }
func (h farHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *farHeap) Push(x any)        { *h = append(*h, x.(farBlock)) }
func (h *farHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = farBlock{}
	*h = old[:len(old)-1]
	return x
}

// SwappedBlock is a block outside of memory that will be due soon. Whoever brings it
// back reads Bytes from Slot; the State need not be held for that.
type SwappedBlock struct {
	Slot  Slot
	Bytes []byte
	first record.Offset
}

// Near lists blocks outside of memory that have something due before a time, at most so many.
func (s *State) Near(dueMillis int64, most int) []SwappedBlock {
	d := &s.delays
	var list []SwappedBlock
	var look func(i int)
	look = func(i int) {
		if i >= len(d.byDue) || d.byDue[i].earliest >= dueMillis || len(list) >= most {
			return
		}
		if b := d.byDue[i]; b.entries == nil {
			list = append(list, SwappedBlock{b.slot, make([]byte, 8*int(b.count)), b.first})
		}
		look(2*i + 1)
		look(2*i + 2)
	}
	if d.outside > 0 {
		look(0)
	}
	return list
}

// Load takes blocks back into memory that were read. One that has changed since is left.
func (s *State) Load(list []SwappedBlock) {
	d := &s.delays
	for _, r := range list {
		i := d.block(r.first)
		if i == len(d.blocks) {
			continue
		}
		b := d.blocks[i]
		if b.first != r.first || b.entries != nil || b.slot != r.Slot || 8*int(b.count) != len(r.Bytes) {
			continue
		}
		entries := make([]uint64, b.count)
		if b.decode(r.Bytes, entries) == nil { // else whoever needs it finds out
			d.loaded(b, entries)
		}
	}
}

// FarthestMillis is when the block has something due that PutOut takes first; 0: there is
// none.
func (s *State) FarthestMillis() int64 {
	if b := s.delays.farthest(); b != nil {
		return b.earliest
	}
	if b := s.delays.growing(); b != nil {
		return b.earliest
	}
	return 0
}

// PutOut puts up to so many blocks of the index of delayed messages out of memory, those
// due last first, the one that grows at last, and none that has something due before a time.
// It says how many bytes it put out.
func (s *State) PutOut(blocks int, dueMillis int64) (sizeBytes int) {
	d := &s.delays
	if d.swap == nil {
		return 0
	}
	before := d.heldBytes
	if !d.putOut(blocks, dueMillis) {
		return before - d.heldBytes
	}
	if b := d.growing(); b != nil && d.farthest() == nil && b.earliest >= dueMillis {
		d.evict(b)
	}
	return before - d.heldBytes
}

// growing is the last block, if it is in memory.
func (d *delays) growing() *delayBlock {
	if n := len(d.blocks); n > 0 && d.blocks[n-1].entries != nil {
		return d.blocks[n-1]
	}
	return nil
}

// SwappedCount is how many messages wait whose time is not in memory.
func (s *State) SwappedCount() int { return s.delays.outside }

// SwapTo has an empty State swap; see Swap.
func (s *State) SwapTo(swap Swap) { s.delays.swap = swap }

// Err says that a part of the State is lost: what it answers from then on is that
// messages wait, what it writes means nothing, and it must not be used any more.
func (s *State) Err() error { return s.delays.lost }

// Release gives back what a State has outside of memory. It is lost then; see Err.
func (s *State) Release() {
	s.delays.release()
	s.delays.lost = errors.New("the state of the queues was given up")
}
