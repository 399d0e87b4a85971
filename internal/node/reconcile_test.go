package node

import (
	"log/slog"
	"testing"

	"github.com/tube-mq/tube/internal/meta"
)

// Who waits for metadata to be carried out asks the broker for what is new in it at
// once: it must have been told of it by then, or the answer is a pause and another try.
func TestTheBrokerKnowsOfGroupsBeforeMetadataCountsAsCarriedOut(t *testing.T) {
	im := &meta.Image{Index: 7}
	r := newReconciler(1, func() *meta.Image { return im }, nil, slog.New(slog.DiscardHandler))
	told := false
	r.topics = func(*meta.Image) {
		told = true
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.index >= im.Index {
			t.Errorf("carried out up to %d, of which the broker hears only now", r.index)
		}
	}
	r.once()
	if !told {
		t.Fatal("the broker was told nothing")
	}
	if err := r.await(t.Context(), im.Index); err != nil {
		t.Fatal(err)
	}
}
