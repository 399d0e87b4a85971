package rpc

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func drawOutgoing(rt *rapid.T) *tubev1.OutgoingMessage {
	m := &tubev1.OutgoingMessage{
		Value: rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(rt, "value"),
		Id:    rapid.SampledFrom([]string{"", "", "id", "é"}).Draw(rt, "id"),
	}
	if rapid.Bool().Draw(rt, "with key") {
		m.Key = rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(rt, "key")
	}
	switch rapid.IntRange(0, 8).Draw(rt, "besides") {
	case 0:
		m.Headers = map[string]string{"a": "b"}
	case 1:
		m.RawHeaders = []*tubev1.RawHeader{{Name: "a", Value: []byte{0xff}}}
	case 2:
		m.When = &tubev1.OutgoingMessage_Delay{Delay: durationpb.New(time.Second)}
	case 3:
		m.When = &tubev1.OutgoingMessage_DeliverAt{DeliverAt: timestamppb.New(time.Unix(1, 0))}
	}
	return m
}

// A call of Send is read as protobuf reads it, whatever is in it, and keeps nothing of
// the bytes that it was read from.
func TestSendIsProtobuf(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &tubev1.SendRequest{
			Topic:    rapid.SampledFrom([]string{"", "orders", "é"}).Draw(rt, "topic"),
			Messages: rapid.SliceOfN(rapid.Custom(drawOutgoing), 0, 6).Draw(rt, "messages"),
		}
		b, err := proto.Marshal(m)
		if err != nil {
			rt.Fatal(err)
		}
		switch rapid.IntRange(0, 6).Draw(rt, "damage") {
		case 0: // cut off, or changed anywhere
			b = b[:rapid.IntRange(0, len(b)).Draw(rt, "cut")]
		case 1, 2:
			if len(b) > 0 {
				b[rapid.IntRange(0, len(b)-1).Draw(rt, "where")] = rapid.Byte().Draw(rt, "byte")
			}
		case 3: // twice
			b = append(b, b...)
		case 4: // a field that nobody knows
			b = protowire.AppendVarint(protowire.AppendTag(b, 99, protowire.VarintType), 1)
		case 5: // one message whose fields come twice
			one, _ := proto.Marshal(drawOutgoing(rt))
			b = protowire.AppendBytes(protowire.AppendTag(b, fieldSendMessages, protowire.BytesType), append(one, one...))
		}
		want := &tubev1.SendRequest{}
		wantErr := proto.Unmarshal(b, want)
		got := &tubev1.SendRequest{Topic: "left of before"}
		gotErr := unmarshalSend(b, got)
		for i := range b {
			b[i] = 0xEE
		}
		if (gotErr != nil) != (wantErr != nil) || wantErr == nil && !proto.Equal(got, want) {
			rt.Fatalf("got %v, %v; want %v, %v", got, gotErr, want, wantErr)
		}
		if wantErr != nil {
			return
		}
		for i := range want.Messages {
			if (got.Messages[i].Key == nil) != (want.Messages[i].Key == nil) {
				rt.Fatalf("message %d: key %v, want %v", i, got.Messages[i].Key, want.Messages[i].Key)
			}
		}
	})
}

// Text that is none is refused as protobuf refuses it, wherever it stands.
func TestSendRefusesWhatIsNoText(t *testing.T) {
	text := func(n protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, n, protowire.BytesType), s)
	}
	for name, b := range map[string][]byte{
		"topic": text(fieldSendTopic, "\xff"),
		"id":    text(fieldSendMessages, string(text(fieldOutgoingID, "\xff"))),
	} {
		if err := unmarshalSend(b, &tubev1.SendRequest{}); err == nil {
			t.Errorf("%s: it is read", name)
		}
	}
}

// What is appended to one message's value does not reach the next one.
func TestValuesOfOneSendAreApart(t *testing.T) {
	m := &tubev1.SendRequest{Topic: "orders"}
	for i := range 3 {
		m.Messages = append(m.Messages, &tubev1.OutgoingMessage{Value: []byte(fmt.Sprint("value ", i))})
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	got := &tubev1.SendRequest{}
	if err := unmarshalSend(b, got); err != nil {
		t.Fatal(err)
	}
	_ = append(got.Messages[0].Value, bytes.Repeat([]byte("x"), 20)...)
	if !proto.Equal(got, m) {
		t.Errorf("got %v", got)
	}
}

// BenchmarkSendIsRead reads a call of 1,000 messages of 1 KiB.
func BenchmarkSendIsRead(b *testing.B) {
	m := &tubev1.SendRequest{Topic: "orders"}
	for range 1000 {
		m.Messages = append(m.Messages, &tubev1.OutgoingMessage{Value: make([]byte, 1024)})
	}
	body, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for name, read := range map[string]func([]byte, *tubev1.SendRequest) error{
		"short way": unmarshalSend,
		"protobuf":  func(b []byte, m *tubev1.SendRequest) error { return proto.Unmarshal(b, m) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := read(body, &tubev1.SendRequest{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
