package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/tube-mq/tube/internal/vfs"
	"github.com/tube-mq/tube/internal/wal"
)

// The file boot says which run of the machine the folder was last used in: one line,
// boot=<id>, or clean=<id> once it was closed with everything on the disk. What a process
// wrote and did not sync survives its end, but not the machine's.
const bootFile = "boot"

// maxBootBytes is more than the file ever has.
const maxBootBytes = 4096

// lostPower reports whether what was written last and not synced may be gone: the
// machine has been started anew since, or it cannot be told, and nobody closed the folder.
func lostPower(content, boot string) bool {
	line := strings.TrimSuffix(content, "\n")
	if strings.HasPrefix(line, "clean=") {
		return false
	}
	id, ok := strings.CutPrefix(line, "boot=")
	return !ok || id == "" || id != boot
}

// readBoot finds out whether there may be lapses. A file that is not there, or makes no
// sense, tells nothing.
func (h *Host) readBoot() error {
	b, err := vfs.ReadFile(h.cfg.FS, path.Join(h.cfg.Dir, bootFile), maxBootBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replica: %w", err)
	}
	h.boot = string(b)
	h.lostPower = lostPower(h.boot, h.cfg.Boot)
	return nil
}

func (h *Host) writeBoot(key string) error {
	line := fmt.Sprintf("%s=%s\n", key, h.cfg.Boot)
	if line == h.boot {
		return nil
	}
	if err := vfs.ReplaceFile(h.cfg.FS, h.cfg.Dir, bootFile, []byte(line)); err != nil {
		return fmt.Errorf("replica: %w", err)
	}
	h.boot = line
	return nil
}

// admitLapses gives every group that may have lost something a lapse, durably, before
// the folder says that it is used in this run of the machine: a second start must not
// take what the first has found for whole.
func (h *Host) admitLapses() error {
	h.life = h.wal.Position().File
	if h.lostPower {
		var recs []wal.Record
		for _, id := range slices.Sorted(maps.Keys(h.recovered)) {
			if r := h.recovered[id]; r.relaxed && r.damage == nil {
				r.until = r.hardState().GetTerm()
				r.flagged = true
				recs = append(recs, lapseRecord(id, true, r.lapse()))
			}
		}
		if len(recs) > 0 {
			h.cfg.Logger.Warn("the machine stopped uncleanly: replicas of relaxed topics may lack what was written last, and do not vote until they have it", "groups", len(recs))
		}
		if err := h.writeWait(wal.Batch{Records: recs, Sync: true}); err != nil {
			return err
		}
	}
	return h.writeBoot("boot")
}

// writeWait has a batch written, and returns once it is.
func (h *Host) writeWait(b wal.Batch) error {
	done := make(chan error, 1)
	b.Done = func(_ []wal.Position, err error) { done <- err }
	h.writer.Submit(b)
	if !h.single.drain() {
		return wal.ErrFull // it is queued
	}
	return <-done
}
