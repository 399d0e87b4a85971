package master

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/record"
)

// GroupProposer commits commands of one groups shard.
type GroupProposer interface {
	// Propose returns what the shard's Apply returned for data once it is
	// committed and applied here. An error means that the outcome is not known,
	// or that this node does not lead.
	Propose(ctx context.Context, data []byte) (any, error)
}

// GroupsConfig says how the groups of this node are run.
type GroupsConfig struct {
	Group  group.Config // limits, per shard
	Shards int          // how many there are; never changed in a cluster's life
	// Leader tells who leads a shard as far as this node knows; ok is false if
	// nobody is known to.
	Leader func(shard int) (node record.NodeID, ok bool)
	// Now is the clock; nil: time.Now. It should be monotonic: sessions and
	// retention are measured by it.
	Now func() time.Time
	// ProposeTimeout is how long to wait for a proposal's outcome. Default 30 s.
	ProposeTimeout time.Duration
}

// Groups coordinates the stream groups of the shards that this node leads. Every shard is there from the start, as each is a
// replica that must be fed; its calls are answered while it leads.
type Groups struct {
	cfg    GroupsConfig
	shards []*GroupShard
}

// NewGroups returns the shards, not led yet. The node gives each its proposer
// (GroupShard.Start) once its replica runs.
func NewGroups(cfg GroupsConfig) (*Groups, error) {
	if cfg.Shards < 1 || cfg.Leader == nil {
		return nil, fmt.Errorf("groups: %d shards, leader lookup set: %t; want both", cfg.Shards, cfg.Leader != nil)
	}
	if err := cfg.Group.Validate(); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.ProposeTimeout <= 0 {
		cfg.ProposeTimeout = 30 * time.Second
	}
	g := &Groups{cfg: cfg}
	for range cfg.Shards {
		g.shards = append(g.shards, newGroupShard(cfg))
	}
	return g, nil
}

// Shard returns shard i, for the replica that feeds it.
func (g *Groups) Shard(i int) *GroupShard { return g.shards[i] }

// Stop stops all shards and waits for them. It may be called twice.
func (g *Groups) Stop() {
	for _, s := range g.shards {
		s.Stop()
	}
}

func (g *Groups) of(name string) *GroupShard {
	return g.shards[group.ShardOf(name, len(g.shards))]
}

// Coordinator tells which node coordinates the group.
func (g *Groups) Coordinator(name string) (record.NodeID, error) {
	node, ok := g.cfg.Leader(group.ShardOf(name, len(g.shards)))
	if !ok {
		return -1, group.ErrNotCoordinator
	}
	return node, nil
}

// Join waits for the group's next generation, until ctx ends.
func (g *Groups) Join(ctx context.Context, req *group.JoinRequest) *group.JoinResponse {
	req.FreshID = freshMemberID(req)
	r, err := call[*group.JoinResponse](ctx, g.of(req.Group), req.Group, func(c *group.Coordinator, now time.Time, t group.Token) group.Effects {
		return c.Join(now, t, req)
	})
	if err != nil {
		return &group.JoinResponse{Err: err, Generation: -1, MemberID: req.MemberID}
	}
	r.Err = g.of(req.Group).certain(ctx, r.Err)
	return r
}

// freshMemberID makes an id that says who it is, as Kafka's do.
func freshMemberID(req *group.JoinRequest) string {
	name := req.Instance
	if name == "" {
		name = req.ClientID
	}
	return name[:min(len(name), 255)] + "-" + uuid.NewString()
}

// Sync waits for the member's assignment, until ctx ends.
func (g *Groups) Sync(ctx context.Context, req *group.SyncRequest) *group.SyncResponse {
	r, err := call[*group.SyncResponse](ctx, g.of(req.Group), req.Group, func(c *group.Coordinator, now time.Time, t group.Token) group.Effects {
		return c.Sync(now, t, req)
	})
	if err != nil {
		return &group.SyncResponse{Err: err}
	}
	r.Err = g.of(req.Group).certain(ctx, r.Err)
	return r
}

// Heartbeat is a member's sign of life. It waits only before it sends a member away.
func (g *Groups) Heartbeat(ctx context.Context, req *group.HeartbeatRequest) error {
	s := g.of(req.Group)
	s.mu.Lock()
	err := s.coord.Heartbeat(s.cfg.Now(), req)
	s.mu.Unlock()
	return s.certain(ctx, err)
}

// Leave takes members out of a group.
func (g *Groups) Leave(ctx context.Context, req *group.LeaveRequest) *group.LeaveResponse {
	r, err := call[*group.LeaveResponse](ctx, g.of(req.Group), req.Group, func(c *group.Coordinator, now time.Time, t group.Token) group.Effects {
		return c.Leave(now, t, req)
	})
	if err != nil {
		return &group.LeaveResponse{Err: err}
	}
	for _, one := range r.Errs {
		if err := g.of(req.Group).certain(ctx, one); err != one {
			return &group.LeaveResponse{Err: err} // one question is enough
		}
	}
	return r
}

// Offsets returns the part that keeps committed positions.
func (g *Groups) Offsets() GroupOffsets { return GroupOffsets{g} }

// Admin returns the part that looks at groups and deletes them.
func (g *Groups) Admin() GroupAdmin { return GroupAdmin{g} }

// GroupOffsets are the groups' committed positions.
type GroupOffsets struct{ g *Groups }

// Commit stores positions; it returns once they are committed.
func (o GroupOffsets) Commit(ctx context.Context, req *group.CommitRequest) *group.CommitResponse {
	r, err := call[*group.CommitResponse](ctx, o.g.of(req.Group), req.Group, func(c *group.Coordinator, now time.Time, t group.Token) group.Effects {
		return c.CommitOffsets(now, t, req)
	})
	if err != nil {
		return &group.CommitResponse{Err: err}
	}
	r.Err = o.g.of(req.Group).certain(ctx, r.Err)
	return r
}

// Fetch returns positions.
func (o GroupOffsets) Fetch(ctx context.Context, req *group.FetchOffsetsRequest) *group.FetchOffsetsResponse {
	s := o.g.of(req.Group)
	if err := s.fresh(ctx); err != nil {
		return &group.FetchOffsetsResponse{Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.coord.FetchOffsets(req)
}

// Delete forgets positions of topics that no member reads.
func (o GroupOffsets) Delete(ctx context.Context, req *group.DeleteOffsetsRequest) *group.DeleteOffsetsResponse {
	r, err := call[*group.DeleteOffsetsResponse](ctx, o.g.of(req.Group), req.Group, func(c *group.Coordinator, now time.Time, t group.Token) group.Effects {
		return c.DeleteOffsets(now, t, req)
	})
	if err != nil {
		return &group.DeleteOffsetsResponse{Err: err}
	}
	return r
}

// GroupAdmin looks at groups and deletes them.
type GroupAdmin struct{ g *Groups }

// Describe tells a group's state and members.
func (a GroupAdmin) Describe(ctx context.Context, name string) *group.Description {
	s := a.g.of(name)
	if err := s.fresh(ctx); err != nil {
		return &group.Description{Err: err, Group: name, Phase: group.Dead}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.coord.Describe(name)
}

// List names the groups of the shards that this node leads, by name.
func (a GroupAdmin) List() []group.Listing {
	var all []group.Listing
	for _, s := range a.g.shards {
		s.mu.Lock()
		all = append(all, s.coord.List()...)
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(x, y group.Listing) int { return strings.Compare(x.Group, y.Group) })
	return all
}

// Delete removes a group without members, and its positions.
func (a GroupAdmin) Delete(ctx context.Context, name string) error {
	return callErr(ctx, a.g.of(name), name, func(c *group.Coordinator, now time.Time, t group.Token) group.Effects {
		return c.DeleteGroup(now, t, name)
	})
}

// TopicsDeleted forgets the offsets of topics that metadata says were deleted, in
// the shards that this node leads. What is missed by a crash just expires.
func (g *Groups) TopicsDeleted(ctx context.Context, topics []record.TopicID) error {
	for i, s := range g.shards {
		if !s.Leads() {
			continue
		}
		err := callErr(ctx, s, "", func(c *group.Coordinator, now time.Time, t group.Token) group.Effects {
			return c.ForgetTopics(now, t, topics)
		})
		if err != nil {
			return fmt.Errorf("groups shard %d: forgetting %d deleted topics: %w", i, len(topics), err)
		}
	}
	return nil
}
