package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Members is a crowd of group members that do nothing but stay. Each has one
// connection, on which it takes turns: a fetch that waits, then a heartbeat. A
// real client has two or three, but a process may have only so many files open
// (20,000 is usual), on the server's side as on this one: with one connection
// each, 15,000 members fit.
type Members struct {
	Count      int           `json:"count"`
	GroupSize  int           `json:"group_size"`
	Partitions int           `json:"partitions"` // of the topic, which must exist
	Interval   time.Duration `json:"interval"`   // between heartbeats, and how long a fetch waits
	// Groups names the groups, all of one coordinator, which need not lead any
	// partition: members send heartbeats only then, as often as the coordinator
	// wants, and are of consumer groups (KIP-848).
	Groups []string `json:"groups,omitempty"`
	// AtOnce is how many connect and join at a time; 0: memberDialsAtOnce.
	AtOnce int `json:"at_once,omitempty"`
	// JoinsPerSecond is how many begin to at most; 0: any number.
	JoinsPerSecond float64 `json:"joins_per_second,omitempty"`
	// JoinTimeout is for all to have joined; 0: memberJoinTimeout.
	JoinTimeout time.Duration `json:"join_timeout,omitempty"`
}

const (
	memberJoinTimeout    = 3 * time.Minute
	memberSessionMillis  = 45_000
	memberRequestTimeout = time.Minute
	memberDialsAtOnce    = 200
)

// members has all join, then holds them for the counted time. Anything but a
// quiet heartbeat while holding is an error.
func (m *meter) members(ctx context.Context) (*Result, error) {
	want := m.load.Members
	if want == nil || want.Count < 1 || want.GroupSize < 1 || want.Partitions < 1 || want.Interval < 10*time.Millisecond {
		return nil, errors.New("members: count, group size, partitions and interval are needed")
	}
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	rssFirst, _ := rssOf(m.load.ServerPID)

	var ready atomic.Int64
	var holding atomic.Bool
	dials := make(chan struct{}, cmp.Or(want.AtOnce, memberDialsAtOnce))
	patience := cmp.Or(want.JoinTimeout, memberJoinTimeout)
	var wg sync.WaitGroup
	// One after the other, so that a group is soon complete: its members come more often
	// while partitions move.
	wg.Go(func() {
		for i, begin := 0, time.Now(); i < want.Count; i++ {
			if want.JoinsPerSecond > 0 {
				sleep(runCtx, time.Until(begin.Add(time.Duration(float64(i)/want.JoinsPerSecond*float64(time.Second)))))
			}
			member := m.newMember(i, &holding, &ready, dials)
			if !member.admit(runCtx) {
				return
			}
			wg.Go(func() { member.live(runCtx) })
		}
	})
	deadline := time.Now().Add(patience)
	for int(ready.Load()) < want.Count && time.Now().Before(deadline) && ctx.Err() == nil {
		sleep(ctx, 100*time.Millisecond)
		m.report(Progress{0, ready.Load()})
	}
	if n := int(ready.Load()); n < want.Count {
		m.fail(fmt.Errorf("%d of %d members joined within %v", n, want.Count, patience))
	}
	holding.Store(true)
	from := m.begin(ctx)
	m.watch(ctx, from, nil)
	r := m.result(from, m.read())
	holding.Store(false)
	r.ServerRSSFirst, r.ReadyMembers = rssFirst, int(ready.Load())
	_, r.ClientRSSPeakBytes = rssOf(os.Getpid())
	cancel()
	wg.Wait()
	return r, nil
}

func (m *meter) newMember(i int, holding *atomic.Bool, ready *atomic.Int64, dials chan struct{}) *member {
	want := m.load.Members
	named := len(want.Groups) > 0
	group := fmt.Sprintf("bench-%s-%d", m.load.Topic, i/want.GroupSize)
	if named {
		group = want.Groups[i/want.GroupSize%len(want.Groups)]
	}
	return &member{
		m: m, holding: holding, ready: ready, dials: dials, quiet: named, consumer: named,
		group: group, topic: m.load.Topic,
		partition: int32(i % want.Partitions), interval: want.Interval,
	}
}
