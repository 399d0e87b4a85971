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

// sent records what a group sends.
type sent struct {
	t        *testing.T
	messages []Message
}

func (s *sent) Send(_ record.NodeID, parts [][]byte, release func()) bool {
	defer release()
	m, err := decodeMessage(slices.Concat(parts...), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.messages = append(s.messages, m)
	return true
}

// Each part of a message that was split says which entry it follows, of whatever term.
func TestPartsOfAnAppendFollowEachOther(t *testing.T) {
	out := &sent{t: t}
	g := &Group{spec: Spec{Group: 7}, host: &Host{cfg: Config{Transport: out}}, core: &core{id: 1}}
	g.SetPeers(map[record.ReplicaID]record.NodeID{2: 2})
	m := &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(5)),
		Index: new(uint64(10)), LogTerm: new(uint64(2)), Commit: new(uint64(9)),
	}
	g.core.log = entryLog{base: 10, baseTerm: 2, conf: &raftpb.ConfState{}}
	for i, term := range []uint64{3, 3, 4, 5} {
		index := 11 + uint64(i)
		g.core.log.append(index, slot{term: term, payload: payload{data: make([]byte, maxWireBytes)}})
		m.Entries = append(m.Entries, &raftpb.Entry{Index: new(index), Term: new(term), Type: raftpb.EntryNormal.Enum(), Data: anyThin})
	}
	g.send(m)
	want := [][2]uint64{{10, 2}, {11, 3}, {12, 3}, {13, 4}} // index and term of the entry before
	if len(out.messages) != len(want) {
		t.Fatalf("%d messages, want one for each of the %d entries", len(out.messages), len(want))
	}
	for i, m := range out.messages {
		if got := [2]uint64{m.raft.GetIndex(), m.raft.GetLogTerm()}; got != want[i] {
			t.Errorf("part %d follows entry %d of term %d, want %v", i, got[0], got[1], want[i])
		}
	}
}
