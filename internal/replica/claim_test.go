package replica

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
	"github.com/tube-mq/tube/internal/wal"
)

// What a replica has voted for and acknowledged is its own: another one of the same
// group that takes its place on the node begins with nothing.
func TestAReplicaDoesNotInheritFromAnother(t *testing.T) {
	fs := vfs.NewMem()
	h := openHost(t, fs, "d")
	g, _ := addTally(t, h, 5) // replica 1
	for i := range 10 {
		if _, err := g.ProposeWait(t.Context(), fmt.Appendf(nil, "%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second start must not find it again
		h = openHost(t, fs, "d")
		if err := h.Claim(5, 2); err != nil {
			t.Fatal(err)
		}
		if saved, err := h.Saved(5); err != nil || saved != nil {
			t.Fatalf("replica 2 was given the state of replica 1: %d bytes, %v", len(saved), err)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAReplicaKeepsWhatIsItsOwn(t *testing.T) {
	fs := vfs.NewMem()
	h := openHost(t, fs, "d")
	addTally(t, h, 5)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = openHost(t, fs, "d")
	defer h.Close()
	if err := h.Claim(5, 1); err != nil {
		t.Fatal(err)
	}
	if saved, err := h.Saved(5); err != nil || saved == nil {
		t.Fatalf("its own state is gone: %v", err)
	}
}

// A forced membership that is older than the checkpoint's section is history: the
// group may have grown since, and would be split by it.
func TestOldForcedMembershipIsHistory(t *testing.T) {
	b, err := proto.Marshal(&raftpb.ConfState{Voters: []uint64{3}})
	if err != nil {
		t.Fatal(err)
	}
	for index, counts := range map[record.Index]bool{9: false, 10: true, 11: true} {
		s := &section{replica: 3, applied: 10, conf: &raftpb.ConfState{Voters: []uint64{3, 4}}, hard: &raftpb.HardState{}}
		h := &Host{recovered: map[record.Group]*recovered{7: {section: s}}}
		if err := h.replay(wal.Record{Kind: wal.KindMembers, Group: 7, Index: index, Data: b}); err != nil {
			t.Fatal(err)
		}
		r := h.recovered[7]
		got := startOf(Spec{Replica: 3}, r).log.conf.GetVoters()
		want := []uint64{3, 4}
		if counts {
			want = []uint64{3}
		}
		if !slices.Equal(got, want) {
			t.Errorf("forced as of entry %d, checkpoint as of 10: voters %v, want %v", index, got, want)
		}
	}
}
