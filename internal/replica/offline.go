package replica

import (
	"errors"
	"fmt"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/wal"
)

// ErrNoReplica: the folder has no whole replica of a group to go on from.
var ErrNoReplica = errors.New("replica: nothing whole to go on from")

// ForceOffline is Group.ForceSole for a folder that no node runs on: from its next start
// on this replica is the only voter of all the given groups, or, after an error, of none or
// all of them. It may be repeated as long as the node has not been started since.
// Errors: ErrNoReplica; of the disk.
func ForceOffline(cfg Config, replica record.ReplicaID, groups []record.Group) error {
	var failed error
	cfg.OnFail = func(err error) { failed = err }
	h, err := newHost(cfg)
	if err != nil {
		return err
	}
	defer h.stop()
	h.writer = wal.NewWriter(h.wal)
	recs, err := h.soleRecords(replica, groups)
	if err == nil {
		// One batch: a start reads all of it or none.
		err = h.writeWait(wal.Batch{Records: recs, Sync: true})
	}
	return errors.Join(err, failed, h.writer.Close())
}

func (h *Host) soleRecords(replica record.ReplicaID, groups []record.Group) ([]wal.Record, error) {
	var out []wal.Record
	for _, id := range groups {
		r := h.recovered[id]
		switch {
		case r == nil:
			return nil, fmt.Errorf("%w: group %d is not there", ErrNoReplica, id)
		case r.damage != nil:
			return nil, fmt.Errorf("%w: group %d: %w", ErrNoReplica, id, r.damage)
		case r.section != nil && r.section.replica != replica:
			return nil, fmt.Errorf("%w: of group %d this is replica %d, not %d", ErrNoReplica, id, r.section.replica, replica)
		}
		rec, err := soleRecord(id, replica, r.base(), r.hardState().GetTerm())
		if err != nil {
			return nil, fmt.Errorf("group %d: %w", id, err)
		}
		out = append(out, rec)
	}
	return out, nil
}
