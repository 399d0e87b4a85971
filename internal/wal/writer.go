package wal

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// Batch is what one group wants written together.
type Batch struct {
	Records []Record
	// Sync asks for an answer only after the records are durable; without it
	// they are answered once written.
	Sync bool
	// Done is called once, from the writer's goroutine: it must be cheap.
	// positions has one for each record. The batches of one group (that of the
	// first record) are answered in the order of submission, and a batch without
	// records after everything submitted before it was; but a batch that asks for
	// no sync may be answered before another group's that does.
	Done func(positions []Position, err error)
}

const (
	// maxGather bounds one block, but for a single larger batch.
	maxGather = 4 << 20
	// rounds bounds what is assembled, written and synced at a time.
	rounds = 4
	// markAfter is how long the log must be quiet before a mark says that the
	// last block was durable.
	markAfter = 50 * time.Millisecond
)

// Writer takes what all groups have submitted while the last write was under
// way, writes it as one block, syncs at most once, and answers. While one block
// is being written and synced the next one is assembled: copying and checksums
// are a sixth of a large block's time. And while large blocks are being synced
// more large ones are written, so that the disk does not wait for us; small ones
// wait for the sync, and become one block.
type Writer struct {
	log *Log

	mu      sync.Mutex
	change  *sync.Cond
	pending []Batch
	bytes   int
	stopped bool
	// unsynced is how many rounds the syncer has that are not answered yet.
	unsynced int
	done     chan struct{}

	marked bool          // the last block assembled is a mark
	stop   chan struct{} // closed by Close
	timer  *time.Timer
	// turn is held by whoever writes: one round at a time, in order.
	turn chan struct{}
	jobs chan *round // for the goroutine that writes while run assembles
	// syncs are rounds that are written, for the goroutine that syncs and answers
	// while others are written; free are rounds that nobody uses.
	syncs chan *round
	free  chan *round

	// waiting are the groups with a batch in this round that waits for the sync;
	// of whoever has the turn.
	waiting map[record.Group]struct{}
}

// round is what is written together.
type round struct {
	batches   []Batch
	positions [][]Position
	block     encoded
	write     bool // there is a block
	sync      bool
	err       error
}

// NewWriter starts the writer of a log.
func NewWriter(l *Log) *Writer {
	w := &Writer{
		log: l, done: make(chan struct{}), stop: make(chan struct{}), marked: true, waiting: map[record.Group]struct{}{},
		turn: make(chan struct{}, 1), jobs: make(chan *round),
		syncs: make(chan *round, rounds), free: make(chan *round, rounds),
	}
	for range rounds {
		w.free <- new(round)
	}
	w.change = sync.NewCond(&w.mu)
	w.timer = time.AfterFunc(time.Hour, w.idle)
	w.timer.Stop()
	go w.run()
	return w
}

// idle asks for a mark: an empty batch that does not wait for anything.
func (w *Writer) idle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) == 0 && !w.stopped {
		w.pending = append(w.pending, Batch{Done: mark})
		w.change.Broadcast()
	}
}

func mark([]Position, error) {}

func sizeOf(b Batch) int {
	n := recordBytes
	for i := range b.Records {
		n += paddedBytes(len(b.Records[i].Data))
	}
	return n
}

// Submit queues a batch. It blocks while too much is waiting to be written.
func (w *Writer) Submit(b Batch) {
	size := sizeOf(b)
	w.mu.Lock()
	for w.bytes > 0 && w.bytes+size > w.log.cfg.QueueBytes && !w.stopped {
		w.change.Wait()
	}
	if w.stopped {
		w.mu.Unlock()
		b.Done(nil, ErrClosed)
		return
	}
	w.pending = append(w.pending, b)
	w.bytes += size
	if len(w.pending) == 1 || w.unsynced > 0 && w.bytes >= w.log.cfg.AheadBytes {
		w.change.Broadcast()
	}
	w.mu.Unlock()
}

func (w *Writer) run() {
	defer close(w.done)
	var others sync.WaitGroup
	others.Go(func() {
		for r := range w.jobs {
			w.commit(r)
		}
		close(w.syncs)
	})
	others.Go(w.syncLoop)
	for {
		r := <-w.free
		if !w.gather(r) {
			break
		}
		w.assemble(r)
		w.turn <- struct{}{}
		if w.more() {
			w.jobs <- r
		} else {
			w.commit(r) // nothing to assemble meanwhile: no other goroutine
		}
	}
	close(w.jobs)
	others.Wait()
}

// syncLoop syncs and answers rounds that were written ahead, as many together as
// there are.
func (w *Writer) syncLoop() {
	var together []*round
	for r := range w.syncs {
		together = append(together[:0], r)
		for len(w.syncs) > 0 {
			together = append(together, <-w.syncs)
		}
		w.finish(together...)
		w.mu.Lock()
		w.unsynced -= len(together)
		w.change.Broadcast()
		w.mu.Unlock()
		for _, r := range together {
			w.free <- r
		}
	}
}

func (w *Writer) more() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pending) > 0
}

// gather waits for batches and takes as many as fit one block.
// It reports false when the writer is to stop.
func (w *Writer) gather(r *round) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.pending) == 0 || w.unsynced > 0 && w.bytes < w.log.cfg.AheadBytes && !w.stopped {
		if w.stopped {
			return false
		}
		w.change.Wait()
	}
	size := 0
	n := 0
	for _, b := range w.pending {
		s := sizeOf(b)
		if n > 0 && size+s > maxGather {
			break
		}
		size += s
		n++
	}
	r.batches = append(r.batches[:0], w.pending[:n]...)
	rest := copy(w.pending, w.pending[n:])
	clear(w.pending[rest:])
	w.pending = w.pending[:rest]
	w.bytes = max(0, w.bytes-size)
	w.change.Broadcast()
	return true
}

// layOut makes room for the positions of a round's records and returns how many
// records there are.
func (r *round) layOut() (records int) {
	r.sync, r.err = false, nil
	for i := range r.batches {
		records += len(r.batches[i].Records)
		r.sync = r.sync || r.batches[i].Sync
	}
	all := make([]Position, records)
	r.positions = append(r.positions[:0], make([][]Position, len(r.batches))...)
	for i := range r.batches {
		n := len(r.batches[i].Records)
		r.positions[i], all = all[:n:n], all[n:]
	}
	return records
}

// assemble makes a round's block.
func (w *Writer) assemble(r *round) {
	records := r.layOut()
	if r.write = records > 0 || !w.marked; r.write {
		r.err = w.encode(r)
		w.marked = records == 0
	}
}

// commit writes a round and has it synced and answered, here or by the syncer. It
// has the turn, and gives it back.
func (w *Writer) commit(r *round) {
	defer func() { <-w.turn }()
	if r.err == nil && r.write {
		r.err = w.log.write(&r.block)
	}
	if r.write && r.block.records > 0 {
		w.timer.Reset(markAfter)
	}
	w.mu.Lock()
	// Whoever is behind rounds that are not answered yet must not overtake them.
	ahead := w.unsynced > 0 || r.sync && r.write && r.block.size >= int64(w.log.cfg.AheadBytes)
	if ahead {
		w.unsynced++
	}
	w.mu.Unlock()
	if ahead {
		w.syncs <- r
		return
	}
	if r.err == nil && !r.sync {
		w.log.expose()
	}
	answerWritten(r.batches, r.positions, r.err, w.waiting)
	if r.sync {
		w.finish(r)
	}
	clear(r.batches)
	w.free <- r
}

// finish makes rounds durable, if anyone asks for it, and answers what was not
// answered yet.
func (w *Writer) finish(rs ...*round) {
	var err error
	if slices.ContainsFunc(rs, func(r *round) bool { return r.sync && r.err == nil }) {
		err = w.log.sync()
	}
	w.log.expose()
	for _, r := range rs {
		if r.err == nil && r.sync {
			r.err = err
		}
		for i, b := range r.batches {
			if b.Done != nil {
				b.Done(r.positions[i], r.err)
			}
		}
		clear(r.batches)
	}
}

// answerWritten answers the batches that need not wait for the sync: neither
// for their own sake nor to keep the order. waitingGroups is room for its use.
func answerWritten(round []Batch, positions [][]Position, err error, waitingGroups map[record.Group]struct{}) {
	clear(waitingGroups)
	waits, barrier := false, false // any batch; one without records
	for i := range round {
		b := &round[i]
		late := b.Sync || barrier
		if len(b.Records) == 0 {
			late = late || waits
			barrier = late
		} else {
			g := b.Records[0].Group
			if _, behind := waitingGroups[g]; behind {
				late = true
			}
			if late {
				waitingGroups[g] = struct{}{}
			}
		}
		if late {
			waits = true
			continue
		}
		if b.Done != nil {
			b.Done(positions[i], err)
			b.Done = nil
		}
	}
}

// fullRetry is how often a full disk is tried again.
const fullRetry = 100 * time.Millisecond

// encode assembles a round's block. While the disk is full it waits, and answers
// batches without records that ask for no sync: everything written
// before has been answered, and a checkpoint, which can make room, needs to know.
func (w *Writer) encode(r *round) error {
	for {
		err := w.log.encode(&r.block, r.batches, r.positions, func(size int64) error {
			w.turn <- struct{}{} // whoever writes now is done then
			defer func() { <-w.turn }()
			w.awaitSyncs()
			return w.log.roll(size)
		})
		if !errors.Is(err, ErrFull) {
			return err
		}
		for i := range r.batches {
			if b := &r.batches[i]; isBarrier(b) && b.Done != nil {
				b.Done(nil, nil)
				b.Done = nil
			}
		}
		for _, b := range w.takeBarriers() {
			b.Done(nil, nil)
		}
		t := time.NewTimer(fullRetry)
		select {
		case <-w.stop:
			t.Stop()
			return err
		case <-t.C:
		}
	}
}

// awaitSyncs returns when nothing is with the syncer.
func (w *Writer) awaitSyncs() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.unsynced > 0 {
		w.change.Wait()
	}
}

func isBarrier(b *Batch) bool { return len(b.Records) == 0 && !b.Sync }

func (w *Writer) takeBarriers() (out []Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = slices.DeleteFunc(w.pending, func(b Batch) bool {
		if !isBarrier(&b) {
			return false
		}
		out = append(out, b)
		w.bytes = max(0, w.bytes-sizeOf(b))
		return true
	})
	return out
}

// Close writes what is pending, leaves a mark that says so, and closes the log.
func (w *Writer) Close() error {
	w.mu.Lock()
	if !w.stopped {
		w.stopped = true
		close(w.stop)
	}
	w.change.Broadcast()
	w.mu.Unlock()
	<-w.done
	w.timer.Stop()
	return w.log.close()
}
