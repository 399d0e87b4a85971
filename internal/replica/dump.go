package replica

import (
	"fmt"
	"path"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// CheckpointItem is one thing that DumpCheckpoint found: a group's section, or
// damage, of a section if Group is not 0.
type CheckpointItem struct {
	File    string // its path
	Offset  int64  // in bytes, within the file
	Group   record.Group
	Replica record.ReplicaID
	Applied record.Index // up to where State stands
	Term    record.Term  // of the entry at Applied
	State   []byte       // the machine's
	Err     error        // damage; nothing behind Group counts then
}

// DumpCheckpoint reads the newest checkpoint of a folder, without changing
// anything, and visits what is in it in the order of the file, damage included.
// It fails only if the folder cannot be listed; one that is not there is empty.
func DumpCheckpoint(fsys vfs.FS, dir string, visit func(CheckpointItem)) error {
	seqs, err := listCheckpoints(fsys, dir)
	if err != nil || len(seqs) == 0 {
		return err
	}
	seq := seqs[len(seqs)-1]
	name := path.Join(dir, checkpointName(seq))
	damage := func(offset int64, err error) { visit(CheckpointItem{File: name, Offset: offset, Err: err}) }
	b, err := vfs.ReadFile(fsys, name, maxCheckpointBytes)
	if err != nil {
		damage(0, err)
		return nil
	}
	rows, err := decodeTable(b, seq)
	if err != nil {
		damage(0, err)
	}
	second, err := decodeTable(lastTable(b), seq)
	if err != nil {
		damage(int64(len(b)), fmt.Errorf("second table: %w", err))
	}
	if rows == nil {
		rows = second
	}
	for _, r := range rows {
		s := r.section(b)
		visit(CheckpointItem{
			File: name, Offset: int64(r.at), Group: r.group, Replica: s.replica,
			Applied: record.Index(s.applied), Term: record.Term(s.term), State: s.state, Err: s.damaged,
		})
	}
	return nil
}
