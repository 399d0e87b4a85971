package wal

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// Batch is what one group wants written together.
type Batch struct {
	Records []Record
	// Sync asks for an answer only after the records are durable; without it
	// they are answered once written.
	Sync bool
	// Mark has a block written even if there are no records in it: with Sync it
	// tells how long the disk takes for one.
	Mark bool
	// Probe: this batch, which has no records and asks for no sync, is also answered while
	// the disk is full and what was submitted before is not written. Who makes a
	// checkpoint asks so.
	Probe bool
	// Done is called once, by the writer, never two at a time: it must be cheap. The records'
	// data must stay as it is until then, also if it is written from where it lies.
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
	// mostLargeWrite is the most that one write counts for in largeWrite: a disk that hung
	// is soon forgotten.
	mostLargeWrite = time.Second
	// markAfter is how long the log must be quiet before a mark says that the
	// last block was durable.
	markAfter = 50 * time.Millisecond
)

// Writer takes what all groups have submitted while the last write was under
// way, writes it as one block, syncs at most once, and answers. While one block
// is being written and synced the next one is assembled. And while large blocks are
// being synced, and that takes longer than writing one, more large ones are written,
// so that the disk does not wait for us. Else, and if they are small, they wait for
// the sync, which is not held up by them then, and become one block.
type Writer struct {
	log *Log

	mu      sync.Mutex
	change  *sync.Cond
	pending []Batch
	bytes   int
	stopped bool
	stalled bool // see Stall
	// unsynced is how many rounds the syncer has that are not answered yet; syncSince is
	// when it could begin with them.
	unsynced  int
	syncSince time.Time
	// largeWrite is how long it takes to write a large block, a moving average; ahead
	// wakes gather when a sync has lasted as long.
	largeWrite time.Duration
	ahead      *time.Timer
	done       chan struct{}
	// crowded is more than QueueBytes in pending while stalled.
	crowded atomic.Bool

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
	w.ahead = time.AfterFunc(time.Hour, w.wakeGather)
	w.ahead.Stop()
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

// wakeGather has it look again.
func (w *Writer) wakeGather() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.change.Broadcast()
}

func sizeOf(b Batch) int {
	n := recordBytes
	for i := range b.Records {
		n += paddedBytes(0, len(b.Records[i].Data))
	}
	return n
}

// Submit queues a batch. It blocks while too much is waiting to be written, but
// for when the log is stalled.
func (w *Writer) Submit(b Batch) {
	size := sizeOf(b)
	w.mu.Lock()
	for w.bytes > 0 && w.bytes+size > w.log.cfg.QueueBytes && !w.stopped && !w.stalled {
		w.change.Wait()
	}
	if w.stopped {
		w.mu.Unlock()
		b.Done(nil, ErrClosed)
		return
	}
	w.pending = append(w.pending, b)
	w.addLocked(size)
	if ahead := w.log.cfg.AheadBytes; len(w.pending) == 1 || w.unsynced > 0 && w.bytes >= ahead && w.bytes-size < ahead {
		w.change.Broadcast()
	}
	w.mu.Unlock()
}

// addLocked accounts for so many more bytes in pending.
func (w *Writer) addLocked(sizeBytes int) {
	w.bytes = max(0, w.bytes+sizeBytes)
	w.crowded.Store(w.stalled && w.bytes > w.log.cfg.QueueBytes)
}

// Stall says that a flush takes so long that nobody may wait for the next, and
// that it is over. Meanwhile Submit does not block, so that who submits can go on
// with what needs no disk, as handing over to others; in turn he submits nothing
// large while the log is Crowded.
func (w *Writer) Stall(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stalled = on
	w.addLocked(0)
	w.change.Broadcast()
}

// Crowded reports whether the log is stalled and as much waits as may: who has
// more refuses it. It is cheap, and never waits.
func (w *Writer) Crowded() bool { return w.crowded.Load() }

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
	for len(w.pending) == 0 || w.letSyncerPassLocked() {
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
	w.addLocked(-size)
	w.change.Broadcast()
	return true
}

// letSyncerPassLocked reports whether what is pending is better written once the syncer is
// done. If that is so only for some time, gather is woken after it.
func (w *Writer) letSyncerPassLocked() bool {
	switch {
	case w.unsynced == 0 || w.stopped:
		return false
	case w.bytes < w.log.cfg.AheadBytes:
		return true
	}
	left := w.largeWrite - time.Since(w.syncSince)
	if left > 0 {
		w.ahead.Reset(left)
	}
	return left > 0
}

// layOut makes room for the positions of a round's records and returns how many
// records there are, and whether anyone wants a block even if there are none.
func (r *round) layOut() (records int, mark bool) {
	r.sync, r.err = false, nil
	for i := range r.batches {
		b := &r.batches[i]
		records += len(b.Records)
		r.sync = r.sync || b.Sync
		mark = mark || b.Mark
	}
	all := make([]Position, records)
	r.positions = append(r.positions[:0], make([][]Position, len(r.batches))...)
	for i := range r.batches {
		n := len(r.batches[i].Records)
		r.positions[i], all = all[:n:n], all[n:]
	}
	return records, mark
}

// assemble makes a round's block.
func (w *Writer) assemble(r *round) {
	records, mark := r.layOut()
	mark = mark || !w.marked
	if r.write = records > 0 || mark; r.write {
		r.err = w.encode(r)
		w.marked = records == 0
	}
}

// commit writes a round and has it synced and answered, here or by the syncer. It
// has the turn, and gives it back.
func (w *Writer) commit(r *round) {
	defer func() { <-w.turn }()
	var f flush
	if r.err == nil && (r.write || r.sync && w.log.unsynced()) {
		f = w.log.flushBegins(turnFlush, w.log.wrote.File)
	}
	began := time.Now()
	if r.err == nil && r.write {
		r.err = w.log.write(&r.block)
	}
	if w.handOver(r, time.Since(began)) {
		f.passes()
		w.syncs <- r
		return
	}
	if r.err == nil && !r.sync {
		w.log.expose()
	}
	if !r.sync {
		f.ends() // the answers are not the disk's
	}
	answerWritten(r.batches, r.positions, r.err, w.waiting)
	if r.sync {
		w.finish(f, r)
	}
	w.release(r)
}

// handOver reports whether a round that is written is the syncer's from here on: a
// large one, or one that must not overtake those that the syncer has.
func (w *Writer) handOver(r *round, writeTook time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	large := r.sync && r.write && r.block.size >= int64(w.log.cfg.AheadBytes)
	if large && r.err == nil {
		w.largeWrite += (min(writeTook, mostLargeWrite) - w.largeWrite) / 8
	}
	if w.unsynced == 0 && !large {
		return false
	}
	if w.unsynced == 0 {
		w.syncSince = time.Now()
	}
	w.unsynced++
	return true
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
		var f flush
		if slices.ContainsFunc(together, (*round).awaitsSync) && w.log.unsynced() {
			f = w.log.flushBegins(syncerFlush, together[0].block.at.File)
		}
		w.finish(f, together...)
		w.mu.Lock()
		w.unsynced -= len(together)
		w.syncSince = time.Now()
		w.change.Broadcast()
		w.mu.Unlock()
		for _, r := range together {
			w.release(r)
		}
	}
}

// awaitsSync: it is written, and is to be durable before it is answered.
func (r *round) awaitsSync() bool { return r.sync && r.err == nil }

// finish makes rounds durable, if anyone asks for it, ends the flush that this is
// part of, and answers what was not answered yet. Behind a failure nothing is
// answered well, whether it asked for the sync or not: a group's word without
// records may stand on a record before it that is lost.
func (w *Writer) finish(f flush, rs ...*round) {
	err := w.log.failure()
	if err == nil && slices.ContainsFunc(rs, (*round).awaitsSync) {
		err = w.log.sync()
	}
	f.ends()
	w.log.expose()
	for _, r := range rs {
		if r.err == nil {
			r.err = err
		}
		for i, b := range r.batches {
			if b.Done != nil {
				b.Done(r.positions[i], r.err)
			}
		}
	}
}

// release has a round that is answered used again, and has a mark follow once the
// log is quiet.
func (w *Writer) release(r *round) {
	if r.write && r.block.records > 0 {
		w.timer.Reset(markAfter)
	}
	clear(r.batches)
	w.free <- r
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
// probes: everything written before has been answered, and a checkpoint, which can
// make room, needs to know.
func (w *Writer) encode(r *round) error {
	for {
		err := w.log.encode(&r.block, r.batches, r.positions, func(size int64) error {
			w.turn <- struct{}{} // whoever writes now is done then
			defer func() { <-w.turn }()
			w.awaitSyncs()
			defer w.log.flushBegins(turnFlush, w.log.wrote.File).ends()
			return w.log.roll(size)
		})
		if !errors.Is(err, ErrFull) {
			return err
		}
		for i := range r.batches {
			if b := &r.batches[i]; isProbe(b) && b.Done != nil {
				b.Done(nil, nil)
				b.Done = nil
			}
		}
		for _, b := range w.takeProbes() {
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

func isProbe(b *Batch) bool { return b.Probe && len(b.Records) == 0 && !b.Sync }

func (w *Writer) takeProbes() (out []Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = slices.DeleteFunc(w.pending, func(b Batch) bool {
		if !isProbe(&b) {
			return false
		}
		out = append(out, b)
		w.addLocked(-sizeOf(b))
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
	w.ahead.Stop()
	return w.log.close()
}
