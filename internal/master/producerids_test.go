package master

import (
	"errors"
	"sync"
	"testing"

	"github.com/tube-mq/tube/internal/record"
)

func TestProducerIDsAreNeverGivenTwice(t *testing.T) {
	c := newLog(t, "", "")
	// Two nodes, and the first once more after a restart, each over its block.
	masters := []*Master{c.master(1), c.master(2), c.master(1)}
	const each, askers = 2*producerIDBlock + 1, 4
	var mu sync.Mutex
	seen := map[record.ProducerID]bool{}
	var wg sync.WaitGroup
	for _, m := range masters {
		for range askers {
			wg.Go(func() {
				for range each / askers {
					id, err := m.ProducerID(t.Context())
					mu.Lock()
					if err != nil || id < 0 || seen[id] {
						t.Errorf("id %d, %v: given before or none", id, err)
					}
					seen[id] = true
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	if len(seen) != len(masters)*(each/askers)*askers {
		t.Fatalf("%d ids", len(seen))
	}
}

func TestProducerIDsAreReservedInBlocks(t *testing.T) {
	c := newLog(t, "")
	m := c.master(1)
	before := c.proposals()
	for range producerIDBlock {
		if _, err := m.ProducerID(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.proposals() - before; n != 1 {
		t.Fatalf("%d proposals for one block", n)
	}
}

func TestProducerIDsAfterAFailure(t *testing.T) {
	c := newLog(t, "")
	m := c.master(1)
	c.err = errors.New("no leader")
	id, err := m.ProducerID(t.Context())
	if wantErr(t, err, ErrUnavailable); id != -1 {
		t.Fatalf("id %d without a block", id)
	}
	c.err = nil
	if _, err := m.ProducerID(t.Context()); err != nil {
		t.Fatal(err)
	}
}
