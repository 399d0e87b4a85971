package ordering

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	tube "github.com/tube-mq/tube/client"
)

// NextConfig of ExactlyNext. Version must be set.
type NextConfig struct {
	Version VersionOf
	// First says which version of a key is due that is not known here, as the
	// application's own storage has it. nil: 1.
	First func(ctx context.Context, key string) (int64, error)
	// Hold is how many early messages wait at a time, each in a handler's place: choose
	// a Concurrency that is larger. Default 5. More of them are given back, uncounted.
	Hold int
	// HoldFor is how long one waits for those before it; then it fails and comes again
	// after Again. Default 10 s each. That counts, so that what never comes does not
	// make it come for ever.
	HoldFor, Again time.Duration
	Keys           int // that are remembered; default 10,000
}

// ExactlyNext lets the versions of a key be handled one after the other, without a gap;
// what was handled is confirmed.
func ExactlyNext(cfg NextConfig) tube.Middleware {
	def(&cfg.Hold, 5)
	def(&cfg.HoldFor, 10*time.Second)
	def(&cfg.Again, 10*time.Second)
	def(&cfg.Keys, 10_000)
	x := &exactly{cfg: cfg, seq: NewSequence[chan struct{}](cfg.Hold, cfg.Keys)}
	return func(next tube.Handler) tube.Handler {
		return func(ctx context.Context, m *tube.Message) error { return x.handle(ctx, m, next) }
	}
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

type exactly struct {
	cfg NextConfig
	mu  sync.Mutex
	seq *Sequence[chan struct{}] // closed when it is an item's turn
}

func (x *exactly) handle(ctx context.Context, m *tube.Message, next tube.Handler) error {
	key, version, err := x.cfg.Version(m)
	if err != nil {
		return err
	}
	if err := x.start(ctx, key); err != nil {
		return err
	}
	turn := make(chan struct{})
	x.mu.Lock()
	what := x.seq.Offer(key, version, turn)
	x.mu.Unlock()
	switch what {
	case Old:
		return nil
	case Full:
		return fmt.Errorf("version %d of %q is early: %w", version, key, tube.ReleaseAfter(x.cfg.Again))
	case Held:
		if err := x.wait(ctx, key, version, turn); err != nil {
			return err
		}
	}
	err = errors.New("the handler did not return")
	defer func() { x.end(key, version, err == nil) }()
	err = next(ctx, m)
	return err
}

// start asks which version of a key is due, if that is not known.
func (x *exactly) start(ctx context.Context, key string) error {
	x.mu.Lock()
	known := x.seq.Knows(key)
	x.mu.Unlock()
	if known || x.cfg.First == nil {
		return nil
	}
	first, err := x.cfg.First(ctx, key)
	if err != nil {
		return fmt.Errorf("which version of %q is due: %w", key, err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seq.Start(key, first)
	return nil
}

// wait waits for an early version's turn.
func (x *exactly) wait(ctx context.Context, key string, version int64, turn chan struct{}) error {
	t := time.NewTimer(x.cfg.HoldFor)
	defer t.Stop()
	err := fmt.Errorf("version %d of %q is early, and those before it did not come: %w", version, key, tube.RetryAfter(x.cfg.Again))
	select {
	case <-turn:
		return nil
	case <-t.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.seq.Withdraw(key, version) {
		return nil // its turn has come at the same time
	}
	return err
}

func (x *exactly) end(key string, version int64, done bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !done {
		x.seq.Failed(key, version)
	} else if turn, due := x.seq.Done(key, version); due {
		close(turn)
	}
}
