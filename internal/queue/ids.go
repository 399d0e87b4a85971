package queue

import (
	"crypto/sha256"

	"github.com/tube-mq/tube/internal/record"
)

// MaxIDs is how many message ids one partition remembers; beyond it the oldest are
// forgotten before their time. Each takes some 100 bytes of memory.
const MaxIDs = 1_000_000

// MessageHash stands for a message id: the first half of its SHA-256. Ids are the
// business's own, so who wants to suppress a message of another can only do so by
// knowing its id.
type MessageHash [16]byte

// HashID is the hash of a message id.
func HashID(id string) MessageHash {
	sum := sha256.Sum256([]byte(id))
	return MessageHash(sum[:16])
}

// ids remembers which messages came with which id, each for as long as the window that
// it came with says (the topic's, or OnceWindow) since it was stored, and until every
// group is done with the message and the topic's window has passed since then (passing.go).
// They are forgotten in the order in which they came, so one that is remembered for long
// keeps those behind it, up to MaxIDs.
type ids struct {
	// order has the oldest first, from head on, in the order of their offsets; the first
	// of the slice has number base.
	order   []knownID
	head    int
	base    uint64
	byHash  map[MessageHash]uint64 // numbers
	passing passing
}

type knownID struct {
	hash        MessageHash
	offset      record.Offset
	untilMillis int64 // by the queue clock
	// afterMillis is how long it is remembered from when every group is done with the
	// message; 0: until then (see Annexe.AfterMillis).
	afterMillis int64
}

// find is the message that came with an id.
func (s *ids) find(h MessageHash) (knownID, bool) {
	n, ok := s.byHash[h]
	if !ok {
		return knownID{}, false
	}
	return s.order[n-s.base], true
}

func (s *ids) len() int { return len(s.order) - s.head }

func (s *ids) add(e knownID) {
	if s.byHash == nil {
		s.byHash = map[MessageHash]uint64{}
	}
	s.byHash[e.hash] = s.base + uint64(len(s.order))
	s.order = append(s.order, e)
}

// stale says that an id need not be remembered: its window has passed since the message
// was stored, and since every group, whose floor is given, was done with it. clockMillis
// is the log's, before whatever is told the time now.
func (s *ids) stale(e knownID, nowMillis, clockMillis int64, floor record.Offset) bool {
	return nowMillis > s.until(e, clockMillis) && e.offset < floor
}

// expire forgets what is stale, oldest first, and what is too much.
func (s *ids) expire(nowMillis int64, floor record.Offset) {
	for s.len() > 0 {
		e := s.order[s.head]
		if s.len() <= MaxIDs && !s.stale(e, nowMillis, nowMillis, floor) {
			break
		}
		if s.byHash[e.hash] == s.base+uint64(s.head) {
			delete(s.byHash, e.hash)
		}
		s.head++
	}
	if s.head > 1024 && s.head > len(s.order)/2 {
		s.order = append([]knownID(nil), s.order[s.head:]...)
		s.base += uint64(s.head)
		s.head = 0
	}
	if s.len() == 0 {
		*s = ids{} // a map does not shrink by itself
	}
}

// uvarint ids, oldest first; each: 16 bytes, offset as a difference (zigzag), until ms as a difference (zigzag),
// and, if passing is in use, after ms as a difference (zigzag); then passing
func (s *ids) append(b []byte) []byte {
	b = appendUint(b, uint64(s.len()))
	last := knownID{}
	for _, e := range s.order[s.head:] {
		b = append(b, e.hash[:]...)
		b = appendInt(b, int64(e.offset-last.offset))
		b = appendInt(b, e.untilMillis-last.untilMillis)
		if s.passing.inUse() {
			b = appendInt(b, e.afterMillis-last.afterMillis)
		}
		last = e
	}
	if s.passing.inUse() {
		b = s.passing.append(b)
	}
	return b
}

// restore reads what append wrote; passing says whether that is there.
func (s *ids) restore(r *reader, passing bool) {
	*s = ids{}
	last := knownID{offset: -1}
	for i := range r.count(18) {
		var e knownID
		if len(r.b) < len(e.hash) {
			r.fail("it ends within a message id")
			return
		}
		r.b = r.b[copy(e.hash[:], r.b):]
		e.offset = max(last.offset, 0) + record.Offset(r.int())
		e.untilMillis = last.untilMillis + r.int()
		if passing {
			e.afterMillis = last.afterMillis + r.int()
		}
		if r.err != nil || e.offset <= last.offset || e.afterMillis < 0 {
			r.fail("message id %d at offset %d, after one at %d", i, e.offset, last.offset)
			return
		}
		s.add(e)
		last = e
	}
	if passing {
		s.passing.restore(r)
	}
}
