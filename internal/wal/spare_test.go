package wal

import (
	"path"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// A spare is zeroed in an eighth of a slow disk's time, so that flushes do not wait
// behind it, but in time for a log that is written quickly.
func TestASpareLeavesTheDiskToOthers(t *testing.T) {
	const pieces, piece = 16, 10 * time.Millisecond
	zeroing := func(t *testing.T, busy bool) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			f := vfs.NewFaulty(newMem(t))
			cfg := testConfig(f)
			cfg.FileBytes = pieces * zeroPiece
			log, w := openTest(t, cfg)
			defer w.Close()
			f.Inject(vfs.Fault{Ops: vfs.OpWrite, Path: preparingName, Delay: piece})
			begin := time.Now()
			log.prepare(cfg.FileBytes, cfg.FileBytes*3/4)
			for ready := false; !ready; {
				if busy {
					log.written.Add(zeroPiece) // as the writer counts
				}
				time.Sleep(time.Millisecond)
				log.mu.Lock()
				ready = len(log.spares) > 0
				log.mu.Unlock()
			}
			took = time.Since(begin)
		})
		return took
	}
	if took := zeroing(t, false); took < (pieces-1)*zeroShare*piece {
		t.Errorf("a spare took %v of a disk that takes %v a piece: too much of it", took, piece)
	}
	if took := zeroing(t, true); took > 2*pieces*piece {
		t.Errorf("the log is written quickly, and a spare took %v", took)
	}
}

// A young log's next file is twice as large as the one that it is written to, and is
// zeroed before that one is full, however quickly the log grows.
func TestASpareIsThereWhenItIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(newMem(t))
		cfg.FirstFileBytes, cfg.FileBytes = 16*zeroPiece, 128*zeroPiece
		log, w := openTest(t, cfg)
		defer w.Close()
		const quarter = 4 * zeroPiece
		log.prepare(log.nextFileBytes(), cfg.FirstFileBytes-quarter)
		for grown := int64(0); ; grown += zeroPiece / 4 {
			log.mu.Lock()
			spares := log.spares
			log.mu.Unlock()
			if len(spares) > 0 {
				if spares[0].sizeBytes != 2*cfg.FirstFileBytes {
					t.Errorf("the spare has %d bytes, want %d", spares[0].sizeBytes, 2*cfg.FirstFileBytes)
				}
				return
			}
			if grown > cfg.FirstFileBytes-quarter {
				t.Fatal("the file is full, and the next is not zeroed yet")
			}
			log.written.Add(zeroPiece / 4) // as the writer counts
			time.Sleep(time.Millisecond)   // 64 MiB/s
		}
	})
}

// Files become larger until they have their size; which spare is used, if any, does not make
// them smaller again.
func TestFilesGrowToTheirSize(t *testing.T) {
	cfg := testConfig(newMem(t))
	cfg.FirstFileBytes, cfg.FileBytes = 16<<10, 128<<10
	log, w := openTest(t, cfg)
	defer w.Close()
	log.unprepared = true
	want := []int64{16 << 10, 32 << 10, 64 << 10, 128 << 10, 128 << 10}
	for range len(want) - 1 {
		if err := log.roll(0); err != nil {
			t.Fatal(err)
		}
	}
	var sizes []int64
	for _, f := range log.files {
		sizes = append(sizes, f.sizeBytes)
	}
	if !slices.Equal(sizes, want) {
		t.Errorf("files of %v bytes, want %v", sizes, want)
	}
	for _, pick := range []struct {
		name          string
		current, want int64   // KiB
		spares        []int64 // KiB
	}{
		{"the smallest that is large enough", 48, 96, []int64{128, 32, 96, 64}},
		{"none is: the largest, as it is no smaller than the file before", 60, 72, []int64{32, 72, 64}},
		{"none that is smaller than the file before", 96, 128, []int64{32, 64}},
		{"none that the block does not fit into", 24, 48, []int64{32, 36}},
	} {
		log.fileBytes, log.spares = pick.current<<10, nil
		for _, kib := range pick.spares {
			s, err := log.makeSpare(kib<<10, 1)
			if err != nil {
				t.Fatal(err)
			}
			named := spare{spareName(uint64(kib)), s.sizeBytes}
			if err := cfg.FS.Rename(path.Join(cfg.Dir, s.name), path.Join(cfg.Dir, named.name)); err != nil {
				t.Fatal(err)
			}
			log.spares = append(log.spares, named)
		}
		if err := log.roll(40 << 10); err != nil {
			t.Fatal(err)
		}
		if log.fileBytes != pick.want<<10 {
			t.Errorf("%s: the log goes on in a file of %d bytes, want %d", pick.name, log.fileBytes, pick.want<<10)
		}
	}
}

// A new log's first file is zeroed before anything is written to it, but a start does
// not wait for a slow disk.
func TestTheFirstFileIsZeroed(t *testing.T) {
	for _, disk := range []struct {
		name   string
		piece  time.Duration
		writes int
	}{{"quick", 0, 8}, {"slow", 60 * time.Millisecond, 2}} {
		t.Run(disk.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := vfs.NewFaulty(newMem(t))
				_, hits := f.Inject(vfs.Fault{Ops: vfs.OpWrite, Path: ".wal", Delay: disk.piece})
				cfg := testConfig(f)
				cfg.FirstFileBytes, cfg.FileBytes = 8<<20, 8<<20
				_, w := openTest(t, cfg)
				defer w.Close()
				if hits() != disk.writes {
					t.Errorf("%d MiB of 8 were zeroed, want %d", hits(), disk.writes)
				}
			})
		})
	}
}

// A log of large blocks goes without zeroed files, as the zeroes would take longer than what
// they save; once its blocks are small, it has the next one zeroed.
func TestALogOfLargeBlocksHasNoFilesZeroed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMem(t)
		cfg := testConfig(mem)
		cfg.FileBytes, cfg.FirstFileBytes = 8<<20, 8<<20
		log, w := openTest(t, cfg)
		defer w.Close()
		index := record.Index(0)
		write := func(sizeBytes, blocks int) (spares int) {
			for range blocks {
				index++
				done := make(chan error, 1)
				w.Submit(Batch{Records: entry(1, index, sizeBytes), Sync: true, Done: func(_ []Position, err error) { done <- err }})
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
			log.mu.Lock()
			defer log.mu.Unlock()
			return len(log.spares)
		}
		if n := write(2*largeBlock, 40); n != 0 {
			t.Errorf("%d files were zeroed for large blocks", n)
		}
		if n := write(100, 600); n != 1 {
			t.Errorf("%d files were zeroed for small blocks", n)
		}
	})
}
