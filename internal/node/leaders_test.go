package node

import (
	"testing"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// A node that a partition has moved away from knows who leads it: it is asked for
// it like any other, and is told of it again only after seconds.
func TestAPartitionThatMovedAwayIsStillFound(t *testing.T) {
	l := newLeaders(1, func(record.NodeID) bool { return true })
	const others, own, deleted = record.Group(1000), record.Group(1001), record.Group(1002)
	l.observe(others, replica.Status{Term: 3}, 2)
	l.observe(own, replica.Status{Leading: true, Term: 4}, 1)
	l.observe(deleted, replica.Status{Term: 3}, 2)
	l.leave(others, false)
	l.leave(own, false)
	l.leave(deleted, true)
	for g, want := range map[record.Group]record.NodeID{others: 2, own: -1, deleted: -1} {
		if got, _ := l.of(g); got != want {
			t.Errorf("group %d is led by node %d, want %d", g, got, want)
		}
	}
	if frames := l.all(); len(frames) != 0 {
		t.Errorf("the node says that it leads what it left: %d frames", len(frames))
	}
}
