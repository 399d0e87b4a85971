package wal

import (
	"fmt"
	"testing"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// BenchmarkWriter has five groups with one entry each under way, on a real disk.
func BenchmarkWriter(b *testing.B) {
	for _, size := range []int{1 << 10, 100 << 10, 1_000_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			log, _, err := Open(Config{FS: vfs.OS{}, Dir: b.TempDir() + "/wal"}, func(Record) error { return nil })
			if err != nil {
				b.Fatal(err)
			}
			w := NewWriter(log)
			defer w.Close()
			const underWay = 5
			answers := make(chan record.Group, underWay)
			submit := func(g record.Group, i record.Index) {
				data := make([]byte, size)
				w.Submit(Batch{Records: []Record{{Kind: KindEntry, Group: g, Index: i, Data: data}}, Sync: true, Done: func(_ []Position, err error) {
					if err != nil {
						b.Error(err)
					}
					answers <- g
				}})
			}
			b.SetBytes(int64(size))
			b.ResetTimer()
			for i := range b.N + min(underWay, b.N) {
				g := record.Group(i)
				if i >= underWay {
					g = <-answers
				}
				if i < b.N {
					submit(g, record.Index(i+1))
				}
			}
			if last := log.Position(); b.N > 100 {
				if err := log.Forget(last); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
