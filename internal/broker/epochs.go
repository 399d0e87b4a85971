package broker

import (
	"encoding/binary"
	"sort"

	"github.com/tube-mq/tube/internal/record"
)

// epochs says which leader epoch wrote which offsets (KIP-101, KIP-320).
// Invariant: epochs and starts both rise; an epoch without batches is not in it.
type epochs []epochStart

type epochStart struct {
	epoch record.Epoch
	start record.Offset
}

// maxEpochs bounds the list; older ones are covered by the log start long before.
const maxEpochs = 10000

func (es *epochs) note(e record.Epoch, base record.Offset) {
	if n := len(*es); n > 0 && (*es)[n-1].epoch >= e {
		return
	}
	if len(*es) == maxEpochs {
		copy(*es, (*es)[1:])
		*es = (*es)[:maxEpochs-1]
	}
	*es = append(*es, epochStart{e, base})
}

// endOf returns the largest known epoch ≤ e and the offset where it ends; −1,
// −1 if all known epochs are later. current is the leader's own epoch and end
// the log's end.
func (es epochs) endOf(e, current record.Epoch, end record.Offset) (record.Epoch, record.Offset) {
	if e == current {
		return e, end
	}
	i := sort.Search(len(es), func(i int) bool { return es[i].epoch > e })
	if i == 0 {
		return -1, -1
	}
	if i == len(es) {
		return es[i-1].epoch, end
	}
	return es[i-1].epoch, es[i].start
}

func (es epochs) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(es)))
	for _, e := range es {
		b = binary.BigEndian.AppendUint32(b, uint32(e.epoch))
		b = binary.BigEndian.AppendUint64(b, uint64(e.start))
	}
	return b
}

// restore puts what append wrote in the place of what is there.
func (es *epochs) restore(r *reader) {
	*es = nil
	for range r.u32() {
		e := epochStart{record.Epoch(r.u32()), record.Offset(r.u64())}
		if n := len(*es); n > 0 && ((*es)[n-1].epoch >= e.epoch || (*es)[n-1].start > e.start) {
			r.fail("epoch %d at %d does not follow %d at %d", e.epoch, e.start, (*es)[n-1].epoch, (*es)[n-1].start)
		}
		if r.err != nil {
			return
		}
		*es = append(*es, e)
	}
}
