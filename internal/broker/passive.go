package broker

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tube-mq/tube/internal/record"
)

// A passive broker, for simulation, has no goroutines: its owner says when what
// they do is done.

// Flush writes what each partition holds in memory to its segments, as the
// flusher does when there is much of it.
func (b *Broker) Flush() {
	for _, p := range b.inOrder() {
		_ = b.flusher.write(p) // reported there
	}
}

// LookAtDisk does what a broker does every second: see whether there is room.
func (b *Broker) LookAtDisk() { b.lookAtDisk() }

// LookAtDelays does what a broker does every second: see what of the index of delayed
// messages shall be in memory.
func (b *Broker) LookAtDelays() { b.lookAtDelays() }

func (b *Broker) inOrder() []*Partition {
	all := b.all()
	slices.SortFunc(all, func(x, y *Partition) int { return cmp.Compare(x.groupID, y.groupID) })
	return all
}

// Outcome says what an entry's result is, the same on every replica.
func Outcome(result any) string {
	r, ok := result.(produced)
	if !ok {
		return fmt.Sprint(result)
	}
	return fmt.Sprintf("base %d, stamp %d, start %d, repeats %v, %v, %v", r.base, r.stampMillis, r.start, r.repeats, r.err, r.fatal)
}

// ReadHere is Read from this replica, whoever leads.
func (p *Partition) ReadHere(from record.Offset, maxBytes int) (ReadResult, error) {
	return p.read(ReadRequest{Offset: from, MaxBytes: maxBytes, MinOne: true, LeaderEpoch: -1})
}

// BoundsHere is Bounds of this replica, whoever leads.
func (p *Partition) BoundsHere() Bounds { return *p.machine.bounds.Load() }
