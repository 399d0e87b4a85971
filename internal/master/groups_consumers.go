package master

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tube-mq/tube/internal/group"
)

// SetTopics brings the newest view of the topics to all shards. Until the first
// one there are no groups whose partitions the coordinator assigns.
func (g *Groups) SetTopics(topics *group.Topics) {
	for _, s := range g.shards {
		s.mu.Lock()
		if !s.stopped {
			s.carryOut(s.coord.SetTopics(s.cfg.Now(), topics))
		}
		s.mu.Unlock()
	}
}

// ConsumerHeartbeat is a member's sign of life in a group whose partitions the
// coordinator assigns. It waits for nothing but the commit of what it changes.
func (g *Groups) ConsumerHeartbeat(ctx context.Context, req *group.ConsumerHeartbeatRequest) *group.ConsumerHeartbeatResponse {
	s := g.of(req.Group)
	if r := s.beat(req); r != nil {
		return r
	}
	if req.MemberID == "" && req.Epoch == 0 {
		req.MemberID = uuid.NewString()
	}
	r, err := call[*group.ConsumerHeartbeatResponse](ctx, s, req.Group, func(c *group.Coordinator, now time.Time, t group.Token) group.Effects {
		return c.ConsumerHeartbeat(now, t, req)
	})
	if err != nil {
		return &group.ConsumerHeartbeatResponse{Err: err, MemberID: req.MemberID}
	}
	r.Err = s.certain(ctx, r.Err)
	return r
}

// ShareHeartbeat is a member's sign of life in a share group. It waits for nothing.
func (g *Groups) ShareHeartbeat(req *group.ShareHeartbeatRequest) *group.ShareHeartbeatResponse {
	s := g.of(req.Group)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.coord.ShareHeartbeat(s.cfg.Now(), req)
	s.carryOut(group.Effects{}) // its timer may be the first
	return r
}

// DescribeShare tells the members of a share group.
func (a GroupAdmin) DescribeShare(name string) *group.ShareDescription {
	s := a.g.of(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.coord.DescribeShare(name)
}

// beat answers a heartbeat that changes nothing; nil if it may.
func (s *GroupShard) beat(req *group.ConsumerHeartbeatRequest) *group.ConsumerHeartbeatResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.coord.Beat(s.cfg.Now(), req)
}

// DescribeConsumers tells the state and members of a group whose partitions the
// coordinator assigns.
func (a GroupAdmin) DescribeConsumers(ctx context.Context, name string) *group.ConsumerDescription {
	s := a.g.of(name)
	if err := s.fresh(ctx); err != nil {
		return &group.ConsumerDescription{Err: err, Group: name, Phase: group.Dead}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.coord.DescribeConsumers(name)
}
