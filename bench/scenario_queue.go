package bench

import (
	"context"
	"fmt"
	"os"
	"time"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// queueLoad is the common part of a load on a node's queues, or a peer's.
func (e *env) queueLoad(s *server, kind, topic string, recordBytes int) Load {
	l := e.load(s, kind, topic, recordBytes)
	l.HTTP = s.http
	return l
}

// startPeer starts the broker to compare with on a new folder.
func (e *env) startPeer(ctx context.Context) (s *server, remove func(), err error) {
	dir, err := e.newDir()
	if err != nil {
		return nil, nil, err
	}
	if s, err = startPeer(ctx, e.peers, e.peer, dir); err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	return s, func() { s.kill(); os.RemoveAll(dir) }, nil
}

// against runs tube's loads, in pairs with the peer's if there is one, each run on
// folders of its own, and reports the ratio.
func (e *env) against(ctx context.Context, o *Outcome, least float64, of func(s *server, i int) (*Result, error)) error {
	tube := func(i int) (*Result, error) {
		s, remove, err := e.node(ctx)
		if err != nil {
			return nil, err
		}
		defer remove()
		return of(s, i)
	}
	peer := func(i int) (*Result, error) {
		s, remove, err := e.startPeer(ctx)
		if err != nil {
			return nil, err
		}
		defer remove()
		return of(s, i)
	}
	if e.peers != "" {
		as, bs, err := e.pair(peer, tube)
		if err != nil {
			return err
		}
		o.ratios(e.peer, as, "tube", bs, least)
		return nil
	}
	var runs []*Result
	for i := range e.pairs {
		r, err := tube(i)
		if err != nil {
			return err
		}
		runs = append(runs, r)
	}
	o.add("rate", medianOf(runs, func(r *Result) float64 { return r.PerSecond }), "messages/s")
	o.usage("tube", runs)
	o.noErrors(runs)
	return nil
}

// Of the queue scenarios.
const (
	queuePartitions = 4
	// sendBytes are in one call of a client that batches, and sendCalls under way:
	// half of what the peer has under way.
	sendBytes = 1 << 20
	sendCalls = 8
)

func queueSendAgainstPeer(recordBytes int) func(context.Context, *env, *Outcome) error {
	return func(ctx context.Context, e *env, o *Outcome) error {
		return e.against(ctx, o, 2, func(s *server, i int) (*Result, error) {
			if s.http != "" {
				if err := createTopic(ctx, s.kafka, "bench", queuePartitions); err != nil {
					return nil, err
				}
			}
			settle()
			l := e.queueLoad(s, KindQueueSend, "bench", recordBytes)
			l.Producers, l.Batch = sendCalls, min(sendBytes/recordBytes, 1000)
			return e.run(ctx, o, s, pairName(i), l)
		})
	}
}

// queueReceiveAgainstPeer has one consumer receive and acknowledge a filled topic.
func queueReceiveAgainstPeer(recordBytes int, singleAcks bool, least float64) func(context.Context, *env, *Outcome) error {
	return func(ctx context.Context, e *env, o *Outcome) error {
		return e.against(ctx, o, least, func(s *server, i int) (*Result, error) {
			messages := e.messages
			if s.http != "" {
				if err := createTopic(ctx, s.kafka, "bench", queuePartitions); err != nil {
					return nil, err
				}
				if err := createGroups(ctx, s.kafka, s.http, "bench", "group", 1); err != nil {
					return nil, err
				}
			}
			if err := e.fill(ctx, o, s, "bench", recordBytes, messages); err != nil {
				return nil, err
			}
			settle()
			l := e.queueLoad(s, KindQueueReceive, "bench", recordBytes)
			l.Group, l.Records, l.SingleAcks = "group-0", messages, singleAcks
			return e.run(ctx, o, s, pairName(i), l)
		})
	}
}

// queueNode starts a node with a topic, bench, and queue groups on it: group-0, group-1, …
func (e *env) queueNode(ctx context.Context, groups int, change ...func(*tubev1.QueueSettings)) (node *server, remove func(), err error) {
	if node, remove, err = e.node(ctx); err != nil {
		return nil, nil, err
	}
	if err = createTopic(ctx, node.kafka, "bench", queuePartitions); err == nil {
		err = createGroups(ctx, node.kafka, node.http, "bench", "group", groups, change...)
	}
	if err != nil {
		remove()
		return nil, nil, err
	}
	return node, remove, nil
}

func queueLatency(ctx context.Context, e *env, o *Outcome) error {
	node, remove, err := e.queueNode(ctx, 1)
	if err != nil {
		return err
	}
	defer remove()
	var runs []*Result
	for i := range e.pairs {
		l := e.queueLoad(node, KindQueueE2E, "bench", kib)
		l.PerSecond, l.Group = 1000, "group-0"
		r, err := e.run(ctx, o, node, fmt.Sprintf("run %d", i+1), l)
		if err != nil {
			return err
		}
		runs = append(runs, r)
		settle()
	}
	o.atLeast("rate", medianOf(runs, func(r *Result) float64 { return r.PerSecond }), 980, "messages/s")
	o.latencies(runs, 0, 5)
	o.usage("tube", runs)
	o.noErrors(runs)
	return nil
}

// queueDelayed has many messages pending, a fifth of which come due soon at a rate.
func queueDelayed(ctx context.Context, e *env, o *Outcome) error {
	node, remove, err := e.queueNode(ctx, 1)
	if err != nil {
		return err
	}
	defer remove()
	l := e.queueLoad(node, KindQueueDelayed, "bench", 100)
	l.Records, l.Due, l.PerSecond, l.Batch, l.Group = e.delayed, e.delayed/5, 20_000, 1000, "group-0"
	l.Duration = time.Duration(float64(l.Due)/l.PerSecond)*time.Second + 20*time.Second
	r, err := e.run(ctx, o, node, "delayed", l)
	if err != nil {
		return err
	}
	o.add("messages", float64(l.Records), "")
	o.atMost("RSS more than idle", float64(r.ServerRSSBytes-r.ServerRSSFirst)/1e6, 300, "MB")
	o.atLeast("fired", r.PerSecond, 0.9*l.PerSecond, "messages/s")
	o.add("late p50", r.Latency.P50, "ms")
	o.atMost("late max", r.Latency.Max, 1000, "ms")
	o.noErrors([]*Result{r})
	return nil
}

// queueGroups compares a topic with many idle groups to one with one.
func queueGroups(ctx context.Context, e *env, o *Outcome) error {
	const groups, partitions = 1000, 16
	node, remove, err := e.node(ctx)
	if err != nil {
		return err
	}
	defer remove()
	for topic, n := range map[string]int{"few": 1, "many": groups} {
		if err := createTopic(ctx, node.kafka, topic, partitions); err != nil {
			return err
		}
		begin := time.Now()
		if err := createGroups(ctx, node.kafka, node.http, topic, topic, n); err != nil {
			return err
		}
		e.show.line("%s: %d groups made in %.1f s", o.Name, n, time.Since(begin).Seconds())
	}
	sleep(ctx, 5*time.Second)
	before, at := cpuOf(node.pid), time.Now()
	sleep(ctx, max(e.duration, 5*time.Second))
	idle := 100 * (cpuOf(node.pid) - before).Seconds() / time.Since(at).Seconds()
	rss, _ := rssOf(node.pid)
	send := func(topic string) func(int) (*Result, error) {
		return func(i int) (*Result, error) {
			settle()
			l := e.queueLoad(node, KindQueueSend, topic, kib)
			l.Producers, l.Batch = sendCalls, sendBytes/kib
			return e.run(ctx, o, node, pairName(i)+", "+topic, l)
		}
	}
	as, bs, err := e.pair(send("few"), send("many"))
	if err != nil {
		return err
	}
	o.atMost("idle CPU", idle, 1, "% of one core")
	o.add("RSS", float64(rss)/mib, "MiB")
	o.ratios("1 group", as, "1,000 groups", bs, 0.9)
	return nil
}
