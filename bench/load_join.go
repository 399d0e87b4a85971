package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// joinTimeout is for a group to have dealt out all partitions.
const joinTimeout = 2 * time.Minute

// joins has a consumer group settle, then one more member come and go, Records times, and
// measures how long it takes until that one has its share and nobody lacks anything.
func (m *meter) joins(ctx context.Context) (*Result, error) {
	want := m.load.Members
	if want == nil || want.Count < 1 || want.Partitions < want.Count+1 || m.load.Records < 1 {
		return nil, errors.New("joins: members, more partitions than members, and how often are needed")
	}
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var ready, dealt atomic.Int64
	var holding atomic.Bool
	dials := make(chan struct{}, memberDialsAtOnce)
	member := func(i int) *member {
		c := m.newMember(0, &holding, &ready, dials)
		c.dealt, c.partition = &dealt, int32(i)
		return c
	}
	for i := range want.Count {
		c := member(i)
		wg.Go(func() { c.live(runCtx) })
	}
	settled := func(done func() bool) error {
		for deadline := time.Now().Add(joinTimeout); !done(); sleep(ctx, time.Millisecond) {
			if ctx.Err() != nil || time.Now().After(deadline) {
				return fmt.Errorf("%d of %d partitions are dealt out, to %d members, after %v", dealt.Load(), want.Partitions, ready.Load(), joinTimeout)
			}
		}
		return nil
	}
	all := func() bool { return dealt.Load() == int64(want.Partitions) && ready.Load() >= int64(want.Count) }
	if err := settled(all); err != nil {
		return nil, err
	}
	var taken histogram
	share := int64(want.Partitions / (want.Count + 1))
	from := m.begin(ctx)
	for i := range m.load.Records {
		m.report(Progress{float64(i) / float64(m.load.Records), i})
		// Some moment between the others' heartbeats.
		sleep(ctx, m.load.Warmup+time.Duration(rand.Int64N(int64(want.Interval))))
		extraCtx, leave := context.WithCancel(runCtx)
		c, began, gone := member(want.Count), time.Now(), make(chan struct{})
		go func() { defer close(gone); c.live(extraCtx) }()
		err := settled(func() bool { return c.has.Load() >= share && all() })
		taken.add(time.Since(began))
		m.count.Add(1)
		leave()
		<-gone
		if err := errors.Join(err, c.quit(ctx), settled(all)); err != nil {
			return nil, err
		}
	}
	r := m.result(from, m.read())
	r.Latency, r.ReadyMembers = taken.latency(), int(ready.Load())
	return r, nil
}

// quit leaves a consumer group; what the member had is somebody else's then.
func (c *member) quit(ctx context.Context) error {
	defer c.hangUp()
	if err := c.connect(ctx); err != nil {
		return err
	}
	req, resp := kmsg.NewPtrConsumerGroupHeartbeatRequest(), kmsg.NewPtrConsumerGroupHeartbeatResponse()
	req.Version, req.RebalanceTimeoutMillis = 1, -1
	req.Group, req.MemberID, req.MemberEpoch = c.group, c.id, -1
	c.deal(0)
	if err := c.call(req, resp); err != nil {
		return err
	}
	return c.check("leave", resp.ErrorCode)
}

// deal notes how many partitions the member has now.
func (c *member) deal(n int64) {
	was := c.has.Swap(n)
	if c.dealt != nil {
		c.dealt.Add(n - was)
	}
}
