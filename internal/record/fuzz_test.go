package record

import (
	"bytes"
	"testing"
)

// Whatever comes, decoding must end, stay within its limits and agree with itself.
func FuzzBatch(f *testing.F) {
	for _, c := range codecs {
		f.Add(encode(f, BatchOptions{Compression: c}, sample(3)))
	}
	f.Add(encode(f, BatchOptions{Idempotent: true, ProducerID: 4, BaseSequence: 9}, sample(1)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= HeaderBytes {
			// Give the fuzzer what it cannot guess: a length and a CRC that fit.
			b = bytes.Clone(b)
			h, err := ParseHeader(b)
			if err == nil && h.SizeBytes() != len(b) {
				b = AppendBatch(nil, h, b[HeaderBytes:])
			} else if err == nil {
				reseal(b)
			}
		}
		lim := Limits{MaxRecordsBytes: 1 << 20, MaxRecords: 1000}
		h, err := Check(b, lim)
		if err != nil {
			return
		}
		deep := CheckCompressed(b, lim)
		n := int32(0)
		each := Each(b, lim, func(Record) bool { n++; return true })
		if (deep == nil) != (each == nil) {
			t.Fatalf("CheckCompressed says %v, Each says %v", deep, each)
		}
		if each == nil && n != h.Count {
			t.Fatalf("%d records of %d", n, h.Count)
		}
		if h.Compression() == None && each != nil {
			t.Fatalf("Check accepted what Each refuses: %v", each)
		}
		_, _, _, _ = FirstAt(b, h.MaxTimestamp, 0, lim)
	})
}
