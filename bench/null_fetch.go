package bench

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"time"
)

// nullFetchVersion is the highest Fetch that the null broker takes: the last one
// before flexible encoding.
const nullFetchVersion = 11

// nullBatch is one record batch that is served at any offset: only its base
// offset, outside the CRC, is rewritten.
type nullBatch struct {
	bytes []byte
	count int64
}

const batchHeaderBytes = 61

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// makeNullBatch builds a batch of records of valueBytes each that stays within
// limitBytes where one record does. Its records have no key and no headers.
func makeNullBatch(valueBytes, limitBytes int) nullBatch {
	valueBytes, limitBytes = max(valueBytes, 1), max(limitBytes, 1<<10)
	value := make([]byte, valueBytes)
	fill(value, 1)
	out := make([]byte, batchHeaderBytes, limitBytes+valueBytes+64)
	count := 0
	var one []byte
	for {
		one = appendRecord(one[:0], count, value)
		if count > 0 && len(out)+len(one) > limitBytes {
			break
		}
		out = append(out, one...)
		count++
	}
	now := uint64(time.Now().UnixMilli())
	be := binary.BigEndian
	be.PutUint32(out[8:], uint32(len(out)-12))
	out[16] = 2 // magic
	be.PutUint32(out[23:], uint32(count-1))
	be.PutUint64(out[27:], now)
	be.PutUint64(out[35:], now)
	be.PutUint64(out[43:], math.MaxUint64) // no producer
	be.PutUint16(out[51:], math.MaxUint16)
	be.PutUint32(out[53:], math.MaxUint32)
	be.PutUint32(out[57:], uint32(count))
	be.PutUint32(out[17:], crc32.Checksum(out[21:], castagnoli))
	return nullBatch{bytes: out, count: int64(count)}
}

func appendRecord(dst []byte, delta int, value []byte) []byte {
	body := []byte{0, 0} // attributes, timestamp delta
	body = binary.AppendVarint(body, int64(delta))
	body = binary.AppendVarint(body, -1) // no key
	body = binary.AppendVarint(body, int64(len(value)))
	body = append(body, value...)
	body = append(body, 0) // no headers
	return append(binary.AppendVarint(dst, int64(len(body))), body...)
}

// nullAsked is one partition of a fetch request.
type nullAsked struct {
	topic     int // index of the topic in the request
	partition int32
	offset    int64
	maxBytes  int32
}

// fetch answers with batches until the request's limits. It waits only when
// nothing at all is left, so that a client at the end does not spin.
//
//	client id: string; replica, max wait, min bytes, max bytes: int32; isolation: int8
//	session id, session epoch: int32
//	[topic: string, [partition, leader epoch: int32; offset, log start: int64; max bytes: int32]]
//	[forgotten: string, [int32]]; rack: string
func (n *nullConn) fetch(restBytes int64) error {
	body, err := n.readSmall(restBytes)
	if err != nil {
		return err
	}
	p := parser{b: body}
	p.string()
	p.int32()
	wait := time.Duration(p.int32()) * time.Millisecond
	p.int32()
	maxBytes := int64(p.int32())
	p.skip(1 + 4 + 4)

	topics := p.count(4)
	n.asked = n.asked[:0]
	names := make([]string, 0, 8)
	for t := range topics {
		names = append(names, p.string())
		for range p.count(28) {
			a := nullAsked{topic: t, partition: p.int32()}
			p.int32()
			a.offset = p.int64()
			p.int64()
			a.maxBytes = p.int32()
			n.asked = append(n.asked, a)
		}
	}
	if p.bad {
		return errNullFrame
	}
	if n.atEnd() {
		time.Sleep(min(max(wait, 0), time.Second))
	}
	return n.sendFetch(names, maxBytes)
}

func (n *nullConn) atEnd() bool {
	for _, a := range n.asked {
		if a.offset < n.broker.config.EndOffset {
			return false
		}
	}
	return true
}

// sendFetch writes the response as pieces: n.reply holds all that is not a batch,
// n.heads the batches' rewritten first eight bytes, and what follows them is
// shared by all.
func (n *nullConn) sendFetch(names []string, left int64) error {
	batch, end := n.broker.batch, n.broker.config.EndOffset
	type piece struct{ from, to, batches int } // of n.reply, then so many batches
	pieces := make([]piece, 0, len(n.asked))
	n.heads = n.heads[:0]
	be := binary.BigEndian
	n.reply = append(n.reply, 0, 0, 0, 0 /* throttle */, 0, 0 /* error */, 0, 0, 0, 0 /* no session */)
	n.reply = be.AppendUint32(n.reply, uint32(len(names)))
	from, total, next := 0, 0, 0
	for t, name := range names {
		n.reply = be.AppendUint16(n.reply, uint16(len(name)))
		n.reply = append(n.reply, name...)
		first := next
		for next < len(n.asked) && n.asked[next].topic == t {
			next++
		}
		n.reply = be.AppendUint32(n.reply, uint32(next-first))
		for _, a := range n.asked[first:next] {
			room := min(int64(a.maxBytes), left)
			batches := 0
			for at := a.offset; at < end && (total == 0 && batches == 0 || int64((batches+1)*len(batch.bytes)) <= room); at += batch.count {
				n.heads = be.AppendUint64(n.heads, uint64(at))
				batches++
			}
			size := batches * len(batch.bytes)
			left, total = left-int64(size), total+size
			n.reply = be.AppendUint32(n.reply, uint32(a.partition))
			n.reply = append(n.reply, 0, 0)                    // error
			n.reply = be.AppendUint64(n.reply, uint64(end))    // high watermark
			n.reply = be.AppendUint64(n.reply, uint64(end))    // last stable offset
			n.reply = be.AppendUint64(n.reply, 0)              // log start
			n.reply = be.AppendUint32(n.reply, math.MaxUint32) // no aborted transactions
			n.reply = be.AppendUint32(n.reply, math.MaxUint32) // no preferred replica
			n.reply = be.AppendUint32(n.reply, uint32(size))
			pieces = append(pieces, piece{from, len(n.reply), batches})
			from = len(n.reply)
		}
	}
	be.PutUint32(n.reply, uint32(len(n.reply)-4+total))
	n.parts = n.parts[:0]
	heads := n.heads
	for _, p := range pieces {
		n.parts = append(n.parts, n.reply[p.from:p.to])
		for range p.batches {
			n.parts = append(n.parts, heads[:8], batch.bytes[8:])
			heads = heads[8:]
		}
	}
	if from < len(n.reply) {
		n.parts = append(n.parts, n.reply[from:])
	}
	parts := n.parts // WriteTo consumes the slice it is called on
	_, err := parts.WriteTo(n.out)
	return err
}

// parser reads a request that is in memory; past the end it reads zeros and turns bad.
type parser struct {
	b   []byte
	bad bool
}

func (p *parser) take(size int) []byte {
	if size < 0 || size > len(p.b) {
		p.bad, p.b = true, nil
		return nil
	}
	b := p.b[:size]
	p.b = p.b[size:]
	return b
}

func (p *parser) skip(size int) { p.take(size) }

func (p *parser) int32() int32 {
	if b := p.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (p *parser) int64() int64 {
	if b := p.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// count reads an array's length, whose elements have at least elementBytes each.
func (p *parser) count(elementBytes int) int {
	c := int(p.int32())
	if c < 0 || c*elementBytes > len(p.b) {
		p.bad = p.bad || c != -1
		return 0
	}
	return c
}

// string reads a nullable string; null is empty.
func (p *parser) string() string {
	b := p.take(2)
	if b == nil {
		return ""
	}
	if size := int16(binary.BigEndian.Uint16(b)); size > 0 {
		return string(p.take(int(size)))
	}
	return ""
}

// fill writes bytes that do not compress, the same for the same seed.
func fill(b []byte, seed uint64) {
	for i := range b {
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		b[i] = byte(seed)
	}
}
