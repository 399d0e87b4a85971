package record

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"
)

// The size is known before: an uncompressed batch is made in one piece, whatever is in it.
func TestEncodeMakesABatchInOnePiece(t *testing.T) {
	long := []byte(strings.Repeat("x", 200))
	records := []Record{
		{Timestamp: 1000},
		{Offset: 1, Timestamp: 1000 + math.MaxInt32, Key: []byte{}, Value: long},
		{Offset: 2, Timestamp: 0, Key: long, Value: []byte("v"), Headers: []RecordHeader{{Key: string(long), Value: nil}, {Key: "k", Value: long}}},
	}
	for i := len(records); i < 300; i++ { // beyond a varint of one byte
		records = append(records, Record{Offset: Offset(i), Timestamp: 1000, Value: long[:i%128]})
	}
	batch, err := Encode(BatchOptions{}, records)
	if err != nil {
		t.Fatal(err)
	}
	if len(batch) != cap(batch) {
		t.Errorf("a batch of %d bytes in %d", len(batch), cap(batch))
	}
	if n := testing.AllocsPerRun(10, func() { _, _ = Encode(BatchOptions{}, records) }); n > 1 {
		t.Errorf("%v allocations, 1 is needed", n)
	}
	PoisonReleased(true) // nothing of who had the buffer before is left in it
	defer PoisonReleased(false)
	for range 3 {
		buf, err := EncodeBuffer(records)
		if err != nil || !bytes.Equal(buf.B, batch) {
			t.Errorf("in a buffer it is another one; %v", err)
		}
		buf.Release()
	}
	if buf, err := EncodeBuffer(nil); buf != nil || err == nil {
		t.Errorf("a batch of nothing: %v, %v", buf, err)
	}
	for _, v := range []int64{0, 1, -1, 63, 64, -64, -65, 8191, 8192, math.MaxInt64, math.MinInt64} {
		if got, want := varintSize(v), len(binary.AppendVarint(nil, v)); got != want {
			t.Errorf("varintSize(%d) = %d, it takes %d", v, got, want)
		}
	}
}
