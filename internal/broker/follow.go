package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// A replica that does not lead may serve readers too (KIP-392). Its log holds
// committed batches only, so nothing that it has can vanish; but it hears of a
// commit later than the leader's clients do, and a client that has seen an end of
// the partition must never be told a lower one. So it asks first: the leader says
// where the partition ends, and the replica serves once it has all of that. The
// question does not go through raft, takes nothing but a look, and wakes no group
// that is quiet.
//
// Nobody confirms the leader, and nobody has to: it is asked for a term. Whoever
// has seen a later leader's end names that leader's epoch, and is refused by all
// who do not know it yet. A client that names no epoch is told what the leader
// itself would tell it.

// Asker carries questions to other nodes.
type Asker interface {
	// AskEnd asks a node for the bounds of a partition that it leads in a term.
	// done is called at most once, from any goroutine: ok is false if the node does
	// not lead in that term, or cannot be asked. cancel says that nobody waits any
	// more; whoever asks calls it in the end, as answers may be lost.
	AskEnd(node record.NodeID, group record.Group, term record.Term, done func(b Bounds, ok bool)) (cancel func())
}

// catchUp is one reader who waits until this replica is as new as its leader was.
type catchUp struct {
	term record.Term // that was asked about
	// told: need is what the leader has said.
	told bool
	need Bounds
	done func(error)
}

// follows returns an error unless this replica may serve as one that follows: it
// knows of a leader, of the epoch that the client believes in.
func (p *Partition) follows(clientEpoch record.Epoch) (replica.Status, error) {
	s := p.group.Status()
	if p.damage.Load() != nil || p.group.Err() != nil || s.Leader == 0 || s.Leader == p.replica {
		return s, ErrNotLeader
	}
	return s, checkEpoch(clientEpoch, s.Term)
}

func checkEpoch(clientEpoch record.Epoch, term record.Term) error {
	switch own := record.Epoch(term); {
	case clientEpoch < 0 || clientEpoch == own:
		return nil
	case clientEpoch < own:
		return ErrFencedEpoch
	}
	return ErrUnknownEpoch
}

// CatchUp calls done, once and from any goroutine, when this replica, which does
// not lead, has all that its leader's clients could have seen when it was called:
// then Read with CaughtUp serves. done must not block, but may call the partition.
// stop says that nobody waits any more; call it in the end, as there may never be an
// answer. What is under way already may still come after it.
// Errors: ErrNotLeader (no leader is known, it is gone, or this node may not follow
// it), ErrFencedEpoch, ErrUnknownEpoch.
func (p *Partition) CatchUp(clientEpoch record.Epoch, done func(error)) (stop func()) {
	s, err := p.follows(clientEpoch)
	node, known := (*p.peers.Load())[s.Leader]
	if err == nil && (!known || p.broker.cfg.Asker == nil) {
		err = ErrNotLeader
	}
	if err != nil {
		done(err)
		return func() {}
	}
	c := &catchUp{term: s.Term, done: done}
	p.mu.Lock()
	if p.catching == nil {
		p.catching = map[*catchUp]struct{}{}
	}
	p.catching[c] = struct{}{}
	p.mu.Unlock()
	cancel := p.broker.cfg.Asker.AskEnd(node, p.groupID, s.Term, func(b Bounds, ok bool) { p.toldEnd(c, b, ok) })
	return func() {
		cancel()
		p.mu.Lock()
		delete(p.catching, c)
		p.mu.Unlock()
	}
}

// toldEnd takes the leader's answer.
func (p *Partition) toldEnd(c *catchUp, b Bounds, ok bool) {
	p.mu.Lock()
	var err error
	_, answered := p.catching[c]
	switch {
	case !answered: // nobody waits
	case !ok:
		delete(p.catching, c)
		err = ErrNotLeader
	default:
		c.told, c.need = true, b
		answered, err = p.caughtUpLocked(c)
	}
	p.mu.Unlock()
	if answered {
		c.done(err)
	}
}

// caughtUpLocked says whether there is an answer for a reader, who waits no more then:
// call its done without p.mu, which is held here.
func (p *Partition) caughtUpLocked(c *catchUp) (answered bool, err error) {
	s, err := p.follows(-1)
	switch {
	case s.Leading && s.Term >= c.term:
		err = nil // it has all that was committed before
	case err != nil || !c.told && s.Term != c.term:
		err = ErrNotLeader
	case !c.told || !p.machine.bounds.Load().reach(c.need):
		return false, nil
	}
	delete(p.catching, c)
	return true, err
}

// reach reports whether nothing in b is behind what is in o.
func (b *Bounds) reach(o Bounds) bool {
	return b.HighWatermark >= o.HighWatermark && b.LastStable >= o.LastStable && b.LogStart >= o.LogStart
}

// EndIn tells the bounds of a partition that this node leads in a term; false if
// it does not.
func (b *Broker) EndIn(group record.Group, term record.Term) (Bounds, bool) {
	p := b.byGroup(group)
	if p == nil || p.serving(record.Epoch(term)) != nil {
		return Bounds{}, false
	}
	return *p.machine.bounds.Load(), true
}

const (
	// maxLagEntries is how far a follower may be behind, in Raft entries, when
	// readers are sent to it: it is likely to catch up while they wait.
	maxLagEntries = 256
	// followersAge is how old what is known of the followers may be.
	followersAge = time.Second
	// followersWait bounds the wait for it when nothing is known.
	followersWait = 100 * time.Millisecond
)

// followers is what a leader knew of its followers at a time.
type followers struct {
	at    time.Duration // by broker.running
	term  record.Term
	nodes []record.NodeID
}

// Followers are the other nodes whose replicas vote, keep up and were heard of
// lately, as of a second ago; none if this replica does not lead.
func (p *Partition) Followers() []record.NodeID {
	s := p.group.Status()
	if !s.Leading || p.group.Alone() {
		return nil
	}
	f := p.followers.Load()
	if f == nil || f.term != s.Term {
		ctx, cancel := context.WithTimeout(context.Background(), followersWait)
		defer cancel()
		m, err := p.group.Membership(ctx)
		if err != nil {
			return nil
		}
		f = p.followersOf(m, s.Term)
		p.followers.Store(f)
	} else if p.broker.running()-f.at > followersAge && p.looking.CompareAndSwap(false, true) {
		p.group.MembershipThen(func(m replica.Membership, err error) {
			if err == nil {
				p.followers.Store(p.followersOf(m, s.Term))
			}
			p.looking.Store(false)
		})
	}
	return slices.DeleteFunc(slices.Clone(f.nodes), func(n record.NodeID) bool { return !p.broker.cfg.Host.Alive(n) })
}

func (p *Partition) followersOf(m replica.Membership, term record.Term) *followers {
	f := &followers{at: p.broker.running(), term: term}
	peers := *p.peers.Load()
	for _, r := range m.Members {
		if node, known := peers[r.Replica]; known && r.Voter && r.Replica != p.replica && r.Current && r.Match+maxLagEntries >= m.Last {
			f.nodes = append(f.nodes, node)
		}
	}
	return f
}

// readFollowing is Read of a replica that does not lead.
func (p *Partition) readFollowing(req ReadRequest) (ReadResult, error) {
	if _, err := p.follows(req.LeaderEpoch); err != nil {
		return ReadResult{}, err
	}
	r, err := p.read(req)
	r.Followed = true
	if errors.Is(err, ErrStorage) {
		err = fmt.Errorf("%w: %v", ErrNotLeader, err) // others have it whole
	}
	return r, err
}
