package replica

import (
	"testing"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// Every flipped bit is told of, and as whose it is; the rest is still shown.
func TestDumpCheckpointNamesEveryFlippedBit(t *testing.T) {
	fsys := vfs.NewMem()
	if err := fsys.MkdirAll("c"); err != nil {
		t.Fatal(err)
	}
	dump := func(file []byte) (items []CheckpointItem) {
		if err := vfs.ReplaceFile(fsys, "c", checkpointName(8), file); err != nil {
			t.Fatal(err)
		}
		if err := DumpCheckpoint(fsys, "c", func(i CheckpointItem) { items = append(items, i) }); err != nil {
			t.Fatal(err)
		}
		return items
	}
	file := someCheckpoint(t, 8)
	sound := dump(file)
	if len(sound) != 3 || sound[1].Group != 9 || sound[1].Applied != 90 || sound[1].Replica != 3 || len(sound[1].State) != 9 || sound[1].Err != nil {
		t.Fatalf("a sound file: %+v", sound)
	}
	for at := range file {
		file[at] ^= 4
		items, damaged, groups := dump(file), 0, map[record.Group]bool{}
		for _, i := range items {
			groups[i.Group] = true
			if i.Err != nil {
				damaged++
			}
		}
		if damaged != 1 || !groups[1] || !groups[9] || !groups[70] {
			t.Fatalf("byte %d flipped: %+v", at, items)
		}
		file[at] ^= 4
	}
	if items := dump(file[:20]); len(items) != 2 || items[0].Err == nil {
		t.Fatalf("a stump: %+v", items)
	}
}

func TestDumpCheckpointOfNothing(t *testing.T) {
	if err := DumpCheckpoint(vfs.NewMem(), "c", func(i CheckpointItem) { t.Errorf("found %+v", i) }); err != nil {
		t.Fatal(err)
	}
}
