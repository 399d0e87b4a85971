package master

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/record"
)

func consumerRequest(member string, epoch int32) *group.ConsumerHeartbeatRequest {
	return &group.ConsumerHeartbeatRequest{Group: "g", MemberID: member, Epoch: epoch, Rebalance: time.Minute, Topics: []string{"t"}, OwnedSaid: true}
}

func tellTopics(g *Groups, partitions int) {
	g.SetTopics(group.NewTopics(1, []*group.Topic{{ID: record.TopicID{1}, Name: "t", Partitions: partitions}}))
}

func TestAConsumerIsAssignedAndExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newTestGroups(t)
		if r := g.ConsumerHeartbeat(t.Context(), consumerRequest("m", 0)); !errors.Is(r.Err, group.ErrLoading) {
			t.Fatalf("before topics are known: %+v", r)
		}
		tellTopics(g, 3)
		r := g.ConsumerHeartbeat(t.Context(), consumerRequest("", 0))
		if r.Err != nil || r.Epoch != 1 || len(r.Assignment) != 3 || r.MemberID == "" {
			t.Fatalf("join: %+v", r)
		}
		id := r.MemberID
		beat := &group.ConsumerHeartbeatRequest{Group: "g", MemberID: id, Epoch: 1}
		for range 10 {
			time.Sleep(40 * time.Second)
			if r := g.ConsumerHeartbeat(t.Context(), beat); r.Err != nil || r.HasAssignment {
				t.Fatalf("heartbeat: %+v", r)
			}
		}
		tellTopics(g, 4) // a topic grows: the shard proposes by itself
		synctest.Wait()
		if r := g.ConsumerHeartbeat(t.Context(), beat); r.Err != nil || r.Epoch != 2 || len(r.Assignment) != 4 {
			t.Fatalf("after the topic grew: %+v", r)
		}
		if d := g.Admin().DescribeConsumers(t.Context(), "g"); d.Err != nil || d.Phase != group.Stable || len(d.Members) != 1 {
			t.Fatalf("description: %+v", d)
		}
		time.Sleep(46 * time.Second)
		if r := g.ConsumerHeartbeat(t.Context(), beat); !errors.Is(r.Err, group.ErrUnknownMember) {
			t.Fatalf("after the session: %+v", r)
		}
	})
}

func TestAConsumersCallEndsWithItsContextOrTheLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, log := newTestGroups(t)
		tellTopics(g, 3)
		log.set(true, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r := g.ConsumerHeartbeat(ctx, consumerRequest("m", 0)); !errors.Is(r.Err, group.ErrLoading) {
			t.Fatalf("a call whose context ended: %+v", r)
		}
		done := make(chan *group.ConsumerHeartbeatResponse)
		go func() { done <- g.ConsumerHeartbeat(t.Context(), consumerRequest("m2", 0)) }()
		synctest.Wait()
		g.Shard(0).LoseLeadership()
		if r := <-done; !errors.Is(r.Err, group.ErrNotCoordinator) {
			t.Fatalf("after the leadership was lost: %+v", r)
		}
		if d := g.Admin().DescribeConsumers(t.Context(), "g"); !errors.Is(d.Err, group.ErrNotCoordinator) {
			t.Fatalf("description: %+v", d)
		}
		log.set(false, nil)
		g.Shard(0).BecomeLeader(2)
		if r := g.ConsumerHeartbeat(t.Context(), consumerRequest("m", 0)); r.Err != nil {
			t.Fatalf("with a new leadership: %+v", r)
		}
	})
}
