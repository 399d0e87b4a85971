package bench

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// scenario is a row of the table of speeds.
type scenario struct {
	name  string
	title string
	run   func(ctx context.Context, e *env, o *Outcome) error
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// scenarios is the table. The limits are those of a machine with two cores and a
// disk that syncs in a tenth of a millisecond.
var scenarios = []scenario{
	{"produce-1k-1", "produce 1 KiB, 1 partition", produceAgainstNull(kib, 1, 0.40)},
	{"produce-1k-16", "produce 1 KiB, 16 partitions", produceAgainstNull(kib, 16, 0.40)},
	{"produce-100-1", "produce 100 B, 1 partition", produceAgainstNull(100, 1, 0.80)},
	{"produce-100-16", "produce 100 B, 16 partitions", produceAgainstNull(100, 16, 0.80)},
	{"consume-1k", "consume 1 KiB from the page cache", consumeAgainstNull(kib, 0.70)},
	{"consume-100", "consume 100 B from the page cache", consumeAgainstNull(100, 0.80)},
	{"both-1k", "produce and consume at once, 1 KiB, 4 partitions", bothAtOnce},
	{"partitions-1000", "1,000 partitions written evenly against 16, 1 KiB", manyPartitions},
	{"single-shared", "one record at a time, 64 producers over one client", oneAtATime(1, 60_000)},
	{"single-own", "one record at a time, 64 producers each with its own client", oneAtATime(64, 15_000)},
	{"latency", "produce to consume at 10,000 records/s, linger 0", endToEndLatency},
	{"ack-1000", "acknowledgement over 1,000 partitions at 5,000 records/s", ackLatency},
	{"restart", "restart after kill -9 with 100 partitions", restartAfterKill},
	{"idle", "idle node on an empty folder", idleNode},
	{"join-500", "one more member of 500 over 5,000 partitions", oneMoreMember},
	{"members", "15,000 idle group members with heartbeats", idleMembers},
	{"queue-send-1k", "queue: send 1 KiB, batched by the client", queueSendAgainstPeer(kib)},
	{"queue-send-100", "queue: send 100 B, batched by the client", queueSendAgainstPeer(100)},
	{"queue-receive-1k", "queue: receive and acknowledge 1 KiB", queueReceiveAgainstPeer(kib, false, 2)},
	{"queue-receive-100", "queue: receive and acknowledge 100 B", queueReceiveAgainstPeer(100, false, 2)},
	{"queue-single-ack", "queue: receive 1 KiB, a frame for each acknowledgement", queueReceiveAgainstPeer(kib, true, 2)},
	{"queue-latency", "queue: send to handler at 1,000/s", queueLatency},
	{"queue-delayed", "queue: 1,000,000 delayed messages pending", queueDelayed},
	{"queue-holes", "queue: 1,000,000 messages in hand, with holes between them", queueHoles},
	{"queue-groups", "queue: 1,000 idle groups on 16 partitions against one", queueGroups},
	{"crowd", "100,000 group members on seven nodes while records flow", crowd},
}

// pair runs a and b as often as pairs are asked for, a first in every other one,
// and returns their results in order.
func (e *env) pair(a, b func(i int) (*Result, error)) (as, bs []*Result, err error) {
	for i := range e.pairs {
		first, second := a, b
		if i%2 == 1 {
			first, second = b, a
		}
		x, err := first(i)
		if err != nil {
			return nil, nil, err
		}
		y, err := second(i)
		if err != nil {
			return nil, nil, err
		}
		if i%2 == 1 {
			x, y = y, x
		}
		as, bs = append(as, x), append(bs, y)
	}
	return as, bs, nil
}

// ratios adds the median of b's rate by a's, which must reach least, and what both cost.
func (o *Outcome) ratios(nameA string, as []*Result, nameB string, bs []*Result, least float64) {
	ratios := make([]float64, len(as))
	for i := range as {
		ratios[i] = bs[i].PerSecond / max(as[i].PerSecond, 1)
	}
	name := fmt.Sprintf("%s / %s", nameB, nameA)
	if least > 0 {
		o.atLeast(name, median(ratios), least, "")
	} else {
		o.add(name, median(ratios), "")
	}
	for _, side := range []struct {
		name string
		runs []*Result
	}{{nameA, as}, {nameB, bs}} {
		o.add(side.name, medianOf(side.runs, func(r *Result) float64 { return r.PerSecond }), "records/s")
		o.add(side.name, medianOf(side.runs, func(r *Result) float64 { return r.MiBPerSecond }), "MiB/s")
		o.usage(side.name, side.runs)
	}
	o.noErrors(append(as, bs...))
}

func produceAgainstNull(recordBytes, partitions int, least float64) func(context.Context, *env, *Outcome) error {
	return func(ctx context.Context, e *env, o *Outcome) error {
		null, err := e.self.startNull(ctx, NullConfig{Partitions: partitions, RecordBytes: recordBytes})
		if err != nil {
			return err
		}
		defer null.kill()
		node, remove, err := e.node(ctx)
		if err != nil {
			return err
		}
		defer remove()
		var disk []float64 // MiB/s, measured before each of Tube's runs
		as, bs, err := e.pair(
			func(i int) (*Result, error) {
				return e.run(ctx, o, null, pairName(i), e.load(null, KindProduce, "bench", recordBytes))
			},
			func(i int) (*Result, error) {
				rate, err := diskRate(ctx, e.dir, 2*time.Second)
				if err != nil {
					return nil, fmt.Errorf("measure the disk: %w", err)
				}
				disk = append(disk, rate)
				return e.produceToNewTopic(ctx, o, node, i, partitions, recordBytes)
			})
		if err != nil {
			return err
		}
		o.ratios("null", as, "tube", bs, least)
		o.ofDisk(disk, as, bs)
		return nil
	}
}

// ofDisk adds what the disk takes, which is a second ceiling: a store that writes
// every byte once, and does nothing else, reaches that much of the null broker.
func (o *Outcome) ofDisk(disk []float64, null, tube []*Result) {
	if median(disk) == 0 {
		return
	}
	share, ceiling := make([]float64, len(disk)), make([]float64, len(disk))
	for i, rate := range disk {
		share[i] = tube[i].MiBPerSecond / max(rate, 1)
		ceiling[i] = rate / max(null[i].MiBPerSecond, 1)
	}
	o.add("the disk, one writer, synced", median(disk), "MiB/s")
	o.add("the disk / null", median(ceiling), "")
	o.add("tube / the disk (it writes each byte twice)", median(share), "")
}

func pairName(i int) string { return fmt.Sprintf("pair %d", i+1) }

// produceToNewTopic gives every run a topic of its own and deletes it after.
func (e *env) produceToNewTopic(ctx context.Context, o *Outcome, node *server, i, partitions, recordBytes int) (*Result, error) {
	topic := fmt.Sprintf("bench-%d-%d", partitions, i)
	if err := createTopic(ctx, node.kafka, topic, partitions); err != nil {
		return nil, err
	}
	settle()
	l := e.load(node, KindProduce, topic, recordBytes)
	r, err := e.run(ctx, o, node, pairName(i), l)
	if err != nil {
		return nil, err
	}
	err = deleteTopic(ctx, node.kafka, topic)
	settle()
	return r, err
}

func consumeAgainstNull(recordBytes int, least float64) func(context.Context, *env, *Outcome) error {
	return func(ctx context.Context, e *env, o *Outcome) error {
		const partitions, topic = 4, "bench"
		records := max(e.fillBytes/int64(recordBytes)/partitions, 1) * partitions
		null, err := e.self.startNull(ctx, NullConfig{
			Partitions: partitions, RecordBytes: recordBytes, BatchBytes: 1_000_000, EndOffset: records / partitions})
		if err != nil {
			return err
		}
		defer null.kill()
		dir, err := e.newDir()
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		node, err := e.startNode(ctx, dir)
		if err != nil {
			return err
		}
		defer node.kill()
		if err := createTopic(ctx, node.kafka, topic, partitions); err != nil {
			return err
		}
		if err := e.fill(ctx, o, node, topic, recordBytes, records); err != nil {
			return err
		}
		if err := toPageCache(dir); err != nil {
			return err
		}
		settle()
		consume := func(s *server) func(int) (*Result, error) {
			return func(i int) (*Result, error) {
				l := e.load(s, KindConsume, topic, recordBytes)
				l.Records = records
				return e.run(ctx, o, s, pairName(i), l)
			}
		}
		as, bs, err := e.pair(consume(null), consume(node))
		if err != nil {
			return err
		}
		o.ratios("null", as, "tube", bs, least)
		return nil
	}
}

// toPageCache reads all segments below dir, which were written past the page cache.
func toPageCache(dir string) error {
	return filepath.WalkDir(filepath.Join(dir, "data"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".log" {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(io.Discard, f)
		return err
	})
}

// fill puts so many records into a topic, in batches as large as they get, the
// same number into each partition.
func (e *env) fill(ctx context.Context, o *Outcome, node *server, topic string, recordBytes int, records int64) error {
	l := e.load(node, KindFill, topic, recordBytes)
	l.Records, l.RoundRobin, l.Linger = records, true, 100*time.Millisecond
	_, err := e.run(ctx, o, node, "fill", l)
	return err
}

func bothAtOnce(ctx context.Context, e *env, o *Outcome) error {
	node, remove, err := e.node(ctx)
	if err != nil {
		return err
	}
	defer remove()
	var runs []*Result
	for i := range e.pairs {
		topic := fmt.Sprintf("bench-%d", i)
		if err := createTopic(ctx, node.kafka, topic, 4); err != nil {
			return err
		}
		l := e.load(node, KindBoth, topic, kib)
		l.PerSecond = e.rate
		r, err := e.run(ctx, o, node, pairName(i), l)
		if err != nil {
			return err
		}
		runs = append(runs, r)
		if err := deleteTopic(ctx, node.kafka, topic); err != nil {
			return err
		}
		settle()
	}
	o.atLeast("rate", medianOf(runs, func(r *Result) float64 { return r.PerSecond }), 250_000, "records/s")
	o.atMost("lag after the last record", medianOf(runs, func(r *Result) float64 { return r.LagEndMS }), 1000, "ms")
	o.usage("tube", runs)
	o.noErrors(runs)
	return nil
}

func manyPartitions(ctx context.Context, e *env, o *Outcome) error {
	topics := map[int]string{16: "few", 1000: "many"}
	produce := func(s *server, partitions int, spread string) func(int) (*Result, error) {
		return func(i int) (*Result, error) {
			l := e.load(s, KindProduce, topics[partitions], kib)
			l.RoundRobin = spread == oneByOne
			settle()
			return e.run(ctx, o, s, fmt.Sprintf("%s, %d partitions%s", pairName(i), partitions, spread), l)
		}
	}
	// spread is measured on a node of its own: what both write to one does not fit on every disk.
	spread := func(spread string, least float64) error {
		node, remove, err := e.node(ctx)
		if err != nil {
			return err
		}
		defer remove()
		for partitions, topic := range topics {
			if err := createTopic(ctx, node.kafka, topic, partitions); err != nil {
				return err
			}
			// The first records of a partition make its files, once.
			l := e.load(node, KindProduce, topic, kib)
			l.Duration = time.Second
			if _, err := e.run(ctx, o, node, fmt.Sprintf("files of %d partitions%s", partitions, spread), l); err != nil {
				return err
			}
		}
		as, bs, err := e.pair(produce(node, 16, spread), produce(node, 1000, spread))
		if err != nil {
			return err
		}
		o.ratios("16 partitions"+spread, as, "1,000 partitions"+spread, bs, least)
		return nil
	}
	if err := spread(byClient, 0.70); err != nil {
		return err
	}
	if err := spread(oneByOne, 0); err != nil {
		return err
	}
	return e.nullPartitions(ctx, o, func(s *server, partitions int) func(int) (*Result, error) {
		return produce(s, partitions, byClient)
	})
}

// How records are spread evenly over partitions: as the client does it by itself, which is
// 64 KiB for one and then for another, or each to the partition after the last one's, as
// keys would do it.
const (
	byClient = ""
	oneByOne = ", one by one"
)

// nullPartitions adds what the client alone loses with a thousand batches in the place of
// sixteen.
func (e *env) nullPartitions(ctx context.Context, o *Outcome, produce func(*server, int) func(int) (*Result, error)) error {
	var loads []func(int) (*Result, error)
	for _, partitions := range []int{16, 1000} {
		null, err := e.self.startNull(ctx, NullConfig{Partitions: partitions, RecordBytes: kib})
		if err != nil {
			return err
		}
		defer null.kill()
		loads = append(loads, produce(null, partitions))
	}
	as, bs, err := e.pair(loads[0], loads[1])
	if err != nil {
		return err
	}
	o.ratios("null, 16 partitions", as, "null, 1,000 partitions", bs, 0)
	return nil
}
