package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func startTestNull(t *testing.T, c NullConfig) *NullBroker {
	t.Helper()
	b, err := ListenNull("127.0.0.1:0", c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestNullBrokerAcknowledgesAnIdempotentProducer(t *testing.T) {
	b := startTestNull(t, NullConfig{Partitions: 3})
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var records []*kgo.Record
	for range 1000 {
		records = append(records, &kgo.Record{Key: []byte("k"), Value: make([]byte, 777)})
	}
	if err := cl.ProduceSync(testContext(t), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	seen := map[int32]bool{}
	for _, r := range records {
		seen[r.Partition] = true
	}
	if len(seen) != 3 {
		t.Fatalf("records went to partitions %v, want all three", seen)
	}
}

// The client checks the CRC and the offsets, so what it returns was well formed.
func TestNullBrokerServesRecordsInOrderUpToTheEnd(t *testing.T) {
	const end = 10_000
	b := startTestNull(t, NullConfig{Partitions: 2, RecordBytes: 100, BatchBytes: 10_000, EndOffset: end})
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	next := map[int32]int64{}
	for ctx := testContext(t); next[0] < end || next[1] < end; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset != next[r.Partition] || len(r.Value) != 100 {
				t.Fatalf("partition %d: offset %d of %d bytes, want offset %d of 100 bytes", r.Partition, r.Offset, len(r.Value), next[r.Partition])
			}
			next[r.Partition]++
		})
	}
}

func TestNullBrokerClosesAConnectionThatTalksNonsense(t *testing.T) {
	b := startTestNull(t, NullConfig{})
	request := func(key, version uint16, body ...byte) []byte {
		f := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
		f = binary.BigEndian.AppendUint16(f, key)
		f = binary.BigEndian.AppendUint16(f, version)
		return append(append(f, 0, 0, 0, 1), body...)
	}
	for name, frame := range map[string][]byte{
		"negative size":         {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0},
		"huge size":             {0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0},
		"unknown api":           request(999, 0, 0xff, 0xff),
		"produce, many topics":  request(0, 7, 0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff),
		"produce, long name":    request(0, 7, 0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0x7f, 0xff),
		"produce, many records": request(0, 7, 0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 'a', 0, 0, 0, 1, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff),
		"fetch, cut":            request(1, 11, 0xff, 0xff, 0, 0),
		"metadata, cut":         request(3, 12, 0xff, 0xff),
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", b.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Write(frame); err != nil {
				t.Fatal(err)
			}
			c.SetReadDeadline(time.Now().Add(10 * time.Second))
			if n, err := c.Read(make([]byte, 1)); err == nil || n != 0 || isTimeout(err) {
				t.Fatalf("read %d bytes, %v, want a closed connection", n, err)
			}
		})
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return !errors.Is(err, io.EOF) && errors.As(err, &ne) && ne.Timeout()
}
