package replica

import "errors"

var (
	// ErrNotLeader: this replica does not lead; the proposal is not in the log.
	ErrNotLeader = errors.New("replica: not the leader")
	// ErrUnknownOutcome: leadership was lost, or the node stops, while the
	// proposal was under way. It may or may not be committed.
	ErrUnknownOutcome = errors.New("replica: outcome of the proposal unknown")
	// ErrBusy: too much is uncommitted, or waits for a slow disk; nothing was proposed.
	ErrBusy = errors.New("replica: too many uncommitted proposals")
	// ErrStopped: the host is stopping or the group was removed; nothing was proposed.
	ErrStopped = errors.New("replica: stopped")
	// ErrNoMajority: a membership change was not begun, as it could not be ended.
	ErrNoMajority = errors.New("replica: no majority for a membership change")
	// ErrOverruled: the group's leader contradicts what this replica holds for committed.
	ErrOverruled = errors.New("replica: overruled by its leader: a majority has forgotten what this replica has")
	// ErrForgotten: this replica lacks what it once confirmed, although it was synced.
	ErrForgotten = errors.New("replica: it lacks entries that it had confirmed: its disk lost what was synced, or is an older copy")
	// ErrDamaged: the group's data on this node is damaged; see the log.
	ErrDamaged = errors.New("replica: data is damaged")
)
