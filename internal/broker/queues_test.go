package broker

import (
	"slices"
	"testing"

	"github.com/tube-mq/tube/internal/queue"
)

// A topic may have a thousand groups: one more, or another one's change, is no work
// for those that stay as they are.
func TestOneMoreGroupLeavesTheOthersAlone(t *testing.T) {
	q := withQueue(start(t, t.TempDir(), testTopic(nil)), nil)
	old := q.queues.group(q.topic.ID, testGroup)
	busy := func() bool {
		old.inboxMu.Lock()
		defer old.inboxMu.Unlock()
		return old.running || len(old.inbox) > 0
	}
	old.mu.Lock() // what it is given to do stays with it
	q.spec.Groups = append(q.spec.Groups, QueueGroup{ID: testGroup + 1, Name: "mail", Settings: queueSettings(nil)})
	q.spec.LastID++
	q.tell()
	if busy() {
		t.Error("a new group made work for another")
	}
	q.spec.Groups = slices.Clone(q.spec.Groups)
	q.spec.Groups[1].Settings.Paused = true
	q.tell()
	if busy() {
		t.Error("a change of a group made work for another")
	}
	q.spec.Groups = slices.Clone(q.spec.Groups)
	q.spec.Groups[0].Settings.Paused = true
	q.tell()
	if !busy() {
		t.Error("a change is not taken over")
	}
	old.mu.Unlock()
}

// What has to begin and what to go is found also when as many come as go.
func TestGroupsThatDifferAreFound(t *testing.T) {
	s := queue.NewState()
	var ops []queue.Op
	for _, id := range []queue.GroupID{1, 2, 3, 9} {
		ops = append(ops, queue.Op{Kind: queue.OpOpen, Group: id})
	}
	if _, err := s.Apply(queue.AppendCommand(nil, 1, ops), 0); err != nil {
		t.Fatal(err)
	}
	of := func(last queue.GroupID, ids ...queue.GroupID) QueueTopic {
		t := QueueTopic{LastID: last}
		for _, id := range ids {
			t.Groups = append(t.Groups, QueueGroup{ID: id})
		}
		return t
	}
	for _, c := range []struct {
		name          string
		told          QueueTopic
		missing, gone []queue.GroupID
	}{
		{"nothing new", of(9, 1, 2, 3, 9), nil, nil},
		{"one more", of(10, 1, 2, 3, 9, 10), []queue.GroupID{10}, nil},
		{"one less", of(9, 1, 3, 9), nil, []queue.GroupID{2}},
		{"as many come as go", of(11, 1, 3, 10, 11), []queue.GroupID{10, 11}, []queue.GroupID{2, 9}},
		{"the log is ahead of the metadata", of(3, 1, 2, 3), nil, nil},
	} {
		missing, gone := differ(c.told, s)
		var ids []queue.GroupID
		for _, g := range missing {
			ids = append(ids, g.ID)
		}
		if !slices.Equal(ids, c.missing) || !slices.Equal(gone, c.gone) {
			t.Errorf("%s: %d begin and %d go, want %d and %d", c.name, ids, gone, c.missing, c.gone)
		}
	}
}
