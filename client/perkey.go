package tube

import (
	"context"
	"sync"
)

// PerKey lets at most n handlers at a time have messages of the same key; others of the
// key wait, each in a handler's place. It limits, and promises no order: that is a
// group with OrderByKey. Messages without a key are not limited.
func PerKey(n int) Middleware {
	k := &keys{max: max(n, 1), slots: map[string]*slots{}}
	return func(next Handler) Handler {
		return func(ctx context.Context, m *Message) error {
			if m.Key == nil {
				return next(ctx, m)
			}
			leave, err := k.enter(ctx, string(m.Key))
			if err != nil {
				return err
			}
			defer leave()
			return next(ctx, m)
		}
	}
}

// keys are those that messages are handled of or wait.
type keys struct {
	mu    sync.Mutex
	max   int
	slots map[string]*slots
}

type slots struct {
	users int           // handlers that are in or wait; guarded by keys.mu
	taken chan struct{} // one token for each that is in
}

func (k *keys) enter(ctx context.Context, key string) (leave func(), err error) {
	k.mu.Lock()
	s := k.slots[key]
	if s == nil {
		s = &slots{taken: make(chan struct{}, k.max)}
		k.slots[key] = s
	}
	s.users++
	k.mu.Unlock()
	forget := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(k.slots, key)
		}
	}
	select {
	case s.taken <- struct{}{}:
		return func() { <-s.taken; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
}
