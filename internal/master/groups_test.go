package master

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/record"
)

// instantLog commits what is proposed at once, to one shard, unless it is told
// to hang or to fail.
type instantLog struct {
	mu    sync.Mutex
	shard *GroupShard
	index record.Index
	hang  bool
	fail  error
}

func (l *instantLog) Propose(ctx context.Context, data []byte) (any, error) {
	l.mu.Lock()
	hang, fail := l.hang, l.fail
	l.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if fail != nil {
		return nil, fail
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index++
	return l.shard.Apply(l.index, data), nil
}

func (l *instantLog) set(hang bool, fail error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hang, l.fail = hang, fail
}

// newTestGroups returns one shard that leads.
func newTestGroups(t *testing.T) (*Groups, *instantLog) {
	t.Helper()
	cfg := group.DefaultConfig()
	cfg.InitialDelay = 0
	g, err := NewGroups(GroupsConfig{
		Group: cfg, Shards: 1,
		Leader: func(int) (record.NodeID, bool) { return 7, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	log := &instantLog{shard: g.Shard(0)}
	g.Shard(0).Start(log, nil)
	g.Shard(0).BecomeLeader(1)
	t.Cleanup(g.Stop)
	return g, log
}

func joinRequest(name string) *group.JoinRequest {
	return &group.JoinRequest{
		Group: name, ClientID: "c", Session: 30 * time.Second, Rebalance: time.Minute,
		ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "range", Metadata: []byte{0}}},
	}
}

func commitRequest(name string, m *group.JoinResponse, offset record.Offset) *group.CommitRequest {
	req := &group.CommitRequest{Group: name, Generation: -1, Topics: []group.CommitTopic{
		{Topic: record.TopicID{1}, Name: "t", Partitions: []group.CommitPartition{{Offset: offset, LeaderEpoch: -1}}},
	}}
	if m != nil {
		req.Generation, req.MemberID = m.Generation, m.MemberID
	}
	return req
}

func offsetOf(t *testing.T, g *Groups, name string) record.Offset {
	t.Helper()
	r := g.Offsets().Fetch(t.Context(), &group.FetchOffsetsRequest{Group: name})
	if r.Err != nil || len(r.Topics) == 0 {
		t.Fatalf("offsets of %s: %+v", name, r)
	}
	return r.Topics[0].Partitions[0].Offset.Offset
}

func TestAMemberJoinsSyncsCommitsAndExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newTestGroups(t)
		ctx := t.Context()
		j := g.Join(ctx, joinRequest("g"))
		if j.Err != nil || j.Generation != 1 || j.Leader != j.MemberID {
			t.Fatalf("join: %+v", j)
		}
		s := g.Sync(ctx, &group.SyncRequest{Group: "g", Generation: 1, MemberID: j.MemberID, Assignments: map[string][]byte{j.MemberID: {9}}})
		if s.Err != nil || len(s.Assignment) != 1 {
			t.Fatalf("sync: %+v", s)
		}
		if r := g.Offsets().Commit(ctx, commitRequest("g", j, 5)); r.Err != nil {
			t.Fatal(r.Err)
		}
		if o := offsetOf(t, g, "g"); o != 5 {
			t.Fatalf("offset %d, want 5", o)
		}
		beat := &group.HeartbeatRequest{Group: "g", Generation: 1, MemberID: j.MemberID}
		for range 10 {
			time.Sleep(20 * time.Second)
			if err := g.Heartbeat(t.Context(), beat); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(31 * time.Second)
		if err := g.Heartbeat(t.Context(), beat); !errors.Is(err, group.ErrUnknownMember) {
			t.Fatalf("after the session: %v", err)
		}
		if d := g.Admin().Describe(ctx, "g"); d.Phase != group.Empty {
			t.Fatalf("described: %+v", d)
		}
		if err := g.Admin().Delete(ctx, "g"); err != nil || len(g.Admin().List()) != 0 {
			t.Fatalf("delete: %v, left: %v", err, g.Admin().List())
		}
	})
}

func TestLosingLeadershipAnswersWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, log := newTestGroups(t)
		ctx := t.Context()
		if j := g.Join(ctx, joinRequest("g")); j.Err != nil {
			t.Fatal(j.Err)
		}
		log.set(true, nil)
		answers := make(chan error, 2)
		go func() { answers <- g.Join(ctx, joinRequest("g")).Err }()
		go func() { answers <- g.Offsets().Commit(ctx, commitRequest("simple", nil, 1)).Err }()
		synctest.Wait()
		g.Shard(0).LoseLeadership()
		for range 2 {
			if err := <-answers; !errors.Is(err, group.ErrNotCoordinator) {
				t.Fatalf("answered %v", err)
			}
		}
		if err := g.Offsets().Commit(ctx, commitRequest("g", nil, 1)).Err; !errors.Is(err, group.ErrNotCoordinator) {
			t.Fatalf("commit without leadership: %v", err)
		}
		if r := g.Offsets().Fetch(ctx, &group.FetchOffsetsRequest{Group: "g"}); !errors.Is(r.Err, group.ErrNotCoordinator) {
			t.Fatalf("fetch without leadership: %v", r.Err)
		}
	})
}

func TestAnUnknownOutcomeIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, log := newTestGroups(t)
		for _, c := range []struct {
			hang bool
			fail error
		}{{hang: true}, {fail: errors.New("no quorum")}} {
			log.set(c.hang, c.fail)
			if err := g.Offsets().Commit(t.Context(), commitRequest("g", nil, 1)).Err; !errors.Is(err, group.ErrLoading) {
				t.Fatalf("commit: %v", err)
			}
			if j := g.Join(t.Context(), joinRequest("h")); !errors.Is(j.Err, group.ErrLoading) {
				t.Fatalf("join: %v", j.Err)
			}
		}
		log.set(false, nil)
		if j := g.Join(t.Context(), joinRequest("h")); j.Err != nil {
			t.Fatalf("join afterwards: %v", j.Err)
		}
	})
}

func TestACallThatEndsEarlyIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newTestGroups(t)
		if j := g.Join(t.Context(), joinRequest("g")); j.Err != nil {
			t.Fatal(j.Err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if j := g.Join(ctx, joinRequest("g")); j.Err == nil {
			t.Fatal("joined without the other member")
		}
		s := g.Shard(0)
		s.mu.Lock()
		left := len(s.calls)
		s.mu.Unlock()
		if left != 0 {
			t.Fatalf("%d calls left", left)
		}
	})
}

func TestStopAnswersAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, log := newTestGroups(t)
		log.set(true, nil)
		answer := make(chan error, 1)
		go func() { answer <- g.Offsets().Commit(t.Context(), commitRequest("g", nil, 1)).Err }()
		synctest.Wait()
		g.Stop()
		g.Stop()
		if err := <-answer; !errors.Is(err, group.ErrNotCoordinator) {
			t.Fatalf("answered %v", err)
		}
		if j := g.Join(t.Context(), joinRequest("g")); !errors.Is(j.Err, group.ErrNotCoordinator) {
			t.Fatalf("join after stop: %v", j.Err)
		}
	})
}

func TestAReadWaitsForTheBarrier(t *testing.T) {
	g, err := NewGroups(GroupsConfig{Group: group.DefaultConfig(), Shards: 1, Leader: func(int) (record.NodeID, bool) { return 0, false }})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()
	g.Shard(0).Start(&instantLog{shard: g.Shard(0)}, func(context.Context) error { return errors.New("deposed") })
	g.Shard(0).BecomeLeader(1)
	if r := g.Offsets().Fetch(t.Context(), &group.FetchOffsetsRequest{Group: "g"}); !errors.Is(r.Err, group.ErrNotCoordinator) {
		t.Fatalf("a deposed leader answered %+v", r)
	}
	if _, err := g.Coordinator("g"); !errors.Is(err, group.ErrNotCoordinator) {
		t.Fatalf("coordinator: %v", err)
	}
}

func TestDeletedTopicsAreForgotten(t *testing.T) {
	g, _ := newTestGroups(t)
	if r := g.Offsets().Commit(t.Context(), commitRequest("g", nil, 1)); r.Err != nil {
		t.Fatal(r.Err)
	}
	if err := g.TopicsDeleted(t.Context(), []record.TopicID{{1}}); err != nil {
		t.Fatal(err)
	}
	if r := g.Offsets().Fetch(t.Context(), &group.FetchOffsetsRequest{Group: "g"}); r.Err != nil || len(r.Topics) != 0 {
		t.Fatalf("left: %+v", r)
	}
}

func TestAShardSurvivesItsSnapshot(t *testing.T) {
	g, _ := newTestGroups(t)
	if r := g.Offsets().Commit(t.Context(), commitRequest("g", nil, 42)); r.Err != nil {
		t.Fatal(r.Err)
	}
	h, _ := newTestGroups(t)
	h.Shard(0).LoseLeadership()
	if err := h.Shard(0).Restore(g.Shard(0).Snapshot()); err != nil {
		t.Fatal(err)
	}
	h.Shard(0).BecomeLeader(2)
	if h.Shard(0).Digest() != g.Shard(0).Digest() || offsetOf(t, h, "g") != 42 {
		t.Fatal("the copy differs")
	}
}

// A coordinator that was deposed, and does not know it, sends nobody away: a member of
// its successor's would join again for nothing.
func TestADeposedCoordinatorSendsNobodyAway(t *testing.T) {
	for name, c := range map[string]struct {
		barrier error
		want    error
	}{
		"deposed": {errors.New("deposed"), group.ErrNotCoordinator},
		"leading": {nil, group.ErrUnknownMember},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := NewGroups(GroupsConfig{Group: group.DefaultConfig(), Shards: 1, Leader: func(int) (record.NodeID, bool) { return 1, true }})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Stop()
			g.SetTopics(&group.Topics{})
			g.Shard(0).Start(&instantLog{shard: g.Shard(0)}, func(context.Context) error { return c.barrier })
			g.Shard(0).BecomeLeader(1)
			ctx, commit, join := t.Context(), commitRequest("g", nil, 1), joinRequest("g")
			commit.Generation, commit.MemberID, join.MemberID = 1, "m", "m"
			want := map[string]error{"heartbeat": c.want, "consumer heartbeat": c.want, "join": c.want, "sync": c.want, "commit": c.want, "leave": c.want}
			if c.barrier == nil {
				want["commit"] = group.ErrIllegalGeneration // of a group that is not there
			}
			leave := g.Leave(ctx, &group.LeaveRequest{Group: "g", Members: []group.LeaveMember{{ID: "m"}}})
			for call, err := range map[string]error{
				"heartbeat":          g.Heartbeat(ctx, &group.HeartbeatRequest{Group: "g", MemberID: "m", Generation: 1}),
				"consumer heartbeat": g.ConsumerHeartbeat(ctx, &group.ConsumerHeartbeatRequest{Group: "g", MemberID: "m", Epoch: 3}).Err,
				"join":               g.Join(ctx, join).Err,
				"sync":               g.Sync(ctx, &group.SyncRequest{Group: "g", MemberID: "m", Generation: 1}).Err,
				"commit":             g.Offsets().Commit(ctx, commit).Err,
				"leave":              errors.Join(append(leave.Errs, leave.Err)...),
			} {
				if !errors.Is(err, want[call]) {
					t.Errorf("%s: %v, want %v", call, err, want[call])
				}
			}
		})
	}
}
