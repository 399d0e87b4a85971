package broker

import (
	"container/list"
	"encoding/binary"
	"fmt"

	"github.com/tube-mq/tube/internal/record"
)

// keptBatches is how many of a producer's last batches can be recognised when
// they come again: what Kafka's clients may have under way on one connection.
const keptBatches = 5

// producers is what a partition knows of its idempotent producers: part of the
// replicated state, so it must depend on the log alone. Bounded by count and,
// measured in the log's own time, by age.
type producers struct {
	byID map[record.ProducerID]*list.Element // of *producer
	// order has the producer that wrote longest ago in front.
	order        *list.List
	max          int
	expiryMillis int64
}

// producer is one producer's recent past in this partition.
type producer struct {
	id         record.ProducerID
	epoch      int16
	lastMillis int64
	// batches has the newest last. Invariant: 1 to keptBatches, all of epoch,
	// sequences following one another.
	batches []keptBatch
}

type keptBatch struct {
	first, last int32 // sequences
	base        record.Offset
	stampMillis int64 // LogAppendTime or −1
}

func newProducers(max int, expiryMillis int64) *producers {
	return &producers{map[record.ProducerID]*list.Element{}, list.New(), max, expiryMillis}
}

// check says what a batch of an idempotent producer is: new (nil, nil), a
// repeat (the kept batch), or refused. Source: KIP-98, KIP-360.
func (ps *producers) check(h record.Header) (*keptBatch, error) {
	el, ok := ps.byID[h.ProducerID]
	if !ok {
		// Never seen, or so long ago that it was forgotten: any sequence may begin.
		return nil, nil
	}
	p := el.Value.(*producer)
	switch {
	case h.ProducerEpoch < p.epoch:
		return nil, fmt.Errorf("%w: producer %d has epoch %d, the batch %d", ErrProducerFenced, p.id, p.epoch, h.ProducerEpoch)
	case h.ProducerEpoch > p.epoch:
		if h.BaseSequence != 0 {
			return nil, fmt.Errorf("%w: producer %d begins epoch %d with sequence %d", ErrOutOfOrderSequence, p.id, h.ProducerEpoch, h.BaseSequence)
		}
		return nil, nil
	}
	last := h.LastSequence()
	for i := range p.batches {
		if b := &p.batches[i]; b.first == h.BaseSequence && b.last == last {
			return b, nil
		}
	}
	newest := p.batches[len(p.batches)-1]
	if h.BaseSequence == record.AddSequence(newest.last, 1) {
		return nil, nil
	}
	if record.SequenceBefore(h.BaseSequence, p.batches[0].first) {
		return nil, fmt.Errorf("%w: producer %d repeats sequence %d, older than the last %d batches", ErrDuplicateSequence, p.id, h.BaseSequence, keptBatches)
	}
	return nil, fmt.Errorf("%w: producer %d sent sequence %d, expected %d", ErrOutOfOrderSequence, p.id, h.BaseSequence, record.AddSequence(newest.last, 1))
}

// note takes a batch that check found new.
func (ps *producers) note(h record.Header, base record.Offset, nowMillis, stampMillis int64) {
	el, ok := ps.byID[h.ProducerID]
	if !ok {
		el = ps.order.PushBack(&producer{id: h.ProducerID, epoch: h.ProducerEpoch})
		ps.byID[h.ProducerID] = el
	} else {
		ps.order.MoveToBack(el)
	}
	p := el.Value.(*producer)
	if p.epoch != h.ProducerEpoch {
		p.epoch, p.batches = h.ProducerEpoch, p.batches[:0]
	}
	if len(p.batches) == keptBatches {
		copy(p.batches, p.batches[1:])
		p.batches = p.batches[:keptBatches-1]
	}
	p.batches = append(p.batches, keptBatch{h.BaseSequence, h.LastSequence(), base, stampMillis})
	p.lastMillis = nowMillis
	ps.expire(nowMillis)
}

// expire forgets producers that have not written for too long, and the longest
// quiet ones when there are too many.
func (ps *producers) expire(nowMillis int64) {
	for el := ps.order.Front(); el != nil; el = ps.order.Front() {
		p := el.Value.(*producer)
		if len(ps.byID) <= ps.max && nowMillis-p.lastMillis <= ps.expiryMillis {
			return
		}
		ps.order.Remove(el)
		delete(ps.byID, p.id)
	}
}

func (ps *producers) states() []ProducerState {
	out := make([]ProducerState, 0, len(ps.byID))
	for el := ps.order.Front(); el != nil; el = el.Next() {
		p := el.Value.(*producer)
		out = append(out, ProducerState{
			ID: p.id, Epoch: p.epoch, LastSequence: p.batches[len(p.batches)-1].last,
			LastTimestampMillis: p.lastMillis, TxnStart: -1,
		})
	}
	return out
}

// u32 producers, oldest first; each: u64 id, u16 epoch, u64 last ms, u8 batches,
// each: u32 first, u32 last, u64 base, u64 stamp (big endian)
func (ps *producers) append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint32(b, uint32(len(ps.byID)))
	for el := ps.order.Front(); el != nil; el = el.Next() {
		p := el.Value.(*producer)
		b = be.AppendUint64(b, uint64(p.id))
		b = be.AppendUint16(b, uint16(p.epoch))
		b = be.AppendUint64(b, uint64(p.lastMillis))
		b = append(b, byte(len(p.batches)))
		for _, k := range p.batches {
			b = be.AppendUint32(b, uint32(k.first))
			b = be.AppendUint32(b, uint32(k.last))
			b = be.AppendUint64(b, uint64(k.base))
			b = be.AppendUint64(b, uint64(k.stampMillis))
		}
	}
	return b
}

// restore puts what append wrote in the place of what is there.
func (ps *producers) restore(r *reader) {
	clear(ps.byID)
	ps.order.Init()
	for range r.u32() {
		p := &producer{id: record.ProducerID(r.u64()), epoch: int16(r.u16()), lastMillis: int64(r.u64())}
		n := int(r.u8())
		if r.err == nil && (n == 0 || n > keptBatches) {
			r.fail("producer %d keeps %d batches", p.id, n)
		}
		for range n {
			p.batches = append(p.batches, keptBatch{int32(r.u32()), int32(r.u32()), record.Offset(r.u64()), int64(r.u64())})
		}
		if r.err != nil {
			return
		}
		ps.byID[p.id] = ps.order.PushBack(p)
	}
}
