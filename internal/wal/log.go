package wal

import (
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tube-mq/tube/internal/vfs"
)

// Config of a Log. Zero values are replaced by the defaults named here.
type Config struct {
	FS  vfs.FS
	Dir string
	// FileBytes is the size of one file: 128 MiB. A larger block makes a larger file.
	FileBytes int64
	// FirstFileBytes is the size of the file that a start begins with: 16 MiB, so that
	// starting does not wait long for zeroes. The next is twice as large, and so on up to
	// FileBytes, so that each is zeroed before the one before it is full.
	FirstFileBytes int64
	// MaxSpares is how many forgotten files are kept to be used again: 10.
	MaxSpares int
	// QueueBytes is how much may wait for the writer before Submit blocks: 64 MiB.
	QueueBytes int
	// AheadBytes is how much a block must have to be written while others are being
	// synced, if that lasts: 256 KiB.
	AheadBytes int
	// InPlaceBytes is how large a record's data must be to be written from where it lies
	// rather than copied: 32 KiB. It costs up to 4 KiB of the file.
	InPlaceBytes int
	Logger       *slog.Logger
	// OnFail is told once when a write or fsync failed.
	OnFail func(error)
}

func (c *Config) setDefaults() {
	if c.FileBytes == 0 {
		c.FileBytes = 128 << 20
	}
	if c.FirstFileBytes == 0 {
		c.FirstFileBytes = min(16<<20, c.FileBytes)
	}
	if c.MaxSpares == 0 {
		c.MaxSpares = 10
	}
	if c.QueueBytes == 0 {
		c.QueueBytes = 64 << 20
	}
	if c.AheadBytes == 0 {
		c.AheadBytes = 256 << 10
	}
	if c.InPlaceBytes == 0 {
		c.InPlaceBytes = 32 << 10
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.OnFail == nil {
		c.OnFail = func(error) {}
	}
}

var (
	// ErrClosed is the answer after Close.
	ErrClosed = errors.New("wal: closed")
	// ErrFull: the disk has no room for the next file. Nothing was written of
	// what was refused, and it can be tried again; a Writer does so by itself.
	ErrFull = errors.New("wal: no room on disk for the next file")
)

// Log is the node's write-ahead log. append, and what it is made of, is for one
// goroutine at a time (the Writer's), and so is sync, which may go on beside write;
// roll goes beside neither. The other methods may be called from any goroutine.
type Log struct {
	cfg Config

	// The current file and where the next block goes: the writer's own.
	file      vfs.File
	fileBytes int64
	// marks guards synced and wrote: a block may be written while the ones before it
	// are being synced.
	marks sync.Mutex
	// synced: everything before it is durable; wrote: it is written; next: it is
	// assembled. Invariant: synced ≤ wrote ≤ next, but for the step to another file.
	synced, wrote, next Position
	block               encoded // append's
	blocks              int64   // of the current file that are written
	prepared            bool    // a spare was asked for since the file was begun
	unprepared          bool    // no spares are made; see Steps

	mu sync.Mutex
	// files are the live ones by seq, oldest first, the current one included.
	files  []walFile
	spares []spare
	making bool // a spare is being made
	reads  map[uint64]vfs.File
	// position mirrors wrote for others.
	position Position
	closed   bool
	closing  chan struct{} // closed by close

	written atomic.Uint64 // bytes since Open
	syncs   atomic.Uint64

	// See Flushes. flushing, by flusher, and slowest are in nanoseconds, the former
	// since opened and one more, 0 for none; flushFile is a file's seq, which is the
	// same for both, as nobody steps to the next file before the syncer is done.
	opened    time.Time
	flushing  [2]atomic.Int64
	slowest   atomic.Int64
	flushes   atomic.Uint64
	flushFile atomic.Uint64

	failed     atomic.Pointer[error]
	background sync.WaitGroup
}

type walFile struct {
	seq       uint64
	sizeBytes int64
}

type spare struct {
	name      string
	sizeBytes int64
}

func fileName(seq uint64) string { return fmt.Sprintf("%016x.wal", seq) }

// Written is how many bytes were written since Open.
func (l *Log) Written() uint64 { return l.written.Load() }

// Syncs is how many fsyncs were made since Open.
func (l *Log) Syncs() uint64 { return l.syncs.Load() }

// Position is where the next block will begin: everything that was answered is before it.
func (l *Log) Position() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.position
}

// SizeBytes is what the live files take.
func (l *Log) SizeBytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var n int64
	for _, f := range l.files {
		n += f.sizeBytes
	}
	return n
}

// fail poisons the log: a failed write or fsync is never tried again.
func (l *Log) fail(err error) error {
	err = fmt.Errorf("wal: %w", err)
	if l.failed.CompareAndSwap(nil, &err) {
		l.cfg.OnFail(err)
	}
	return *l.failed.Load()
}

func (l *Log) failure() error {
	if p := l.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// append writes one block with the records of all batches; positions are filled
// in. It is not durable before sync.
func (l *Log) append(batches []Batch, positions [][]Position) error {
	if err := l.encode(&l.block, batches, positions, l.roll); err != nil {
		return err
	}
	return l.write(&l.block)
}

// encode assembles the next block. roll is called if it does not fit the file:
// everything assembled before must be written by then.
func (l *Log) encode(e *encoded, batches []Batch, positions [][]Position, roll func(int64) error) error {
	if err := l.failure(); err != nil {
		return err
	}
	e.layOut(batches, l.cfg.InPlaceBytes)
	if l.next.Offset+e.size > l.fileBytes {
		if err := roll(e.size); err != nil {
			return err
		}
	}
	e.at = l.next
	e.fill(batches, positions)
	l.next.Offset += e.size
	return nil
}

// write writes an assembled block. Blocks are written in the order in which
// they were assembled, one at a time: the mark in each says what is durable, so
// that of several that were not, a whole one behind a torn one proves nothing.
func (l *Log) write(e *encoded) error {
	if err := l.failure(); err != nil {
		return err
	}
	l.marks.Lock()
	mark := l.synced
	l.marks.Unlock()
	putBlock(e.buf, block{at: e.at, mark: mark, records: e.records, length: e.length})
	if err := e.writeTo(l.file); err != nil {
		return l.fail(err)
	}
	l.written.Add(uint64(e.size))
	l.blocks++
	if end := e.at.Offset + e.size; !l.prepared && !l.unprepared && end > l.fileBytes/4 && end < l.fileBytes*3/4 && end < l.blocks*largeBlock {
		// The next file will be needed, and there is time to make it without haste; a node
		// that is idle does without.
		l.prepared = true
		l.prepare(l.nextFileBytes(), l.fileBytes-end)
	}
	l.marks.Lock()
	l.wrote = Position{e.at.File, e.at.Offset + e.size}
	l.marks.Unlock()
	return nil
}

// sync makes everything durable that was written before it was called.
func (l *Log) sync() error {
	if err := l.failure(); err != nil {
		return err
	}
	l.marks.Lock()
	synced, to := l.synced, l.wrote
	l.marks.Unlock()
	if synced == to {
		return nil
	}
	if err := l.file.SyncData(); err != nil {
		return l.fail(err)
	}
	l.syncs.Add(1)
	l.marks.Lock()
	l.synced = to // and not what was written meanwhile
	l.marks.Unlock()
	return nil
}

// unsynced reports whether there is something for a sync to do.
func (l *Log) unsynced() bool {
	l.marks.Lock()
	defer l.marks.Unlock()
	return l.synced != l.wrote
}

// expose makes the position known to others.
func (l *Log) expose() {
	l.marks.Lock()
	wrote := l.wrote
	l.marks.Unlock()
	l.mu.Lock()
	l.position = wrote
	l.mu.Unlock()
}

// roll goes on in another file, which has room for size bytes.
func (l *Log) roll(size int64) error {
	if err := l.sync(); err != nil {
		return err
	}
	return l.beginWith(max(l.nextFileBytes(), size), size)
}

// nextFileBytes is the size of the file after the current one, if it has to be made.
func (l *Log) nextFileBytes() int64 {
	return min(l.cfg.FileBytes, max(l.cfg.FirstFileBytes, 2*l.fileBytes))
}

// smallestFile is what the log goes on in at least.
const smallestFile = 64 << 10

// beginWith opens the next file: of the wanted size, or on a full disk of as
// much as there is room for, at least least, so that what makes room, and small
// things like commits, go on.
func (l *Log) beginWith(wanted, least int64) error {
	least = min(wanted, max(least, smallestFile))
	err := l.begin(wanted, least)
	for size := wanted; errors.Is(err, ErrFull) && size > least; {
		size = max(roundUp(size/8), least)
		err = l.begin(size, least)
	}
	return err
}

// begin opens the next file: the smallest spare of at least that size, else the largest
// that is no smaller than the file before, else a new one.
func (l *Log) begin(sizeBytes, least int64) error {
	l.mu.Lock()
	seq := uint64(1)
	if n := len(l.files); n > 0 {
		seq = l.files[n-1].seq + 1
	}
	seq = max(seq, l.next.File+1)
	use := l.takeSpareLocked(sizeBytes, max(least, l.fileBytes))
	l.mu.Unlock()
	name := path.Join(l.cfg.Dir, fileName(seq))
	if use != nil {
		sizeBytes = use.sizeBytes
		if err := l.cfg.FS.Rename(path.Join(l.cfg.Dir, use.name), name); err != nil {
			return l.fail(err)
		}
	}
	f, err := l.openNext(name, use == nil, sizeBytes)
	if err != nil {
		return err
	}
	if err := l.cfg.FS.SyncDir(l.cfg.Dir); err != nil {
		return l.fail(err)
	}
	if l.file != nil {
		if err := l.file.Close(); err != nil {
			return l.fail(err)
		}
	}
	l.file, l.fileBytes = f, sizeBytes
	l.next = Position{seq, 0}
	l.marks.Lock()
	if l.wrote.IsZero() {
		l.wrote, l.synced = l.next, l.next
	}
	l.marks.Unlock()
	l.mu.Lock()
	l.files = append(l.files, walFile{seq, sizeBytes})
	l.position = l.next
	l.mu.Unlock()
	l.blocks, l.prepared = 0, false
	return nil
}

// takeSpareLocked takes the smallest spare that has wanted bytes, else the largest if it
// has least; nil if none has.
func (l *Log) takeSpareLocked(wanted, least int64) *spare {
	best := -1
	for i, s := range l.spares {
		switch {
		case s.sizeBytes < least && s.sizeBytes < wanted:
		case best < 0, s.sizeBytes >= wanted && l.spares[best].sizeBytes > s.sizeBytes, l.spares[best].sizeBytes < min(wanted, s.sizeBytes):
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	s := l.spares[best]
	l.spares = slices.Delete(l.spares, best, best+1)
	return &s
}

// openNext opens a file for writing and, if it is new, takes its room. A start's first
// one is zeroed too.
func (l *Log) openNext(name string, fresh bool, sizeBytes int64) (vfs.File, error) {
	f, err := l.cfg.FS.Open(name, vfs.Mode{Create: true, Direct: true})
	if err == nil && fresh {
		if err = f.Allocate(sizeBytes); err == nil && l.file == nil {
			err = zeroAtOnce(f, sizeBytes)
		}
		if err != nil {
			err = errors.Join(err, f.Close(), l.cfg.FS.Remove(name))
		}
	}
	switch {
	case err == nil:
		return f, nil
	case fresh && vfs.IsFull(err):
		return nil, fmt.Errorf("%w (%d bytes): %w", ErrFull, sizeBytes, err)
	}
	return nil, l.fail(err)
}

// firstZeroes is how long a start may wait for its first file to be zeroed; a slow
// disk's is in part.
const firstZeroes = 100 * time.Millisecond

func zeroAtOnce(f vfs.File, sizeBytes int64) error {
	zeroes := vfs.AlignedBytes(int(min(sizeBytes, 1<<20)))
	for at, began := int64(0), time.Now(); at < sizeBytes; at += int64(len(zeroes)) {
		if _, err := f.WriteAt(zeroes[:min(int64(len(zeroes)), sizeBytes-at)], at); err != nil {
			return err
		}
		if time.Since(began) > firstZeroes {
			break
		}
	}
	return nil
}

// largeBlock is the size of blocks in bytes, on average, from which on the log goes without
// zeroed files until there are used ones: zeroes take longer to be written than the metadata
// that they save. Measured for a block of 1.5 MiB: 0.7 ms for its zeroes, which save 0.3 ms;
// for one of 4 KiB 0.002 ms, which save 0.2 ms.
const largeBlock = 512 << 10

// prepare makes a zeroed spare in the background if there is none that will be used: a block
// written over zeroes needs no metadata to be written with it. It will be needed when
// the log has grown by so many bytes.
func (l *Log) prepare(sizeBytes, within int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.making || slices.ContainsFunc(l.spares, func(s spare) bool { return s.sizeBytes >= min(sizeBytes, l.fileBytes) }) {
		return
	}
	l.making = true
	l.background.Go(func() {
		s, err := l.makeSpare(sizeBytes, within)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.making = false
		if errors.Is(err, ErrClosed) {
			return
		}
		if err != nil {
			l.cfg.Logger.Warn("no write-ahead log file could be prepared; one will be made when it is needed", "err", err)
			return
		}
		l.spares = append(l.spares, s)
	})
}

func (l *Log) makeSpare(sizeBytes, within int64) (s spare, err error) {
	name := path.Join(l.cfg.Dir, preparingName)
	defer func() {
		if err != nil { // a part of it would hold room that others may need
			_ = l.cfg.FS.Remove(name)
		}
	}()
	f, err := l.cfg.FS.Open(name, vfs.Mode{Create: true, Direct: true})
	if err != nil {
		return spare{}, err
	}
	defer f.Close()
	if err := f.Allocate(sizeBytes); err != nil {
		return spare{}, err
	}
	if err := l.zero(f, sizeBytes, within); err != nil {
		return spare{}, err
	}
	if err := f.Sync(); err != nil {
		return spare{}, err
	}
	s = spare{spareName(0), sizeBytes}
	return s, l.cfg.FS.Rename(name, path.Join(l.cfg.Dir, s.name))
}

const (
	// zeroPiece is written at a time, so that the log's own writes do not wait
	// long behind one.
	zeroPiece = 256 << 10
	// zeroRate is how fast a spare is zeroed, in bytes a second, if the log does not need
	// it sooner. At the disk's full speed it took produce-to-consume latency from 3 to
	// 71 ms at p99.
	zeroRate = 64 << 20
	// zeroShare is what part of the disk's time that may take: after each piece there is
	// a pause of zeroShare-1 times as long. A slow disk, or one that others write to as
	// well, took seconds for a flush without it.
	zeroShare = 8
)

// zero fills a file so fast that it is ready when the log has grown by two thirds of
// within, and disturbs little if the log is slow.
func (l *Log) zero(f vfs.File, sizeBytes, within int64) error {
	pace := 1.5 * float64(sizeBytes) / float64(max(within, sizeBytes/8)) // for each byte of the log
	zeroes := vfs.AlignedBytes(zeroPiece)
	began, written := time.Now(), l.Written()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for at := int64(0); at < sizeBytes; at += zeroPiece {
		n := min(zeroPiece, sizeBytes-at)
		begin := time.Now()
		if _, err := f.WriteAt(zeroes[:n], at); err != nil {
			return err
		}
		passed, took := time.Since(began), time.Since(begin)
		need := pace * float64(l.Written()-written) / max(passed.Seconds(), 0.001)
		wait := func(rate float64) time.Duration {
			return time.Duration(float64(at+n)/rate*float64(time.Second)) - passed
		}
		pause.Reset(min(max(wait(zeroRate), (zeroShare-1)*took), wait(max(need, 1))))
		select {
		case <-pause.C:
		case <-l.closing:
			return ErrClosed
		}
	}
	return nil
}

const preparingName = "preparing.tmp"

func spareName(seq uint64) string { return fmt.Sprintf("%016x.spare", seq) }

// Forget gives up files that lie wholly before a position; they are kept as
// spares or removed. One call at a time.
func (l *Log) Forget(before Position) error {
	for {
		if err := l.failure(); err != nil {
			return err
		}
		gone, recycle := l.takeOldest(before)
		if gone.seq == 0 {
			return nil
		}
		if err := l.forget(gone, recycle); err != nil {
			return err
		}
	}
}

// takeOldest takes the oldest file off the live ones if it lies before a
// position; seq 0: it does not.
func (l *Log) takeOldest(before Position) (gone walFile, recycle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.files) < 2 || l.files[0].seq >= before.File {
		return walFile{}, false
	}
	gone = l.files[0]
	l.files = l.files[1:]
	if f := l.reads[gone.seq]; f != nil {
		f.Close()
		delete(l.reads, gone.seq)
	}
	return gone, len(l.spares) < l.cfg.MaxSpares && gone.sizeBytes == l.cfg.FileBytes
}

// forget makes a file a spare or removes it. The folder is synced before the
// next may go: else a power cut could keep the later change and lose the earlier
// one, and what is left would look like a log with a file missing.
func (l *Log) forget(gone walFile, recycle bool) error {
	name := path.Join(l.cfg.Dir, fileName(gone.seq))
	s := spare{spareName(gone.seq), gone.sizeBytes}
	var err error
	if recycle {
		err = l.cfg.FS.Rename(name, path.Join(l.cfg.Dir, s.name))
	} else {
		err = l.cfg.FS.Remove(name)
	}
	if err != nil {
		l.mu.Lock()
		l.files = slices.Insert(l.files, 0, gone)
		l.mu.Unlock()
		return fmt.Errorf("wal: forget: %w", err)
	}
	if err := l.cfg.FS.SyncDir(l.cfg.Dir); err != nil {
		return l.fail(err)
	}
	if recycle {
		l.mu.Lock()
		l.spares = append(l.spares, s)
		l.mu.Unlock()
	}
	return nil
}

// ReadEntry reads an entry's data back.
func (l *Log) ReadEntry(at Position) ([]byte, error) {
	f, err := l.reader(at.File)
	if err != nil {
		return nil, err
	}
	var head [recordBytes]byte
	if _, err := f.ReadAt(head[:], at.Offset); err != nil {
		return nil, fmt.Errorf("wal: read %v: %w", at, err)
	}
	gap, n, err := extent(head[:])
	if err != nil {
		return nil, &CorruptionError{File: fileName(at.File), Offset: at.Offset, Cause: err}
	}
	b := make([]byte, recordBytes+gap+n)
	copy(b, head[:])
	if _, err := f.ReadAt(b[recordBytes:], at.Offset+recordBytes); err != nil && gap+n > 0 {
		return nil, fmt.Errorf("wal: read %v: %w", at, err)
	}
	r, _, err := parseRecord(b, at)
	if err != nil {
		return nil, &CorruptionError{File: fileName(at.File), Offset: at.Offset, Group: r.Group, Cause: err}
	}
	return r.Data, nil
}

func (l *Log) reader(seq uint64) (vfs.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.reads[seq]; f != nil {
		return f, nil
	}
	f, err := l.cfg.FS.Open(path.Join(l.cfg.Dir, fileName(seq)), vfs.Mode{})
	if err != nil {
		return nil, fmt.Errorf("wal: %w", err)
	}
	l.reads[seq] = f
	return f, nil
}

// close writes a last mark, so that everything before it is known to have been
// durable, and closes the files.
func (l *Log) close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	close(l.closing)
	l.mu.Unlock()
	f := l.flushBegins(turnFlush, l.next.File)
	err := l.sync()
	if err == nil {
		if err = l.append(nil, nil); err == nil {
			err = l.sync()
		}
	}
	f.ends()
	l.background.Wait()
	for _, f := range l.reads {
		f.Close()
	}
	return errors.Join(err, l.file.Close())
}
