package replica

import (
	"bytes"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/record"
)

func encodeWhole(t testing.TB, m *raftpb.Message) []byte {
	b, err := encodeHead(9, 5, m, len(m.GetEntries()))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range m.GetEntries() {
		b = append(appendEntryHead(b, e.GetTerm(), e.GetType(), len(e.GetData())), e.GetData()...)
	}
	return b
}

func sampleMessage() *raftpb.Message {
	return &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), To: new(uint64(2)), From: new(uint64(1)), Term: new(uint64(7)), LogTerm: new(uint64(6)),
		Index: new(uint64(41)), Commit: new(uint64(40)),
		Entries: []*raftpb.Entry{
			{Term: new(uint64(7)), Index: new(uint64(42)), Type: raftpb.EntryNormal.Enum(), Data: []byte("some payload")},
			{Term: new(uint64(7)), Index: new(uint64(43)), Type: raftpb.EntryNormal.Enum()},
			{Term: new(uint64(7)), Index: new(uint64(44)), Type: raftpb.EntryConfChangeV2.Enum(), Data: []byte{1}},
		},
	}
}

func TestMessagesComeThroughWhole(t *testing.T) {
	beat := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), To: new(uint64(2)), From: new(uint64(1)), Term: new(uint64(7)), Commit: new(uint64(3)), Context: []byte("12345678")}
	for _, want := range []*raftpb.Message{sampleMessage(), beat} {
		b := encodeWhole(t, want)
		got, err := decodeMessage(b, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.group != 9 || got.everyone != 5 || !proto.Equal(got.raft, want) {
			t.Fatalf("%v came through as %v", want, got.raft)
		}
		for n := range b {
			if _, err := decodeMessage(b[:n], nil); err == nil && n != len(b) {
				t.Fatalf("cut off after %d of %d bytes, and it decodes", n, len(b))
			}
		}
	}
}

func FuzzDecodeMessage(f *testing.F) {
	f.Add(encodeWhole(f, sampleMessage()))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(slices.Clone(b), (*record.Buffer)(nil))
		if err != nil {
			return
		}
		m.raft.ProtoReflect().SetUnknown(nil)
		if len(m.raft.GetEntries()) > 0 {
			m.raft.Snapshot, m.raft.Responses = nil, nil // never together
		}
		again, err := decodeMessage(encodeWhole(t, m.raft), nil)
		if err != nil || !proto.Equal(again.raft, m.raft) || !bytes.Equal(again.raft.GetContext(), m.raft.GetContext()) {
			t.Fatalf("%v became %v, %v", m.raft, again.raft, err)
		}
	})
}
