package wal

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/tube-mq/tube/internal/vfs"
)

// badSector is a file of which one page cannot be read.
type badSector struct {
	vfs.File
	at int64
}

func (f *badSector) ReadAt(b []byte, off int64) (int, error) {
	if off < f.at+alignBytes && off+int64(len(b)) > f.at {
		return 0, syscall.EIO
	}
	return f.File.ReadAt(b, off)
}

type badSectorFS struct {
	vfs.FS
	at int64
}

func (f *badSectorFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	file, err := f.FS.Open(name, mode)
	if err != nil || !mode.Direct {
		return file, err
	}
	return &badSector{file, f.at}, nil
}

// Whatever is asked for, in whatever order, is what the file holds there; only what lies
// on a page that cannot be read is an error.
func TestTheReaderGivesWhatTheFileHolds(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 1))
		mem := vfs.NewMem()
		content := make([]byte, 3*windowBytes+rng.IntN(3*alignBytes))
		for i := range content {
			content[i] = byte(rng.Uint32())
		}
		f, err := mem.Open(fileName(1), vfs.Mode{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(content, 0); err != nil {
			t.Fatal(err)
		}
		bad := int64(rng.IntN(len(content))) &^ (alignBytes - 1)
		if seed%2 == 0 {
			bad = 1 << 40
		}
		r, err := openReader(&badSectorFS{mem, bad}, "", 1)
		if err != nil {
			t.Fatal(err)
		}
		at := int64(0)
		for range 3000 {
			n := 1 + rng.IntN(1<<(3+rng.IntN(19)))
			end := min(at+int64(n), r.size)
			b, err := r.at(at, n)
			from, to := at&^(alignBytes-1), roundUp(at+int64(n))
			switch {
			case bad < to && bad+alignBytes > from:
				// May be read if it was in memory; it cannot have been.
				if !errors.Is(err, syscall.EIO) {
					t.Fatalf("seed %d: %d bytes at %d, over the bad page at %d: %v", seed, n, at, bad, err)
				}
			case (err == nil) != (end-at == int64(n)) || !bytes.Equal(b, content[at:end]):
				t.Fatalf("seed %d: %d bytes at %d of %d: got %d, %v", seed, n, at, r.size, len(b), err)
			}
			switch at = end; {
			case at == r.size:
				at = 0
			case rng.IntN(10) == 0:
				at = int64(rng.IntN(len(content)))
			}
		}
		r.close()
	}
}
