package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
	peerv1 "github.com/tube-mq/tube/proto/tube/peer/v1"
)

// metaProposer commits commands of the meta log from any node: here if this node
// leads it, else by way of the one that does. The result is read from this node's
// own machine, which applies the command as every other does; so whoever proposed
// finds the outcome in this node's image.
type metaProposer struct{ n *Node }

// retryLead is how long to wait for news of a leader before looking again.
const retryLead = 50 * time.Millisecond

// Propose implements master.Proposer.
func (p metaProposer) Propose(ctx context.Context, data []byte) (any, error) {
	for {
		index, err := p.commit(ctx, data)
		if err == nil {
			return p.n.meta.result(ctx, index)
		}
		if !errors.Is(err, replica.ErrNotLeader) && !errors.Is(err, replica.ErrBusy) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		case <-p.n.done:
			return nil, replica.ErrStopped
		case <-time.After(retryLead):
		}
	}
}

// CatchUp returns once this node's image holds all that was acknowledged, by
// whichever node, before the call.
func (p metaProposer) CatchUp(ctx context.Context) error {
	for {
		index, err := p.newest(ctx)
		if err == nil {
			return p.n.meta.reach(ctx, index)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		case <-p.n.done:
			return replica.ErrStopped
		case <-time.After(retryLead):
		}
	}
}

func (p metaProposer) newest(ctx context.Context) (record.Index, error) {
	g := p.n.host.Load().Group(metaGroup)
	if g == nil {
		return 0, replica.ErrNotLeader
	}
	if g.Status().Leading {
		err := g.Barrier(ctx)
		return p.n.meta.Image().Index, err
	}
	node := p.n.metaLeader()
	if node < 0 || node == p.n.id().Node {
		return 0, replica.ErrNotLeader
	}
	c, err := p.n.peerClient(node)
	if err != nil {
		return 0, replica.ErrNotLeader
	}
	// One that does not answer may not be the active master any more.
	ctx, cancel := context.WithTimeout(ctx, newestTimeout)
	defer cancel()
	r, err := c.Newest(ctx, connect.NewRequest(&peerv1.NewestRequest{}))
	if err != nil {
		return 0, asked(ctx, node, err)
	}
	return record.Index(r.Msg.GetIndex()), nil
}

const newestTimeout = time.Second

// commit returns where in the log the command stands.
func (p metaProposer) commit(ctx context.Context, data []byte) (record.Index, error) {
	g := p.n.host.Load().Group(metaGroup)
	if g == nil {
		return 0, replica.ErrNotLeader
	}
	if g.Status().Leading {
		r, err := g.ProposeWait(ctx, data)
		if err != nil {
			return 0, err
		}
		return r.(applied).index, nil
	}
	node := p.n.metaLeader()
	if node < 0 || node == p.n.id().Node {
		return 0, replica.ErrNotLeader
	}
	c, err := p.n.peerClient(node)
	if err != nil {
		return 0, replica.ErrNotLeader
	}
	r, err := c.Propose(ctx, connect.NewRequest(&peerv1.ProposeRequest{Command: data}))
	switch {
	case err == nil:
		return record.Index(r.Msg.GetIndex()), nil
	case connect.CodeOf(err) == connect.CodeFailedPrecondition || isRefused(err):
		return 0, replica.ErrNotLeader
	case connect.CodeOf(err) == connect.CodeResourceExhausted:
		return 0, replica.ErrBusy
	}
	return 0, fmt.Errorf("%w: %w", replica.ErrUnknownOutcome, asked(ctx, node, err))
}

// asked says what became of a call to another node. Its code is not ours: what a door made
// of that would be about another call than the caller's.
func asked(ctx context.Context, node record.NodeID, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("asking node %d: %w", node, ctx.Err())
	}
	return fmt.Errorf("asking node %d: %s", node, said(err))
}

// applied is what the meta machine answers to who proposed.
type applied struct {
	index  record.Index
	result meta.Result
}

// outcomes remembers results of the last commands, by index, for those who
// proposed them from this node.
type outcomes struct {
	mu      sync.Mutex
	last    record.Index
	results map[record.Index]meta.Result
	newer   chan struct{} // closed and replaced when last moves
}

// keptOutcomes is how many results are remembered: a proposer hears of its index
// a round trip after the command was committed.
const keptOutcomes = 4096

func newOutcomes() *outcomes {
	return &outcomes{results: map[record.Index]meta.Result{}, newer: make(chan struct{})}
}

func (o *outcomes) add(index record.Index, r meta.Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.results[index] = r
	delete(o.results, index-keptOutcomes)
	o.last = index
	close(o.newer)
	o.newer = make(chan struct{})
}

// skipTo says that everything up to an index came as a whole: single results are
// not known.
func (o *outcomes) skipTo(index record.Index) {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.results)
	o.last = max(o.last, index)
	close(o.newer)
	o.newer = make(chan struct{})
}

// wait returns the result at an index once this node has applied it.
func (o *outcomes) wait(ctx context.Context, index record.Index) (meta.Result, error) {
	for {
		o.mu.Lock()
		r, ok := o.results[index]
		passed, newer := o.last >= index, o.newer
		o.mu.Unlock()
		switch {
		case ok:
			return r, nil
		case passed:
			return meta.Result{}, replica.ErrUnknownOutcome
		}
		select {
		case <-newer:
		case <-ctx.Done():
			return meta.Result{}, replica.ErrUnknownOutcome
		}
	}
}
