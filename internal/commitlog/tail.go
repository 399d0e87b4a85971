package commitlog

import (
	"encoding/binary"
	"sort"

	"github.com/tube-mq/tube/internal/record"
)

const (
	// copyBytes: up to this size a batch is copied rather than held: small
	// batches then lie side by side, which makes one part of many for readers
	// and for the write, and do not keep a whole request in memory.
	copyBytes = 16 << 10
	// holdShare: a larger batch is held where it lies only if it is at least
	// this share of its buffer, so memory held is at most as many times the tail.
	holdShare = 8
)

// piece is a run of whole batches in memory: several small ones side by side, or one in
// two parts. Then bytes has its header at least, with offset and epoch set, and body the
// rest: in the next slab, or in the request's buffer.
type piece struct {
	first   record.Offset
	seg     *segment // where it will be written; nil in a Memory log
	bytes   []byte
	body    []byte
	buf     *record.Buffer // holds bytes
	bodyBuf *record.Buffer // holds body; may be nil
	maxTime int64
}

func (p *piece) sizeBytes() int { return len(p.bytes) + len(p.body) }

func (p *piece) release() {
	p.buf.Release()
	p.bodyBuf.Release()
}

// tail is the newest batches, oldest piece first. Guarded by its log's mutex.
type tail struct {
	pieces    []piece
	sizeBytes int64
	slab      slab // where batches are copied to
	// open: the last piece may grow.
	open bool
	// hold lets large batches stay in the caller's buffer.
	hold bool
}

// append adds a batch that h has given its offset and epoch, and which will be at pos
// in the segment.
func (t *tail) append(seg *segment, pos int64, batch []byte, h record.Header, buf *record.Buffer) {
	t.sizeBytes += int64(len(batch))
	if t.hold && len(batch) > copyBytes && (buf == nil || len(batch)*holdShare >= cap(buf.B)) {
		t.holdBatch(seg, batch, h, buf)
		return
	}
	if seg != nil {
		t.slab.align(pos)
	}
	if left := t.slab.left(); left < len(batch) && left >= record.HeaderBytes {
		t.split(seg, batch, h, left)
		return
	}
	if t.slab.left() < len(batch) {
		t.open = false
		t.slab.renew(min(len(batch), maxSlabBytes-pageBytes), pos)
		if left := t.slab.left(); left < len(batch) {
			t.split(seg, batch, h, left)
			return
		}
	}
	b := t.slab.take(len(batch))
	copy(b, batch)
	stamp(b, h)
	if t.open {
		if p := &t.pieces[len(t.pieces)-1]; p.seg == seg && len(p.bytes) < maxSlabBytes {
			// b lies right behind the piece's bytes in the slab.
			p.bytes = p.bytes[:len(p.bytes)+len(b)]
			p.maxTime = max(p.maxTime, h.MaxTimestamp)
			return
		}
	}
	t.pieces = append(t.pieces, piece{first: h.BaseOffset, seg: seg, bytes: b, buf: t.slab.buf.Retain(), maxTime: h.MaxTimestamp})
	t.open = true
}

// holdBatch adds a batch without copying it.
func (t *tail) holdBatch(seg *segment, batch []byte, h record.Header, buf *record.Buffer) {
	if t.slab.left() < record.HeaderBytes {
		t.slab.renew(record.HeaderBytes, 0)
	}
	head := t.slab.take(record.HeaderBytes)
	copy(head, batch)
	stamp(head, h)
	p := piece{first: h.BaseOffset, seg: seg, bytes: head, body: batch[record.HeaderBytes:], buf: t.slab.buf.Retain(), maxTime: h.MaxTimestamp}
	if buf != nil {
		p.bodyBuf = buf.Retain()
	}
	t.pieces = append(t.pieces, p)
	t.open = false
}

// split adds a batch of which the first bytes fill the slab and the rest begins the next one.
func (t *tail) split(seg *segment, batch []byte, h record.Header, first int) {
	p := piece{first: h.BaseOffset, seg: seg, bytes: t.slab.take(first), buf: t.slab.buf.Retain(), maxTime: h.MaxTimestamp}
	copy(p.bytes, batch)
	stamp(p.bytes, h)
	t.slab.renew(len(batch)-first, 0)
	p.body, p.bodyBuf = t.slab.take(len(batch)-first), t.slab.buf.Retain()
	copy(p.body, batch[first:])
	t.pieces = append(t.pieces, p)
	t.open = false
}

func stamp(b []byte, h record.Header) {
	record.PutBaseOffset(b, h.BaseOffset)
	record.PutLeaderEpoch(b, h.LeaderEpoch)
}

// front returns up to maxPieces pieces that belong to one segment, to be
// written. They stay until drop, and do not grow any more.
func (t *tail) front(maxPieces int) []piece {
	n := 0
	for n < len(t.pieces) && n < maxPieces && t.pieces[n].seg == t.pieces[0].seg {
		n++
	}
	if n == len(t.pieces) {
		t.open = false
	}
	return t.pieces[:n:n]
}

// drop takes n pieces off the front; the caller releases them.
func (t *tail) drop(n int) []piece {
	out := t.pieces[:n:n]
	for i := range out {
		t.sizeBytes -= int64(out[i].sizeBytes())
	}
	if t.pieces = t.pieces[n:]; len(t.pieces) == 0 {
		t.clear()
	}
	return out
}

func (t *tail) clear() {
	t.slab.release()
	t.pieces, t.open, t.sizeBytes = nil, false, 0
}

func (t *tail) releaseAll() {
	for i := range t.pieces {
		t.pieces[i].release()
	}
	t.clear()
}

// peek reads what a header says of a batch's extent.
func peek(b []byte) (sizeBytes int, next record.Offset) {
	be := binary.BigEndian
	return int(be.Uint32(b[8:])) + 12, record.Offset(be.Uint64(b)) + record.Offset(int32(be.Uint32(b[23:]))) + 1
}

// find returns the piece and the position in it of the batch that holds offset,
// which must be in the tail.
func (t *tail) find(offset record.Offset) (i, at int) {
	i = sort.Search(len(t.pieces), func(i int) bool { return t.pieces[i].first > offset }) - 1
	p := &t.pieces[i]
	if p.body != nil {
		return i, 0
	}
	for {
		n, next := peek(p.bytes[at:])
		if next > offset {
			return i, at
		}
		at += n
	}
}

// read takes batches without copying them; end is the log's end.
func (t *tail) read(offset record.Offset, maxBytes int, minOne bool, limit, end record.Offset) Chunk {
	i, at := t.find(offset)
	var c Chunk
	var held []*record.Buffer
	for ; i < len(t.pieces); i, at = i+1, 0 {
		p := &t.pieces[i]
		next := end
		if i+1 < len(t.pieces) {
			next = t.pieces[i+1].first
		}
		n := p.sizeBytes() - at
		if next > limit || c.SizeBytes+n > maxBytes {
			n = p.fitting(at, maxBytes-c.SizeBytes, minOne && c.SizeBytes == 0, limit)
		}
		if n == 0 {
			break
		}
		c.SizeBytes += n
		held = append(held, p.buf.Retain())
		if p.body == nil {
			c.Parts = append(c.Parts, p.bytes[at:at+n:at+n])
			if at+n < len(p.bytes) {
				break
			}
			continue
		}
		c.Parts = append(c.Parts, p.bytes, p.body)
		if p.bodyBuf != nil {
			held = append(held, p.bodyBuf.Retain())
		}
	}
	if c.SizeBytes > 0 {
		c.Release = func() {
			for _, b := range held {
				b.Release()
			}
		}
	}
	return c
}

// fitting is how many bytes of whole batches from at on fit.
func (p *piece) fitting(at, maxBytes int, minOne bool, limit record.Offset) int {
	n := 0
	for at+n < len(p.bytes) {
		size, next := peek(p.bytes[at+n:])
		if next > limit || n+size > maxBytes && !(minOne && n == 0) {
			break
		}
		n += size
	}
	return n
}
