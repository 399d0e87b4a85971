package rpc

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func drawDelivery(rt *rapid.T) queue.Delivery {
	bytes := func(name string, most int) []byte { return rapid.SliceOfN(rapid.Byte(), 0, most).Draw(rt, name) }
	d := queue.Delivery{
		Lease: queue.Lease{
			Partition: record.Partition(rapid.Int32Min(0).Draw(rt, "partition")), Offset: record.Offset(rapid.Int64Min(0).Draw(rt, "offset")),
			Attempt: int(rapid.Int32Min(0).Draw(rt, "attempt")), Nonce: rapid.Uint64Min(1).Draw(rt, "nonce"), Cursor: rapid.Uint32().Draw(rt, "cursor"),
		},
		Topic: rapid.SampledFrom([]string{"orders", ""}).Draw(rt, "topic"), ID: rapid.SampledFrom([]string{"", "order-1", "\xff\xfe"}).Draw(rt, "id"),
		Value: bytes("value", 300), Key: bytes("key", 5), KeyNull: rapid.Bool().Draw(rt, "no key"),
		TimestampMillis: rapid.Int64Range(-1e12, 1e14).Draw(rt, "time"), UntilMillis: rapid.Int64Range(0, 1e14).Draw(rt, "until"),
	}
	for range rapid.IntRange(0, 4).Draw(rt, "headers") {
		d.Headers = append(d.Headers, queue.Header{
			Key: rapid.SampledFrom([]string{"a", "b", "", "\xff", queue.HeaderMessageID}).Draw(rt, "name"), Value: bytes("header", 4),
		})
	}
	return d
}

// A frame of messages decodes to what protobuf's own objects would have been.
func TestFramesOfMessagesAreProtobuf(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := &downFrame{}
		for range rapid.IntRange(0, 4).Draw(rt, "messages") {
			f.messages = append(f.messages, drawDelivery(rt))
		}
		b, err := protoCodec{}.MarshalAppend([]byte("before"), f)
		if err != nil || string(b[:6]) != "before" {
			rt.Fatalf("%q, %v", b, err)
		}
		got := &tubev1.ConsumeResponse{}
		if err := proto.Unmarshal(b[6:], got); err != nil {
			rt.Fatal(err)
		}
		if want := f.message(); !proto.Equal(got, want) {
			rt.Fatalf("got  %v\nwant %v", got, want)
		}
		if n := proto.Size(got); n != len(b)-6 {
			rt.Fatalf("%d bytes, protobuf needs %d", len(b)-6, n)
		}
	})
}

// What comes up is read as protobuf reads it, whether it goes the short way or not.
func TestAcknowledgementsAreProtobuf(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ids := rapid.SliceOfN(rapid.SampledFrom([]string{"0-1-1-7", "", "x", "3-77-2-500000001-8001f00d", string(make([]byte, 130)), "é"}), 0, 6).Draw(rt, "ids")
		m := ack(rapid.Uint64().Draw(rt, "seq"), ids...)
		b, err := proto.Marshal(m)
		if err != nil {
			rt.Fatal(err)
		}
		switch rapid.IntRange(0, 5).Draw(rt, "damage") {
		case 0: // cut off, or changed anywhere
			if len(b) > 0 {
				b = b[:rapid.IntRange(0, len(b)).Draw(rt, "cut")]
			}
		case 1:
			if len(b) > 0 {
				b[rapid.IntRange(0, len(b)-1).Draw(rt, "where")] = rapid.Byte().Draw(rt, "byte")
			}
		case 3: // a frame in two parts, which protobuf makes one of
			b = append(b, b...)
		case 2: // a field that nobody knows
			b = protowire.AppendVarint(protowire.AppendTag(b, 99, protowire.VarintType), 1)
		}
		want := &tubev1.ConsumeRequest{}
		wantErr := proto.Unmarshal(b, want)
		f := &upFrame{}
		if err := (protoCodec{}).Unmarshal(b, f); err != nil {
			rt.Fatal(err)
		}
		if f.acks == nil {
			if got := undecoded(f.request); (got != nil) != (wantErr != nil) || wantErr == nil && !proto.Equal(f.request, want) {
				rt.Fatalf("got %v, %v; want %v, %v", f.request, got, want, wantErr)
			}
			return
		}
		if wantErr != nil || f.acks.seq != want.Seq || !slices.Equal(f.acks.ids, want.GetAcknowledge().GetLeaseIds()) || f.acks.set != nil || f.acks.same.Verdict != queue.Acknowledge {
			rt.Fatalf("got %+v, want %v, %v", f.acks, want, wantErr)
		}
	})
}

// The short way is the way that acknowledgements go.
func TestAcknowledgementsGoTheShortWay(t *testing.T) {
	b, err := proto.Marshal(ack(3, "0-1-1-7", "0-2-1-8"))
	if err != nil {
		t.Fatal(err)
	}
	f := &upFrame{}
	if err := (protoCodec{}).Unmarshal(b, f); err != nil || f.acks == nil || f.acks.seq != 3 || len(f.acks.ids) != 2 {
		t.Errorf("%+v, %v", f.acks, err)
	}
	// What it must leave to protobuf, which refuses some of it and reads other.
	long := strings.Repeat("x", 192) + strings.Repeat("\n\x7e"+strings.Repeat("x", 126), 128) + "\n\x00"
	for name, ids := range map[string][]string{
		"no ids": nil,
		"an id whose length, of several bytes, is text by itself, and which reads as many": {long},
		"an id that is no text": {"0-1-1-7", "\xff"},
	} {
		b := protowire.AppendVarint(protowire.AppendTag(nil, fieldUpSeq, protowire.VarintType), 1)
		var list []byte
		for _, id := range ids {
			list = protowire.AppendString(protowire.AppendTag(list, fieldListLeases, protowire.BytesType), id)
		}
		b = protowire.AppendBytes(protowire.AppendTag(b, fieldUpAcknowledge, protowire.BytesType), list)
		if f := acknowledged(b); f != nil {
			t.Errorf("%s: %d ids are read", name, len(f.ids))
		}
	}
	if len(long) != 0x42+0x80+1<<14 {
		t.Errorf("the long id has %d bytes", len(long))
	}
}
