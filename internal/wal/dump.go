package wal

import (
	"fmt"

	"github.com/tube-mq/tube/internal/vfs"
)

// Item is one thing that Dump found; exactly one field but Position is set.
type Item struct {
	Position Position
	Block    *BlockInfo
	Record   *Record // its Data is good until the callback returns
	Damage   *CorruptionError
	// Cut: a write that did not get through begins here; nobody was told of it.
	Cut bool
}

// BlockInfo is what a block's header says.
type BlockInfo struct {
	Mark      Position // everything before it was durable when the block was written
	Records   int      // 0: the block is there for its mark
	SizeBytes int64    // with header, without padding
}

// Dump reads a log offline, in order, and calls out what is in it, damage
// included; it writes nothing. It fails only where the disk cannot be read, and with ErrVersion.
func Dump(fsys vfs.FS, dir string, visit func(Item)) error {
	seqs, _, _, err := scanDir(fsys, dir)
	if err != nil {
		return err
	}
	told := 0
	s := &scan{fs: fsys, dir: dir, seqs: seqs}
	damage := func() {
		for ; told < len(s.rec.Damage); told++ {
			d := s.rec.Damage[told]
			visit(Item{Position: d.at, Damage: d})
		}
	}
	s.visit = func(b block) {
		damage()
		visit(Item{Position: b.at, Block: &BlockInfo{b.mark, b.records, int64(b.length)}})
	}
	s.replay = func(r Record) error {
		damage()
		visit(Item{Position: r.Position, Record: &r})
		return nil
	}
	err = s.run()
	damage()
	if err != nil {
		return fmt.Errorf("dump %s: %w", dir, err)
	}
	if !s.rec.Cut.IsZero() {
		visit(Item{Position: s.rec.Cut, Cut: true})
	}
	return nil
}
