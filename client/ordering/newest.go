package ordering

import (
	"context"

	tube "github.com/tube-mq/tube/client"
)

// Newest knows the newest version of each key that was handled. It is not safe for use
// by several goroutines.
type Newest struct{ done *recent[int64] }

// NewNewest remembers up to keys keys; the least recently used are forgotten, and then
// any version of them is new.
func NewNewest(keys int) *Newest { return &Newest{newRecent[int64](keys)} }

// Accepts says whether a version is newer than what was handled of its key.
func (n *Newest) Accepts(key string, version int64) bool {
	newest, ok := n.done.get(key)
	return !ok || version > newest
}

// Done notes that a version was handled.
func (n *Newest) Done(key string, version int64) {
	if n.Accepts(key, version) {
		n.done.set(key, version)
	}
}

// NewestWins confirms without handling what is not newer than what was handled of its
// key. Messages of a key are handled one at a time. keys is how many are remembered.
func NewestWins(of VersionOf, keys int) tube.Middleware {
	newest := NewNewest(keys)
	locks := newKeyLocks()
	return func(next tube.Handler) tube.Handler {
		return func(ctx context.Context, m *tube.Message) error {
			key, version, err := of(m)
			if err != nil {
				return err
			}
			unlock, err := locks.lock(ctx, key)
			if err != nil {
				return err
			}
			defer unlock()
			locks.mu.Lock()
			accepted := newest.Accepts(key, version)
			locks.mu.Unlock()
			if !accepted {
				return nil
			}
			if err := next(ctx, m); err != nil {
				return err
			}
			locks.mu.Lock()
			defer locks.mu.Unlock()
			newest.Done(key, version)
			return nil
		}
	}
}
