package wal

import (
	"path"
	"slices"
	"testing"
	"testing/synctest"
	"time"

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

// Files become larger until they have their size, and the largest spare that a block
// fits into is used, also when it is smaller than a new file would be.
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
	log.spares = nil
	for _, kib := range []int64{32, 96, 64} {
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
	for _, want := range []int64{96 << 10, 64 << 10} {
		if err := log.roll(40 << 10); err != nil {
			t.Fatal(err)
		}
		if log.fileBytes != want {
			t.Errorf("the log goes on in a file of %d bytes, want %d", log.fileBytes, want)
		}
	}
	if err := log.roll(40 << 10); err != nil || log.fileBytes < 128<<10 {
		t.Errorf("a spare that the block does not fit into is used: file of %d bytes (%v)", log.fileBytes, err)
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
