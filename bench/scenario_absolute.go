package bench

import (
	"context"
	"fmt"
	"os"
	"time"
)

// repeat runs a load on one node and one topic as often as pairs are asked for.
func (e *env) repeat(ctx context.Context, o *Outcome, partitions int, of func(*server) Load) ([]*Result, error) {
	node, remove, err := e.node(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	l := of(node)
	if err := createTopic(ctx, node.kafka, l.Topic, partitions); err != nil {
		return nil, err
	}
	var runs []*Result
	for i := range e.pairs {
		r, err := e.run(ctx, o, node, fmt.Sprintf("run %d", i+1), l)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
		settle()
	}
	return runs, nil
}

func oneAtATime(clients int, least float64) func(context.Context, *env, *Outcome) error {
	return func(ctx context.Context, e *env, o *Outcome) error {
		runs, err := e.repeat(ctx, o, 4, func(s *server) Load {
			l := e.load(s, KindSingle, "bench", 100)
			l.Producers, l.Clients, l.Linger = 64, clients, 0
			return l
		})
		if err != nil {
			return err
		}
		o.atLeast("rate", medianOf(runs, func(r *Result) float64 { return r.PerSecond }), least, "records/s")
		o.latencies(runs, 0, 0)
		o.usage("tube", runs)
		o.noErrors(runs)
		return nil
	}
}

// latencies adds medians of the runs' quantiles and the worst of all; a limit of
// 0 ms is none.
func (o *Outcome) latencies(runs []*Result, p50Most, p99Most float64) {
	limited := func(name string, v, most float64) {
		if most > 0 {
			o.atMost(name, v, most, "ms")
		} else {
			o.add(name, v, "ms")
		}
	}
	limited("p50", medianOf(runs, func(r *Result) float64 { return r.Latency.P50 }), p50Most)
	limited("p99", medianOf(runs, func(r *Result) float64 { return r.Latency.P99 }), p99Most)
	o.add("p99.9", medianOf(runs, func(r *Result) float64 { return r.Latency.P999 }), "ms")
	var worst, late float64
	for _, r := range runs {
		worst, late = max(worst, r.Latency.Max), max(late, r.PacerLateMS)
	}
	o.add("max of all runs", worst, "ms")
	o.add("of which the sender itself was late, at most", late, "ms")
}

func endToEndLatency(ctx context.Context, e *env, o *Outcome) error {
	runs, err := e.repeat(ctx, o, 4, func(s *server) Load {
		l := e.load(s, KindE2E, "bench", kib)
		l.PerSecond, l.Linger = 10_000, 0
		return l
	})
	if err != nil {
		return err
	}
	o.atLeast("rate", medianOf(runs, func(r *Result) float64 { return r.PerSecond }), 9_800, "records/s")
	o.latencies(runs, 1, 12)
	o.usage("tube", runs)
	o.noErrors(runs)
	return nil
}

func ackLatency(ctx context.Context, e *env, o *Outcome) error {
	runs, err := e.repeat(ctx, o, 1000, func(s *server) Load {
		l := e.load(s, KindAck, "bench", kib)
		l.PerSecond, l.Linger, l.RoundRobin = 5_000, 0, true
		return l
	})
	if err != nil {
		return err
	}
	o.atLeast("rate", medianOf(runs, func(r *Result) float64 { return r.PerSecond }), 4_900, "records/s")
	o.latencies(runs, 0, 15)
	o.usage("tube", runs)
	o.noErrors(runs)
	return nil
}

// restartAfterKill fills a folder, kills the node and starts it again, for each
// size. Ready means /readyz and then a record acknowledged.
func restartAfterKill(ctx context.Context, e *env, o *Outcome) error {
	for i, size := range e.restart {
		ready, answered, err := e.restartOnce(ctx, o, size)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("ready with %s GiB", number(float64(size)/gib))
		if i == 0 {
			o.atMost(name, ready, 5, "s")
		} else {
			o.add(name, ready, "s")
		}
		o.add(fmt.Sprintf("first record answered with %s GiB", number(float64(size)/gib)), answered, "s")
	}
	return nil
}

// restartsPerSize is how often a filled node is killed; the median counts.
const restartsPerSize = 3

func (e *env) restartOnce(ctx context.Context, o *Outcome, size int64) (ready, answered float64, err error) {
	dir, err := e.newDir()
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	node, err := e.startNode(ctx, dir)
	if err != nil {
		return 0, 0, err
	}
	defer func() { node.kill() }()
	if err := createTopic(ctx, node.kafka, "bench", 100); err != nil {
		return 0, 0, err
	}
	if err := e.fill(ctx, o, node, "bench", kib, size/kib); err != nil {
		return 0, 0, err
	}
	var readies, answers []float64
	for range restartsPerSize {
		// Some records that are surely not checkpointed yet.
		if err := e.fill(ctx, o, node, "bench", kib, 64*mib/kib); err != nil {
			return 0, 0, err
		}
		node.kill()
		begin := time.Now()
		next, err := e.startNode(ctx, dir)
		if err != nil {
			return 0, 0, fmt.Errorf("after kill -9 with %d bytes: %w", size, err)
		}
		node = next
		if _, err := e.self.runLoad(ctx, Load{Kind: KindFill, Brokers: []string{node.kafka}, Topic: "bench", RecordBytes: kib, Records: 1}, nil); err != nil {
			return 0, 0, err
		}
		readies, answers = append(readies, node.ready.Seconds()), append(answers, time.Since(begin).Seconds())
		e.show.line("%s: %s GiB: ready in %.2f s, first record answered after %.2f s", o.Name, number(float64(size)/gib), node.ready.Seconds(), time.Since(begin).Seconds())
	}
	return median(readies), median(answers), nil
}

func idleNode(ctx context.Context, e *env, o *Outcome) error {
	var readies, rss, cpu []float64
	for i := range e.pairs {
		node, remove, err := e.node(ctx)
		if err != nil {
			return err
		}
		sleep(ctx, e.warmup)
		before, at := cpuOf(node.pid), time.Now()
		sleep(ctx, e.duration)
		used, now := cpuOf(node.pid)-before, int64(0)
		now, _ = rssOf(node.pid)
		readies = append(readies, node.ready.Seconds())
		rss = append(rss, float64(now)/mib)
		cpu = append(cpu, 100*used.Seconds()/time.Since(at).Seconds())
		remove()
		e.show.line("%s: run %d: ready in %.3f s, %.1f MiB, %.2f %% CPU", o.Name, i+1, readies[i], rss[i], cpu[i])
	}
	o.atMost("ready", median(readies), 0.3, "s")
	o.atMost("RSS", median(rss), 60e6/mib, "MiB")
	o.atMost("CPU", median(cpu), 1, "% of one core")
	return nil
}

func idleMembers(ctx context.Context, e *env, o *Outcome) error {
	node, remove, err := e.node(ctx)
	if err != nil {
		return err
	}
	defer remove()
	if err := createTopic(ctx, node.kafka, "idle", e.members.Partitions); err != nil {
		return err
	}
	sleep(ctx, e.warmup)
	l := e.load(node, KindMembers, "idle", 1)
	l.Members = &e.members
	// Every member has to come round at least twice.
	l.Duration = max(e.duration, 5*e.members.Interval)
	r, err := e.run(ctx, o, node, "hold", l)
	if err != nil {
		return err
	}
	count := float64(e.members.Count)
	o.atLeast("members", float64(r.ReadyMembers), count, "")
	o.noErrors([]*Result{r})
	o.atMost("memory of the node for each", float64(r.ServerRSSBytes-r.ServerRSSFirst)/count/1000, 50, "kB")
	o.add("RSS of the node", float64(r.ServerRSSBytes)/mib, "MiB")
	o.add("CPU of the node", 100*r.ServerCPUSeconds/r.Seconds, "% of one core")
	return nil
}

// oneMoreMember of a consumer group of the default settings: until all have what they are
// to have.
func oneMoreMember(ctx context.Context, e *env, o *Outcome) error {
	const members, partitions, joins = 500, 5000, 20
	node, remove, err := e.node(ctx)
	if err != nil {
		return err
	}
	defer remove()
	if err := createTopic(ctx, node.kafka, "shared", partitions); err != nil {
		return err
	}
	l := e.load(node, KindJoins, "shared", 1)
	l.Members = &Members{Count: members, GroupSize: members, Partitions: partitions, Interval: 5 * time.Second, Groups: []string{"all"}}
	l.Records = joins
	r, err := e.run(ctx, o, node, "join", l)
	if err != nil {
		return err
	}
	o.noErrors([]*Result{r})
	o.add("joins", float64(r.Latency.Count), "")
	o.add("p50", r.Latency.P50, "ms")
	o.atMost("max", r.Latency.Max, 2000, "ms")
	o.add("CPU of the node", 100*r.ServerCPUSeconds/r.Seconds, "% of one core")
	return nil
}
