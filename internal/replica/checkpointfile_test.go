package replica

import (
	"bytes"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tube-mq/tube/internal/record"
)

func someCheckpoint(t testing.TB, seq uint64) []byte {
	t.Helper()
	var sections []encodedSection
	for _, id := range []record.Group{1, 9, 70} {
		s := section{
			group: id, replica: 3, applied: uint64(id) * 10, term: 4,
			hard:  &raftpb.HardState{Term: new(uint64(5)), Vote: new(uint64(3)), Commit: new(uint64(id) * 10)},
			conf:  &raftpb.ConfState{Voters: []uint64{3}},
			state: bytes.Repeat([]byte{byte(id)}, int(id)),
		}
		b, err := s.encode()
		if err != nil {
			t.Fatal(err)
		}
		sections = append(sections, encodedSection{id, b})
	}
	var file []byte
	table := encodeTable(seq, sections)
	file = append(file, table...)
	for _, s := range sections {
		file = append(file, s.bytes...)
	}
	file = append(file, table...)
	return append(file, byte(len(table)), 0, 0, 0)
}

func TestCheckpointReadsBack(t *testing.T) {
	sections, err := decodeCheckpoint(someCheckpoint(t, 8), 8)
	if err != nil {
		t.Fatal(err)
	}
	s := sections[9]
	if len(sections) != 3 || s == nil || s.damaged != nil || s.applied != 90 || s.replica != 3 ||
		s.hard.GetTerm() != 5 || s.conf.GetVoters()[0] != 3 || len(s.state) != 9 {
		t.Fatalf("got %+v of %d sections", s, len(sections))
	}
}

// Every flipped bit is found: in a section it concerns that section's group
// only, in one of the two tables the other stands in, and never is anything
// returned that was not written.
func TestCheckpointFlippedBits(t *testing.T) {
	file := someCheckpoint(t, 8)
	want, err := decodeCheckpoint(file, 8)
	if err != nil {
		t.Fatal(err)
	}
	damagedSections := 0
	for i := range file {
		b := bytes.Clone(file)
		b[i] ^= 0x10
		got, err := decodeCheckpoint(b, 8)
		if err != nil {
			t.Fatalf("byte %d: the whole file is refused: %v", i, err)
		}
		if len(got) != len(want) {
			t.Fatalf("byte %d: %d sections, want %d", i, len(got), len(want))
		}
		for id, s := range got {
			if s.damaged != nil {
				damagedSections++
				continue
			}
			if w := want[id]; s.applied != w.applied || !bytes.Equal(s.state, w.state) || s.hard.GetTerm() != w.hard.GetTerm() {
				t.Fatalf("byte %d: group %d reads differently and nobody noticed", i, id)
			}
		}
	}
	if damagedSections == 0 {
		t.Fatal("no section was ever found damaged")
	}
}

func FuzzCheckpoint(f *testing.F) {
	f.Add(someCheckpoint(f, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		sections, err := decodeCheckpoint(b, 1)
		if err == nil && sections == nil {
			t.Fatal("neither sections nor an error")
		}
	})
}
