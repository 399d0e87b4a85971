package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The crowd: so many group members on a cluster that no single node could hold
// their connections. Every node is master and broker; each coordinates a share of
// the groups, and a process of its own holds that share's members.
const (
	crowdNodes     = 7
	crowdGroupSize = 10
	crowdRate      = 3_000 // records/s that flow beside it
	crowdHold      = 2 * time.Minute
	// crowdLinger is the producer's: what franz-go does by default. With none each record is
	// a batch of its own, and three nodes' syncs.
	crowdLinger = 10 * time.Millisecond
	// crowdSlack is how much longer than crowdHold a share is held, as shares are
	// not complete at the same time.
	crowdSlack = time.Minute
	// crowdJoins is how many of a share join at a time: two cores that have seven nodes
	// and seven processes of members to run do nothing else if all do at once.
	crowdJoins          = 3
	crowdJoinsPerSecond = 26
	// crowdInterval is how often members send heartbeats: a third of the session, the
	// most that Kafka's documentation advises. At the default of 5 s the heartbeats
	// alone are more than two cores can do for both sides.
	crowdInterval    = 15 * time.Second
	crowdJoinTimeout = 14 * time.Minute
)

func crowd(ctx context.Context, e *env, o *Outcome) error {
	nodes, remove, err := e.cluster(ctx, crowdNodes)
	if err != nil {
		return err
	}
	defer remove()
	shares, err := crowdShares(ctx, nodes, e.crowd/crowdGroupSize)
	if err != nil {
		return err
	}
	if err := createTopic(ctx, nodes[0].kafka, "flow", 2*crowdNodes); err != nil {
		return err
	}
	before := make([]int64, len(nodes))
	for i, s := range nodes {
		before[i], _ = rssOf(s.pid)
	}
	c := &crowdRun{e: e, nodes: nodes, held: make([]int64, len(nodes)), results: make([]*Result, len(nodes))}
	flow, cpu, rss, err := c.run(ctx, shares)
	if err != nil {
		return err
	}
	count, lost, errors := 0, int64(0), int64(0)
	for i, r := range c.results {
		count += r.ReadyMembers
		errors += r.Errors
		lost += int64(len(shares[i])*crowdGroupSize) - int64(r.ReadyMembers)
		if r.FirstError != "" {
			e.show.line("crowd: share %d: %d errors, the first: %s", i+1, r.Errors, r.FirstError)
		}
		o.Runs = append(o.Runs, Run{Server: nodes[i].name, What: fmt.Sprintf("share %d", i+1), Result: *r})
	}
	o.Runs = append(o.Runs, Run{Server: "cluster", What: "flow", Result: *flow})
	o.atLeast("members", float64(count), float64(e.crowd/crowdGroupSize*crowdGroupSize), "")
	o.atMost("lost or disturbed", float64(lost+errors), 0, "")
	o.atLeast("records that flow", flow.PerSecond, 0.98*crowdRate, "records/s")
	o.latencies([]*Result{flow}, 0, 100)
	var grown int64
	for i := range nodes {
		grown += rss[i] - before[i]
	}
	o.add("memory of the nodes for each member", float64(grown)/float64(count)/1000, "kB")
	o.add("CPU of all nodes", 100*cpu.Seconds()/flow.Seconds, "% of one core")
	o.add("CPU of the nodes for each member", cpu.Seconds()/flow.Seconds/float64(count)*1e6, "µs/s")
	o.noErrors([]*Result{flow})
	return nil
}

// crowdRun holds the shares and lets records flow once all of them are complete.
type crowdRun struct {
	e     *env
	nodes []*server

	mu      sync.Mutex
	held    []int64 // members that have joined, by share
	results []*Result
}

func (c *crowdRun) run(ctx context.Context, shares [][]string) (flow *Result, cpu time.Duration, rss []int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	complete := make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	total := int64(0)
	for i := range shares {
		total += int64(len(shares[i]) * crowdGroupSize)
	}
	for i, groups := range shares {
		l := c.e.load(c.nodes[i], KindMembers, "flow", 1)
		l.Members = &Members{Count: len(groups) * crowdGroupSize, GroupSize: crowdGroupSize, Partitions: 1, Interval: c.e.members.Interval, Groups: groups, AtOnce: crowdJoins, JoinsPerSecond: crowdJoinsPerSecond, JoinTimeout: crowdJoinTimeout}
		l.Warmup, l.Duration = 0, crowdHold+crowdSlack
		wg.Go(func() {
			r, err := c.e.self.runLoad(ctx, l, func(p Progress) {
				held := p.Records
				if p.Done > 0 { // it is as complete as it gets: what is counted now are heartbeats
					held = int64(l.Members.Count)
				}
				if n := c.joined(i, held); n >= total {
					once.Do(func() { close(complete) })
				} else {
					c.e.show.progress(fmt.Sprintf("crowd: %d of %d members", n, total), Progress{float64(n) / float64(total), n})
				}
			})
			if err != nil {
				cancel(fmt.Errorf("share %d: %w", i+1, err))
				return
			}
			c.results[i] = r
		})
	}
	select {
	case <-complete:
	case <-ctx.Done():
		wg.Wait()
		return nil, 0, nil, context.Cause(ctx)
	case <-time.After(crowdJoinTimeout + flushTimeout):
		cancel(fmt.Errorf("not all members joined within %v: %v", crowdJoinTimeout, c.held))
		wg.Wait()
		return nil, 0, nil, context.Cause(ctx)
	}
	c.e.show.line("crowd: all %d members are there", total)
	l := c.e.load(c.nodes[0], KindE2E, "flow", kib)
	l.PerSecond, l.Linger, l.Duration = crowdRate, crowdLinger, crowdHold
	used := c.cpu()
	flow, err = c.e.self.runLoad(ctx, l, func(p Progress) { c.e.show.progress("crowd: held, records flow", p) })
	cpu = c.cpu() - used
	for _, s := range c.nodes {
		now, _ := rssOf(s.pid)
		rss = append(rss, now)
	}
	wg.Wait()
	if cause := context.Cause(ctx); err == nil && cause != nil {
		err = cause
	}
	return flow, cpu, rss, err
}

func (c *crowdRun) joined(share int, n int64) (all int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[share] = n
	for _, n := range c.held {
		all += n
	}
	return all
}

func (c *crowdRun) cpu() (all time.Duration) {
	for _, s := range c.nodes {
		all += cpuOf(s.pid)
	}
	return all
}

// crowdShares finds names of groups so that each node coordinates as many.
func crowdShares(ctx context.Context, nodes []*server, groups int) ([][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(nodes[0].kafka))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	shares := make([][]string, len(nodes))
	quota := (groups + len(nodes) - 1) / len(nodes)
	// The shards of groups are spread over the masters some seconds after the start;
	// a name that was found before may have another coordinator then.
	for found, next := 0, 0; found < groups; {
		req := kmsg.NewPtrFindCoordinatorRequest()
		for range 500 {
			req.CoordinatorKeys = append(req.CoordinatorKeys, fmt.Sprintf("crowd-%d", next))
			next++
		}
		resp, err := req.RequestWith(ctx, client)
		if err != nil {
			return nil, fmt.Errorf("find coordinators: %w; found so far %d of %d groups", err, found, groups)
		}
		if !allCoordinate(resp, len(nodes)) {
			next = 0
			sleep(ctx, 500*time.Millisecond)
			continue
		}
		for _, c := range resp.Coordinators {
			i := int(c.NodeID) - 1
			if c.ErrorCode == 0 && i >= 0 && i < len(nodes) && len(shares[i]) < quota && found < groups {
				shares[i] = append(shares[i], c.Key)
				found++
			}
		}
	}
	return shares, nil
}

// allCoordinate reports whether each node coordinates some of the groups.
func allCoordinate(resp *kmsg.FindCoordinatorResponse, nodes int) bool {
	by := map[int32]bool{}
	for _, c := range resp.Coordinators {
		by[c.NodeID] = c.ErrorCode == 0
	}
	return len(by) == nodes
}

// cluster starts nodes 1 to n on new folders, each master and broker.
func (e *env) cluster(ctx context.Context, n int) (nodes []*server, remove func(), err error) {
	dir, err := e.newDir()
	if err != nil {
		return nil, nil, err
	}
	ports := make([][]string, n)
	var masters []string
	for i := range ports {
		if ports[i], err = freePorts(3); err != nil {
			return nil, nil, err
		}
		masters = append(masters, fmt.Sprintf("%d@%s", i+1, ports[i][2]))
	}
	nodes = make([]*server, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range nodes {
		flags := append([]string{"--node-id", fmt.Sprint(i + 1), "--masters", strings.Join(masters, ","),
			"--group-consumer-heartbeat-interval", crowdInterval.String()}, e.nodeFlags...)
		wg.Go(func() {
			nodes[i], errs[i] = startNodeAt(ctx, ports[i], e.binary, filepath.Join(dir, fmt.Sprint(i+1)), flags)
		})
	}
	wg.Wait()
	remove = func() {
		for _, s := range nodes {
			if s != nil {
				s.kill()
			}
		}
		os.RemoveAll(dir)
	}
	for i, err := range errs {
		if err != nil {
			remove()
			return nil, nil, fmt.Errorf("node %d: %w", i+1, err)
		}
	}
	return nodes, remove, nil
}
