package node

import (
	"hash/crc32"
	"strings"
	"testing"

	"github.com/tube-mq/tube/internal/record"
	peerv1 "github.com/tube-mq/tube/proto/tube/peer/v1"
)

// The state of a copy that is damaged or cut on its way is not taken.
func TestACopyWhoseStateIsDamagedIsRefused(t *testing.T) {
	state := []byte("the state of a machine")
	head := func() *peerv1.CopyResponse {
		return &peerv1.CopyResponse{Head: &peerv1.CopyHead{Index: 7, Term: 2, StateBytes: uint64(len(state)), StateCrc: crc32.Checksum(state, record.Castagnoli)}}
	}
	take := func(parts ...*peerv1.CopyResponse) (*whole, error) {
		var w whole
		in := receiving{sink: &w}
		for _, p := range parts {
			if err := in.take(t.Context(), p); err != nil {
				return &w, err
			}
		}
		return &w, nil
	}
	if w, err := take(head(), &peerv1.CopyResponse{State: state[:5]}, &peerv1.CopyResponse{State: state[5:]}); err != nil || string(w.snap.State) != string(state) || w.snap.Index != 7 {
		t.Fatalf("a whole copy: %+v, %v", w.snap, err)
	}
	for i := range state {
		bad := append([]byte(nil), state...)
		bad[i] ^= 1
		if w, err := take(head(), &peerv1.CopyResponse{State: bad}); err == nil || !strings.Contains(err.Error(), "damaged on the way") || w.snap.State != nil {
			t.Fatalf("byte %d is flipped: %v", i, err)
		}
	}
	if w, err := take(head(), &peerv1.CopyResponse{State: state[:5]}); err != nil || w.snap.State != nil {
		t.Fatalf("half of a state is taken: %v", err)
	}
	if _, err := take(head(), &peerv1.CopyResponse{State: append(state, 0)}); err == nil {
		t.Fatal("more than the head says is taken")
	}
}
