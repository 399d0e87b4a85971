package master

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/record"
)

// GroupShard is the shell of one groups shard: the replicated machine, which its
// replica feeds, and the coordinator, which answers while the replica leads. It
// carries out what the coordinator says: answers, proposals, timers.
type GroupShard struct {
	cfg GroupsConfig

	// mu guards what follows. It is held for steps that neither wait nor do I/O.
	mu      sync.Mutex
	machine *group.Machine
	coord   *group.Coordinator
	// calls wait for a reply: one entry a call, so bounded by the requests under way.
	calls map[group.Token]chan any
	last  group.Token
	// armed is what the loop's timer is set to; zero: not set.
	armed    time.Time
	leads    bool
	proposer GroupProposer
	barrier  func(context.Context) error
	stopped  bool

	wake   chan struct{} // the loop must look at the deadline again
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // the loop and the proposals under way
}

func newGroupShard(cfg GroupsConfig) *GroupShard {
	m := group.NewMachine()
	s := &GroupShard{
		cfg: cfg, machine: m, coord: group.NewCoordinator(cfg.Group, m),
		calls: map[group.Token]chan any{}, wake: make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start gives the shard what it proposes with, before it leads for the first
// time, and starts its timer. barrier, if not nil, waits until the machine holds
// all that was committed when it was called: with several voters reads need it.
func (s *GroupShard) Start(p GroupProposer, barrier func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.proposer != nil {
		return
	}
	s.proposer, s.barrier = p, barrier
	s.wg.Go(s.loop)
}

// Stop answers all who wait with group.ErrNotCoordinator, and waits for what the
// shard has started. It may be called twice.
func (s *GroupShard) Stop() {
	s.mu.Lock()
	s.stopped, s.leads = true, false
	s.carryOut(s.coord.Resign())
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
}

// Apply is the replica's: one committed entry, in order. The result is a
// group.Result. An error that is group.ErrUnknownCommand must stop the replica.
func (s *GroupShard) Apply(index record.Index, data []byte) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.machine.Apply(index, data)
	if s.leads {
		s.carryOut(s.coord.Observe(s.cfg.Now(), r))
	}
	return r
}

// Snapshot and Restore are the machine's; Restore only while not leading.
func (s *GroupShard) Snapshot() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.Snapshot()
}

// Restore replaces the machine's state. Error: group.ErrSnapshot.
func (s *GroupShard) Restore(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.Restore(b)
}

// Digest is a hash of the machine's state.
func (s *GroupShard) Digest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.Digest()
}

// BecomeLeader is the replica's, once it has committed and applied an entry of
// its own term. Becoming it again in a later term begins anew.
func (s *GroupShard) BecomeLeader(record.Term) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.proposer == nil {
		return
	}
	s.carryOut(s.coord.Resign())
	s.leads = true
	s.carryOut(s.coord.Lead(s.cfg.Now()))
}

// LoseLeadership is the replica's: everybody who waits is sent elsewhere.
func (s *GroupShard) LoseLeadership() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leads = false
	s.carryOut(s.coord.Resign())
}

// Leads reports whether the shard's calls are answered here.
func (s *GroupShard) Leads() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leads
}

// fresh makes sure that a read which follows sees all that was committed.
func (s *GroupShard) fresh(ctx context.Context) error {
	s.mu.Lock()
	leads, barrier := s.leads, s.barrier
	s.mu.Unlock()
	switch {
	case !leads:
		return group.ErrNotCoordinator
	case barrier == nil:
		return nil
	}
	if err := barrier(ctx); err != nil {
		return group.ErrNotCoordinator
	}
	return nil
}

// certain makes sure of an answer that sends a member away: a coordinator that was
// deposed, and does not know it, knows nothing of who joined at its successor.
func (s *GroupShard) certain(ctx context.Context, err error) error {
	if errors.Is(err, group.ErrUnknownMember) || errors.Is(err, group.ErrIllegalGeneration) || errors.Is(err, group.ErrFencedEpoch) {
		if deposed := s.fresh(ctx); deposed != nil {
			return deposed
		}
	}
	return err
}

// carryOut does what the coordinator says. mu is held.
func (s *GroupShard) carryOut(e group.Effects) {
	for _, r := range e.Replies {
		if ch := s.calls[r.Token]; ch != nil {
			delete(s.calls, r.Token)
			ch <- r.Response // has room for it
		}
	}
	for _, p := range e.Proposals {
		s.wg.Go(func() { s.propose(p) })
	}
	if at, ok := s.coord.Deadline(); ok && (s.armed.IsZero() || at.Before(s.armed)) {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// propose commits one command and tells the coordinator what became of it.
func (s *GroupShard) propose(p group.Proposal) {
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.ProposeTimeout)
	defer cancel()
	result, err := s.proposer.Propose(ctx, p.Data)
	r, ok := result.(group.Result)
	if err != nil || !ok {
		r = group.Result{Err: group.ErrLoading}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.carryOut(s.coord.Applied(s.cfg.Now(), p.ID, r))
	}
}

// loop ticks the coordinator when its deadline comes.
func (s *GroupShard) loop() {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		s.mu.Lock()
		if s.leads {
			s.carryOut(s.coord.Tick(s.cfg.Now()))
		}
		at, ok := s.coord.Deadline()
		s.armed = at
		s.mu.Unlock()
		if ok {
			timer.Reset(at.Sub(s.cfg.Now()))
		} else {
			timer.Stop()
		}
	}
}

// step is one call of the coordinator's that is answered by token.
type step func(c *group.Coordinator, now time.Time, t group.Token) group.Effects

// wait runs the step and waits for its reply, or for ctx to end.
func (s *GroupShard) wait(ctx context.Context, name string, f step) (any, error) {
	ch := make(chan any, 1)
	s.mu.Lock()
	if !s.leads {
		s.mu.Unlock()
		return nil, group.ErrNotCoordinator
	}
	s.last++
	t := s.last
	s.calls[t] = ch
	s.carryOut(f(s.coord, s.cfg.Now(), t))
	s.mu.Unlock()
	select {
	case r := <-ch:
		return r, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, t)
	s.coord.Cancel(s.cfg.Now(), name, t)
	return nil, group.ErrLoading
}

// call is wait for a reply of type R.
func call[R any](ctx context.Context, s *GroupShard, name string, f step) (R, error) {
	var none R
	r, err := s.wait(ctx, name, f)
	if err != nil {
		return none, err
	}
	return r.(R), nil
}

// callErr is wait for a reply that is an error or nil.
func callErr(ctx context.Context, s *GroupShard, name string, f step) error {
	r, err := s.wait(ctx, name, f)
	if err != nil || r == nil {
		return err
	}
	return r.(error)
}
