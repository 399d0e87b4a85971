package replica

import (
	"fmt"
	"path"
	"testing"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
	"github.com/tube-mq/tube/internal/wal"
)

// fill writes n entries to each group and lets the process die.
func fill(t *testing.T, dir string, n int, groups ...record.Group) *vfs.Mem {
	t.Helper()
	fsys := vfs.NewMem()
	if err := fsys.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	h := openHost(t, fsys, dir)
	for _, id := range groups {
		g, _ := addTally(t, h, id)
		for i := range n {
			if _, err := g.ProposeWait(t.Context(), fmt.Append(nil, id, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	dead := fsys.CrashCopy(1, vfs.CrashKeep)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	return dead
}

// A start that fails before the groups are added closes the host again, and a
// checkpoint is due at any time before they are.
func TestACheckpointKeepsGroupsThatNobodyHasAdded(t *testing.T) {
	fsys := fill(t, "d", 20, 1, 2)
	for range 2 {
		h := openHost(t, fsys, "d")
		if err := h.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		addTally(t, h, 1) // and 2 is not
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	h := openHost(t, fsys, "d")
	defer h.Close()
	for id := record.Group(1); id <= 2; id++ {
		if _, m := addTally(t, h, id); m.count != 20 {
			t.Errorf("group %d has %d entries left", id, m.count)
		}
	}
}

// What is damaged stays damaged, whatever checkpoints follow: the rest of it
// must never be taken for all there was.
func TestDamageIsRememberedUntilTheGroupIsRemoved(t *testing.T) {
	for _, added := range []bool{true, false} {
		fsys := fill(t, "d", 20, 1, 2)
		flipEntry(t, fsys, "d", 2, 9)
		for round := range 3 {
			h := openHost(t, fsys, "d")
			addTally(t, h, 1)
			if _, err := h.Saved(2); err == nil {
				t.Fatalf("start %d: the damage is forgotten (added %v)", round, added)
			}
			if added {
				g, err := h.Add(Spec{Group: 2, Replica: 1, Voters: []record.ReplicaID{1}, Machine: newTally()})
				if err != nil || g.Err() == nil {
					t.Fatalf("start %d: the group runs: %v", round, err)
				}
			}
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
		}
		h := openHost(t, fsys, "d")
		if err := h.Drop(2); err != nil {
			t.Fatal(err)
		}
		if _, m := addTally(t, h, 2); m.count != 0 {
			t.Errorf("a removed group comes back with %d entries", m.count)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// flipEntry damages an entry of a group in the write-ahead log; index 0: the last one.
func flipEntry(t *testing.T, fsys vfs.FS, dir string, group record.Group, index record.Index) {
	t.Helper()
	var at wal.Position
	if err := wal.Dump(fsys, path.Join(dir, "wal"), func(i wal.Item) {
		if i.Record != nil && i.Record.Kind == wal.KindEntry && i.Record.Group == group && (index == 0 || i.Record.Index == index) {
			at = i.Position
		}
	}); err != nil || at.IsZero() {
		t.Fatalf("no entry found: %v", err)
	}
	f, err := fsys.Open(path.Join(dir, "wal", fmt.Sprintf("%016x.wal", at.File)), vfs.Mode{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at.Offset+48); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, at.Offset+48); err != nil {
		t.Fatal(err)
	}
}
