package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"testing"
)

var codecs = []Compression{None, Gzip, Snappy, LZ4, Zstd}

func sample(n int) []Record {
	records := make([]Record, n)
	for i := range records {
		records[i] = Record{
			Offset: Offset(100 + i), Timestamp: int64(1000 + i*10), Key: []byte(fmt.Sprint("k", i)), Value: bytes.Repeat([]byte{byte(i)}, i*7),
			Headers: []RecordHeader{{"h", []byte("v")}, {"null", nil}},
		}
	}
	records[0].Key, records[0].Value, records[0].Headers = nil, nil, nil
	return records
}

func encode(t testing.TB, o BatchOptions, records []Record) []byte {
	t.Helper()
	b, err := Encode(o, records)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// reseal computes the CRC anew after a test has changed a batch.
func reseal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[crcAt:], crc32.Checksum(b[attributesAt:], Castagnoli))
	return b
}

func TestEachCodecGivesBackWhatWasEncoded(t *testing.T) {
	for _, c := range codecs {
		want := sample(50)
		b := encode(t, BatchOptions{Compression: c}, want)
		h, err := Check(b, Limits{})
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		if h.Count != 50 || h.NextOffset() != 150 || h.BaseTimestamp != 1000 || h.MaxTimestamp != 1490 || h.Compression() != c {
			t.Fatalf("%s: header %+v", c, h)
		}
		if err := CheckCompressed(b, Limits{}); err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		var got []Record
		if err := Each(b, Limits{}, func(r Record) bool { got = append(got, r); return true }); err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
			t.Fatalf("%s: got %v, want %v", c, got, want)
		}
	}
}

func TestXerialFramingIsRead(t *testing.T) {
	plain := encode(t, BatchOptions{}, sample(20))
	h, _ := ParseHeader(plain)
	framed := append([]byte{}, xerialMagic...)
	framed = append(framed, 0, 0, 0, 1, 0, 0, 0, 1)
	for body := plain[HeaderBytes:]; len(body) > 0; {
		n := min(100, len(body))
		block, err := compress(Snappy, body[:n])
		if err != nil {
			t.Fatal(err)
		}
		framed = binary.BigEndian.AppendUint32(framed, uint32(len(block)))
		framed = append(framed, block...)
		body = body[n:]
	}
	h.Attributes = int16(Snappy)
	b := AppendBatch(nil, h, framed)
	if err := CheckCompressed(b, Limits{}); err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := Each(b, Limits{}, func(Record) bool { n++; return true }); err != nil || n != 20 {
		t.Fatalf("%d records, %v", n, err)
	}
}

func TestCheckRefusesWhatNoProducerMaySend(t *testing.T) {
	be := binary.BigEndian
	cases := []struct {
		name   string
		change func(b []byte) []byte
		want   error
	}{
		{"a flipped bit", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, ErrCorrupt},
		{"cut short", func(b []byte) []byte { return b[:len(b)-1] }, ErrCorrupt},
		{"two batches", func(b []byte) []byte { return append(b, b...) }, ErrCorrupt},
		{"nothing", func([]byte) []byte { return nil }, ErrCorrupt},
		{"old format", func(b []byte) []byte { b[magicAt] = 1; return b }, ErrOldMagic},
		{"a length below the header", func(b []byte) []byte { be.PutUint32(b[lengthAt:], 3); return b }, ErrCorrupt},
		{"a negative length", func(b []byte) []byte { be.PutUint32(b[lengthAt:], 1<<31); return b }, ErrCorrupt},
		{"no records", func(b []byte) []byte { be.PutUint32(b[57:], 0); be.PutUint32(b[23:], math.MaxUint32); return reseal(b) }, ErrInvalid},
		{"a count too small", func(b []byte) []byte { be.PutUint32(b[57:], 2); be.PutUint32(b[23:], 1); return reseal(b) }, ErrInvalid},
		{"a count too large", func(b []byte) []byte { be.PutUint32(b[57:], 4); be.PutUint32(b[23:], 3); return reseal(b) }, ErrInvalid},
		{"more records than the limit", func(b []byte) []byte { be.PutUint32(b[57:], 2e9); be.PutUint32(b[23:], 2e9-1); return reseal(b) }, ErrTooLarge},
		{"a last offset delta that leaves a hole", func(b []byte) []byte { be.PutUint32(b[23:], 7); return reseal(b) }, ErrInvalid},
		{"a control batch", func(b []byte) []byte { b[attributesAt+1] |= ControlBit; return reseal(b) }, ErrInvalid},
		{"a transaction", func(b []byte) []byte { b[attributesAt+1] |= TransactionalBit; return reseal(b) }, ErrInvalid},
		{"LogAppendTime", func(b []byte) []byte { b[attributesAt+1] |= LogAppendTimeBit; return reseal(b) }, ErrInvalid},
		{"an unknown attribute", func(b []byte) []byte { b[attributesAt] = 1; return reseal(b) }, ErrInvalid},
		{"an unknown codec", func(b []byte) []byte { b[attributesAt+1] |= 5; return reseal(b) }, ErrInvalid},
		{"producer id −2", func(b []byte) []byte { be.PutUint64(b[43:], math.MaxUint64-1); return reseal(b) }, ErrInvalid},
		{"a producer without epoch", func(b []byte) []byte { be.PutUint64(b[43:], 5); return reseal(b) }, ErrInvalid},
		{"a producer without sequence", func(b []byte) []byte { be.PutUint64(b[43:], 5); be.PutUint16(b[51:], 0); return reseal(b) }, ErrInvalid},
		{"a repeated offset delta", func(b []byte) []byte { b[HeaderBytes+3+7] = 0; return reseal(b) }, ErrInvalid},
		{"bytes behind the records", func(b []byte) []byte {
			b = append(b, 0)
			be.PutUint32(b[lengthAt:], uint32(len(b)-12))
			return reseal(b)
		}, ErrInvalid},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			records := []Record{{}, {Offset: 1}, {Offset: 2}}
			b := encode(t, BatchOptions{}, records)
			if _, err := Check(b, Limits{}); err != nil {
				t.Fatalf("before the change: %v", err)
			}
			if _, err := Check(c.change(b), Limits{}); !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
		})
	}
}

// Each byte of a record's framing is set to all that it must not be.
func TestCheckFindsEveryBrokenFraming(t *testing.T) {
	b := encode(t, BatchOptions{}, []Record{{Key: []byte("k"), Value: []byte("v"), Headers: []RecordHeader{{"a", []byte("b")}}}})
	//  length 0, attributes 1, time 2, offset 3, key 4–5, value 6–7, headers 8, key 9–10, value 11–12
	for _, at := range []int{0, 3, 4, 6, 8, 9, 11} {
		for v := range 256 {
			c := bytes.Clone(b)
			if c[HeaderBytes+at] == byte(v) {
				continue
			}
			c[HeaderBytes+at] = byte(v)
			_, err := Check(reseal(c), Limits{})
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("byte %d = %#x: %v", at, v, err)
			}
			// The streaming walk must agree with the fast one.
			h, _ := ParseHeader(c)
			if err := streamRecords(c, h, Limits{}.withDefaults(), nil); !errors.Is(err, ErrInvalid) {
				t.Errorf("streamed: byte %d = %#x: %v", at, v, err)
			}
		}
	}
}

func TestADecompressionBombIsStopped(t *testing.T) {
	zeros := []Record{{Value: make([]byte, 64<<20)}}
	for _, c := range codecs[1:] {
		b := encode(t, BatchOptions{Compression: c}, zeros)
		lim := Limits{MaxRecordsBytes: 32 << 20}
		if err := CheckCompressed(b, lim); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: over the bytes: %v", c, err)
		}
		if err := Each(b, lim, func(Record) bool { return true }); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: over the bytes: %v", c, err)
		}
		if err := CheckCompressed(b, Limits{MaxRatio: 10}); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: over the ratio: %v", c, err)
		}
		if err := CheckCompressed(b, Limits{MaxRatio: 100000}); err != nil {
			t.Errorf("%s: within the limits: %v", c, err)
		}
	}
}

func TestASnappyBlockThatLiesAboutItsSizeGetsNoMemory(t *testing.T) {
	lie := binary.AppendUvarint(nil, 100<<20)
	lie = append(lie, 0, 'x')
	b := AppendBatch(nil, Header{Attributes: int16(Snappy), Count: 1, ProducerID: NoProducer}, lie)
	lim := Limits{MaxRatio: math.MaxInt32}
	err := CheckCompressed(b, lim)
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "claims") {
		t.Fatal(err)
	}
}

func TestCompressedRecordsAreCheckedToo(t *testing.T) {
	for _, c := range codecs[1:] {
		body, err := compress(c, []byte("not records at all"))
		if err != nil {
			t.Fatal(err)
		}
		b := AppendBatch(nil, Header{Attributes: int16(c), Count: 1, ProducerID: NoProducer}, body)
		if err := CheckCompressed(b, Limits{}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", c, err)
		}
		b = AppendBatch(nil, Header{Attributes: int16(c), Count: 1, ProducerID: NoProducer}, []byte("not compressed"))
		if err := CheckCompressed(b, Limits{}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", c, err)
		}
		// One record more is claimed than there is, and one less.
		good := encode(t, BatchOptions{Compression: c}, sample(5))
		for _, n := range []uint32{4, 6} {
			binary.BigEndian.PutUint32(good[57:], n)
			if err := CheckCompressed(reseal(good), Limits{}); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: count %d: %v", c, n, err)
			}
		}
	}
}

func TestFirstAtFindsByTime(t *testing.T) {
	for _, c := range codecs {
		b := encode(t, BatchOptions{Compression: c}, sample(50))
		for _, x := range []struct {
			time int64
			from Offset
			want Offset
			ok   bool
		}{{0, 0, 100, true}, {1005, 0, 101, true}, {1010, 0, 101, true}, {1490, 0, 149, true}, {1491, 0, -1, false}, {0, 120, 120, true}, {0, 150, -1, false}} {
			o, _, ok, err := FirstAt(b, x.time, x.from, Limits{})
			if err != nil || o != x.want || ok != x.ok {
				t.Fatalf("%s: FirstAt(%d, %d) = %d, %v, %v", c, x.time, x.from, o, ok, err)
			}
		}
		StampLogAppendTime(b, 5000)
		if o, at, ok, err := FirstAt(b, 4000, 0, Limits{}); o != 100 || at != 5000 || !ok || err != nil {
			t.Fatalf("%s: LogAppendTime: %d %d %v %v", c, o, at, ok, err)
		}
	}
}

func TestSequencesWrap(t *testing.T) {
	for _, c := range []struct{ seq, n, want int32 }{{0, 1, 1}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 2, 5, 2}, {5, 0, 5}} {
		if got := AddSequence(c.seq, c.n); got != c.want {
			t.Errorf("AddSequence(%d, %d) = %d, want %d", c.seq, c.n, got, c.want)
		}
	}
	if !SequenceBefore(math.MaxInt32, 3) || SequenceBefore(3, math.MaxInt32) || SequenceBefore(4, 4) || !SequenceBefore(4, 5) {
		t.Error("SequenceBefore")
	}
	h := Header{BaseSequence: math.MaxInt32 - 1, LastOffsetDelta: 4}
	if h.LastSequence() != 2 {
		t.Error(h.LastSequence())
	}
}

func TestCheckAllocatesNothing(t *testing.T) {
	b := encode(t, BatchOptions{}, sample(100))
	if n := testing.AllocsPerRun(100, func() {
		if _, err := Check(b, Limits{}); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, size := range []int{100, 1024} {
		records := make([]Record, 1<<16/size)
		for i := range records {
			records[i] = Record{Offset: Offset(i), Value: make([]byte, size)}
		}
		batch := encode(b, BatchOptions{}, records)
		b.Run(fmt.Sprint("crc/", size), func(b *testing.B) {
			b.SetBytes(int64(len(batch)))
			for b.Loop() {
				_, _ = Verify(batch)
			}
		})
		b.Run(fmt.Sprint("crc+walk/", size), func(b *testing.B) {
			b.SetBytes(int64(len(batch)))
			for b.Loop() {
				_, _ = Check(batch, Limits{})
			}
		})
	}
}
