package broker

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// stateVersion is the version of a partition's saved state. Version 1, which had no
// queue groups, is still read.
const stateVersion = 2

// machine is a partition's replicated state: the log's bounds, its leader
// epochs and its producers. The batches themselves go to the commit log, which
// never holds anything that is not committed.
//
// All methods belong to the group's loop, but for those that say otherwise.
type machine struct {
	p   *Partition
	log commitLog

	end   record.Offset // the next offset to be given
	start record.Offset // the first offset that may be read
	// nowMillis is the largest proposer's clock seen in the log: the machine's only clock.
	nowMillis int64
	epochs    epochs
	producers *producers
	// queues is the delivery state of the topic's queue groups in this partition.
	// Guarded by mu, as leaders' desks look into it.
	queues *queue.State
	swap   queue.Swap // of queues; nil: none
	// fired and lost are for Applied.
	fired []record.Offset
	lost  []queue.Lost

	// nextDue is when to fire what waits for its time, by the queue clock; 0: nothing does.
	nextDue atomic.Int64
	// bounds is what readers may see, published with every entry.
	bounds atomic.Pointer[Bounds]
	// mu lets lookups read epochs, producers and queues while the loop goes on.
	mu sync.Mutex
}

// produced is Apply's result for a batch.
type produced struct {
	base        record.Offset
	stampMillis int64
	start       record.Offset
	repeats     []queue.Repeat // nothing was stored as these have been already
	err         error
	fatal       error // see replica.Fatal
}

// Fatal implements replica.Fatal.
func (p produced) Fatal() error { return p.fatal }

// Apply implements replica.Machine.
func (m *machine) Apply(e replica.Entry) any {
	kind, now := parseCommand(e.Data)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nowMillis = max(m.nowMillis, now)
	r := m.apply(e, kind)
	if err := m.queues.Err(); err != nil && r.fatal == nil {
		r.fatal = err
	}
	return r
}

func (m *machine) apply(e replica.Entry, kind commandKind) produced {
	// Published here, not in Applied: who is answered may read what was
	// acknowledged at once.
	switch kind {
	case commandProduce, commandHeaderOnly, commandAnnexed, commandHeaderAnnex:
		defer m.publish()
		return m.produce(e, kind)
	case commandLogStart:
		defer m.publish()
		return m.moveStart(e.Data[commandBytes:])
	case commandQueue:
		return m.queueOps(e)
	}
	panic(fmt.Sprintf("broker: partition %s: entry %d has unknown kind %d: written by a newer version", m.p.id, e.Index, kind))
}

func (m *machine) produce(e replica.Entry, kind commandKind) produced {
	h, err := record.ParseHeader(e.Data)
	if err != nil {
		panic(fmt.Sprintf("broker: partition %s: committed entry %d is no batch: %v", m.p.id, e.Index, err))
	}
	if h.ProducerID >= 0 {
		repeat, err := m.producers.check(h)
		if err != nil {
			return produced{base: -1, stampMillis: -1, start: m.start, err: err}
		}
		if repeat != nil {
			return produced{base: repeat.base, stampMillis: repeat.stampMillis, start: m.start}
		}
	}
	stamp := int64(-1)
	if h.Attributes&record.LogAppendTimeBit != 0 {
		stamp = h.MaxTimestamp
	}
	batch, annexe, repeats := m.annexe(e, kind, h)
	if annexe != nil && len(repeats) > 0 && (!annexe.Keep || len(repeats) == int(h.Count)) {
		if annexe.Keep && h.ProducerID >= 0 {
			m.producers.note(h, repeats[0].First, m.nowMillis, stamp)
		}
		return produced{base: repeats[0].First, stampMillis: stamp, start: m.start, repeats: repeats}
	}
	base := m.end
	epoch := record.Epoch(e.Term)
	h.BaseOffset, h.LeaderEpoch = base, epoch
	m.epochs.note(epoch, base)
	m.end = h.NextOffset()
	if h.ProducerID >= 0 {
		m.producers.note(h, base, m.nowMillis, stamp)
	}
	if kind == commandHeaderOnly || kind == commandHeaderAnnex {
		// The batch was in memory only and is gone; its offsets are not given again.
		m.start = m.end
		err = m.p.skip(m.end)
	} else {
		err = m.p.append(batch, h, e.Buf)
	}
	if annexe != nil {
		m.note(m.queues.Batch(annexe, base, repeats))
	}
	return produced{base: base, stampMillis: stamp, start: m.start, fatal: err}
}

// annexe splits an entry into its batch and what that brings along, if anything, and
// says which of the batch's messages are here already.
func (m *machine) annexe(e replica.Entry, kind commandKind, h record.Header) ([]byte, *queue.Annexe, []queue.Repeat) {
	var size int
	switch kind {
	case commandAnnexed:
		size = h.SizeBytes()
	case commandHeaderAnnex:
		size = record.HeaderBytes
	default:
		return e.Data, nil, nil
	}
	if size > len(e.Data) {
		panic(fmt.Sprintf("broker: partition %s: committed entry %d of %d bytes holds a batch of %d", m.p.id, e.Index, len(e.Data), size))
	}
	a, err := queue.ParseAnnexe(e.Data[size:], h.Count)
	if err != nil {
		panic(fmt.Sprintf("broker: partition %s: committed entry %d: %v", m.p.id, e.Index, err))
	}
	return e.Data[:size:size], &a, m.queues.Known(&a)
}

func (m *machine) queueOps(e replica.Entry) produced {
	a, err := m.queues.Apply(e.Data[commandBytes:], m.end)
	if err != nil {
		panic(fmt.Sprintf("broker: partition %s: committed entry %d: %v", m.p.id, e.Index, err))
	}
	m.note(a)
	return produced{base: -1, stampMillis: -1, start: m.start}
}

func (m *machine) note(a queue.Applied) {
	m.fired, m.lost = append(m.fired, a.Fired...), append(m.lost, a.Lost...)
	m.nextDue.Store(m.queues.NextDueMillis())
}

func (m *machine) moveStart(b []byte) produced {
	if len(b) == 8 {
		to := record.Offset(binary.BigEndian.Uint64(b))
		m.start = max(m.start, min(to, m.end))
		// By the command alone: a memory topic's start differs between replicas.
		m.note(m.queues.Trim(min(to, m.end)))
		m.p.startMoved(m.start)
	}
	return produced{base: -1, stampMillis: -1, start: m.start}
}

// Applied implements replica.Machine: readers are woken once for a run of entries.
func (m *machine) Applied() {
	fired, lost := m.fired, m.lost
	m.fired, m.lost = nil, nil
	m.p.applied(fired, lost)
}

func (m *machine) publish() {
	b := Bounds{m.start, m.end, m.end, m.leaderEpoch()}
	if old := m.bounds.Load(); old == nil || *old != b {
		m.bounds.Store(&b)
	}
}

func (m *machine) leaderEpoch() record.Epoch { return record.Epoch(m.p.term.Load()) }

// Led implements replica.Machine.
func (m *machine) Led(s replica.Status) {
	m.p.term.Store(uint64(s.Term))
	m.publish()
	m.p.led(s)
}

// Save implements replica.Machine. Error: the index of delayed messages is lost.
//
//	u8 version, u64 start, u64 end, u64 now ms, epochs, producers (big endian), the
//	queues' state to the end
func (m *machine) Save() ([]byte, error) {
	m.mu.Lock() // the queues' state is put into its smallest form
	defer m.mu.Unlock()
	be := binary.BigEndian
	b := []byte{stateVersion}
	b = be.AppendUint64(b, uint64(m.start))
	b = be.AppendUint64(b, uint64(m.end))
	b = be.AppendUint64(b, uint64(m.nowMillis))
	b = m.epochs.append(b)
	b = m.producers.append(b)
	b = m.queues.Append(b)
	return b, m.queues.Err()
}

// Restore implements replica.Machine; the batches are in the log already.
func (m *machine) Restore(b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.restore(b); err != nil {
		return err
	}
	if end := m.p.logEnd(); end < m.end {
		return fmt.Errorf("the copied state ends at offset %d, the log at %d", m.end, end)
	}
	m.p.startMoved(m.start)
	m.publish()
	m.p.wake()
	return nil
}

func (m *machine) restore(b []byte) error {
	r := &reader{b: b}
	version := r.u8()
	if r.err == nil && (version < 1 || version > stateVersion) {
		return fmt.Errorf("partition state of version %d, this program knows up to %d", version, stateVersion)
	}
	m.start, m.end, m.nowMillis = record.Offset(r.u64()), record.Offset(r.u64()), int64(r.u64())
	// A copy comes to a machine that has a state: nothing of it stays.
	m.epochs.restore(r)
	m.producers.restore(r)
	if r.err == nil && (m.start < 0 || m.end < m.start) {
		r.fail("log from %d to %d", m.start, m.end)
	}
	m.queues.Release()
	if r.err != nil || version < 2 {
		m.queues = queue.NewState()
		m.queues.SwapTo(m.swap)
		return r.err
	}
	q, err := queue.Restore(r.b, m.swap)
	if err != nil {
		return fmt.Errorf("partition state: %w", err)
	}
	m.queues = q
	m.nextDue.Store(q.NextDueMillis())
	return nil
}

// Settle implements replica.Machine; off the loop.
func (m *machine) Settle() error { return m.p.settle() }

// Close implements replica.Machine.
func (m *machine) Close() {
	m.mu.Lock()
	m.queues.Release()
	m.mu.Unlock()
	m.p.closed()
}
