package queue

import (
	"fmt"

	"github.com/tube-mq/tube/internal/record"
)

// Annexe is what a produced batch brings along for the queues, behind its last byte,
// so that nobody has to look into the batch when it is applied.
type Annexe struct {
	ClockMillis  int64 // the leader's queue clock
	WindowMillis int64 // how long the ids are remembered at least; 0: nothing says so
	// AfterMillis is how long they are remembered at least from when every group is done with their
	// message: the topic's dedupe window as the leader sees it. 0: until they are done.
	// It is given only once the cluster is at meta.LevelIDWindows.
	AfterMillis int64
	// Keep has a batch stored whose ids are known in part, as Kafka's producers
	// cannot be told to send the rest; queue groups do not get the repeats. Without it
	// such a batch is refused.
	Keep   bool
	Delays []AnnexeDelay // ascending by delta
	IDs    []AnnexeID    // ascending by delta; no id twice
}

// AnnexeDelay says when a record of the batch is due.
type AnnexeDelay struct {
	Delta     int32
	DueMillis int64
}

// AnnexeID says which id a record of the batch has.
type AnnexeID struct {
	Delta int32
	Hash  MessageHash
}

// Empty says that there is nothing to bring along.
func (a *Annexe) Empty() bool { return len(a.Delays) == 0 && len(a.IDs) == 0 }

// annexeVersion is that of an annexe without AfterMillis, windowsAnnexe that of one with
// it, which programs before refuse.
const (
	annexeVersion = 1
	windowsAnnexe = 2
)

// Append writes the annexe.
//
//	u8 version, u8 flags (1: keep), clock ms, window ms, of version 2: after ms,
//	delays: delta as a difference, due − clock (zigzag); ids: delta as a difference, 16 bytes
func (a *Annexe) Append(b []byte) []byte {
	flags := byte(0)
	if a.Keep {
		flags = 1
	}
	version := byte(annexeVersion)
	if a.AfterMillis > 0 {
		version = windowsAnnexe
	}
	b = append(b, version, flags)
	b = appendUint(b, uint64(a.ClockMillis))
	b = appendUint(b, uint64(a.WindowMillis))
	if version == windowsAnnexe {
		b = appendUint(b, uint64(a.AfterMillis))
	}
	b = appendUint(b, uint64(len(a.Delays)))
	last := int32(0)
	for _, d := range a.Delays {
		b = appendUint(b, uint64(d.Delta-last))
		b = appendInt(b, d.DueMillis-a.ClockMillis)
		last = d.Delta
	}
	b = appendUint(b, uint64(len(a.IDs)))
	last = 0
	for _, d := range a.IDs {
		b = appendUint(b, uint64(d.Delta-last))
		b = append(b, d.Hash[:]...)
		last = d.Delta
	}
	return b
}

// ParseAnnexe reads what Append wrote, for a batch of count records.
func ParseAnnexe(b []byte, count int32) (Annexe, error) {
	r := &reader{b: b}
	var a Annexe
	version := r.byte()
	if r.err == nil && version != annexeVersion && version != windowsAnnexe {
		return a, fmt.Errorf("annexe of version %d, this program knows up to %d", version, windowsAnnexe)
	}
	a.Keep = r.byte()&1 != 0
	a.ClockMillis = int64(r.uint())
	a.WindowMillis = int64(r.uint())
	if version == windowsAnnexe {
		if a.AfterMillis = int64(r.uint()); a.AfterMillis <= 0 {
			r.fail("ids are remembered for %d ms", a.AfterMillis)
		}
	}
	delta := func(i int, last int32) int32 {
		d := r.uint()
		if d >= uint64(count) || int64(d)+int64(last) >= int64(count) || i > 0 && d == 0 {
			r.fail("annexe names record %d behind %d of %d", d, last, count)
			return 0
		}
		return last + int32(d)
	}
	last := int32(0)
	for i := range r.count(2) {
		last = delta(i, last)
		a.Delays = append(a.Delays, AnnexeDelay{last, a.ClockMillis + r.int()})
	}
	last = 0
	for i := range r.count(17) {
		id := AnnexeID{Delta: delta(i, last)}
		last = id.Delta
		if len(r.b) < len(id.Hash) {
			r.fail("annexe ends within a message id")
			break
		}
		r.b = r.b[copy(id.Hash[:], r.b):]
		a.IDs = append(a.IDs, id)
	}
	return a, r.end()
}

// Repeat is a record of a batch whose message id is known.
type Repeat struct {
	Delta int32
	First record.Offset // of the message that came with the id
}
