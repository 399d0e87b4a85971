package ordering

import (
	"context"
	"sync"
)

// keyLocks is a lock for each key that is in use.
type keyLocks struct {
	mu   sync.Mutex // also of what its owner keeps beside it
	keys map[string]*keyLock
}

type keyLock struct {
	users int
	held  chan struct{} // holds a token while somebody has it
}

func newKeyLocks() *keyLocks { return &keyLocks{keys: map[string]*keyLock{}} }

// lock waits for the lock of a key or until ctx ends.
func (k *keyLocks) lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	l := k.keys[key]
	if l == nil {
		l = &keyLock{held: make(chan struct{}, 1)}
		k.keys[key] = l
	}
	l.users++
	k.mu.Unlock()
	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.keys, key)
		}
	}
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
