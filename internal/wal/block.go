package wal

import "github.com/tube-mq/tube/internal/vfs"

// encoded is a block in memory: assembled, not written.
//
// Large data is not copied into it. Direct I/O writes whole pages of memory to whole pages
// of a file, so such data is given a gap before it with which it lies in its file as it
// does in memory: then its whole pages are written from where they are, and only what it
// has of the first and the last one is copied, to stand beside what else is there.
type encoded struct {
	buf     []byte // aligned, reused; what is copied
	parts   [][]byte
	at      Position
	length  int   // of header and records
	size    int64 // of all parts
	copied  int   // bytes of buf that the block needs
	records int
	inPlace int // data of so many bytes and more is not copied
}

// layOut finds how large the block of some batches is.
func (e *encoded) layOut(batches []Batch, inPlaceBytes int) {
	e.records, e.inPlace = 0, inPlaceBytes
	off, whole := blockHeaderBytes, 0
	for _, b := range batches {
		for i := range b.Records {
			gap, from, to := e.place(off, b.Records[i].Data)
			whole += to - from
			off += paddedBytes(gap, len(b.Records[i].Data))
		}
		e.records += len(b.Records)
	}
	e.length, e.size = off, roundUp(int64(off))
	e.copied = int(e.size) - whole
}

// place says how the data of a record at an offset of the block is put: behind what gap,
// and which part of it is written from where it lies.
func (e *encoded) place(off int, data []byte) (gapBytes, from, to int) {
	if len(data) < e.inPlace {
		return 0, 0, 0
	}
	if from, to = vfs.WholePages(data); from >= to {
		return 0, 0, 0
	}
	return (vfs.Misalignment(data) - off - recordBytes) & (alignBytes - 1), from, to
}

// keptCopied is up to where the room for what is copied is kept for the next block.
const keptCopied = 32 << 20

// fill assembles the block that was laid out, at the place it was given, and tells where
// its records are.
func (e *encoded) fill(batches []Batch, positions [][]Position) {
	if len(e.buf) < e.copied || len(e.buf) > keptCopied && e.copied < keptCopied {
		e.buf = vfs.AlignedBytes(int(roundUp(max(int64(e.copied), 1<<20))))
	}
	e.parts = e.parts[:0]
	off := blockHeaderBytes // in the block
	n, begun := off, 0      // of buf that is filled; that is in parts
	for bi, b := range batches {
		for i := range b.Records {
			r := &b.Records[i]
			positions[bi][i] = Position{e.at.File, e.at.Offset + int64(off)}
			gap, from, to := e.place(off, r.Data)
			putHeader(e.buf[n:], r, gap, positions[bi][i])
			n += recordBytes + gap
			rest := r.Data
			if from < to {
				n += copy(e.buf[n:], r.Data[:from])
				e.parts = append(e.parts, e.buf[begun:n], r.Data[from:to])
				begun, rest = n, r.Data[to:]
			}
			n += copy(e.buf[n:], rest)
			size := paddedBytes(gap, len(r.Data))
			pad := size - recordBytes - gap - len(r.Data)
			clear(e.buf[n : n+pad])
			n, off = n+pad, off+size
		}
	}
	clear(e.buf[n:e.copied])
	if begun < e.copied {
		e.parts = append(e.parts, e.buf[begun:e.copied])
	}
}

// writeTo writes the block to its place. Nobody needs the records' data afterwards.
func (e *encoded) writeTo(f vfs.File) (err error) {
	if len(e.parts) == 1 {
		_, err = f.WriteAt(e.parts[0], e.at.Offset)
	} else {
		err = f.WriteVec(e.parts, e.at.Offset)
	}
	clear(e.parts)
	return err
}
