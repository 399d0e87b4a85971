package wal

import (
	"testing"

	"github.com/tube-mq/tube/internal/vfs"
)

func TestDumpTellsRecordsAndDamageAndChangesNothing(t *testing.T) {
	mem, want := written(t)
	if err := vfs.FlipBit(mem, "n/wal/"+fileName(1), blockHeaderBytes+recordBytes+5, 1); err != nil {
		t.Fatal(err)
	}
	mem.SetHook(func(op vfs.Op, _ bool) { t.Errorf("dump did %v", op) })
	var blocks, records int
	var damage []*CorruptionError
	err := Dump(mem, "n/wal", func(i Item) {
		switch {
		case i.Block != nil:
			blocks++
		case i.Record != nil:
			records++
		case i.Damage != nil:
			damage = append(damage, i.Damage)
			if i.Position.File != 1 {
				t.Errorf("damage at %v", i.Position)
			}
		}
	})
	if err != nil || blocks < 12 || records != len(want)-1 || len(damage) != 1 || damage[0].Group != 1 {
		t.Errorf("%d blocks, %d of %d records, damage %v, %v", blocks, records, len(want), damage, err)
	}
	mem.SetHook(nil)
	if err := Dump(mem, "n/none", func(Item) { t.Error("an item of a folder that is not there") }); err != nil {
		t.Error(err)
	}
}
