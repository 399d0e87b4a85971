package record

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

func TestCombineCRC(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 70_000)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	for range 500 {
		end := rng.IntN(len(b) + 1)
		cut := rng.IntN(end + 1)
		got := CombineCRC(crc32.Checksum(b[:cut], Castagnoli), crc32.Checksum(b[cut:end], Castagnoli), end-cut)
		if want := crc32.Checksum(b[:end], Castagnoli); got != want {
			t.Fatalf("%d bytes and %d: %08x, want %08x", cut, end-cut, got, want)
		}
	}
}

func BenchmarkCombineCRC(b *testing.B) {
	for range b.N {
		CombineCRC(0x12345678, 0x9abcdef0, 1<<20-7)
	}
}
