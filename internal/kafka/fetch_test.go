package kafka

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

type fetchTest struct {
	*fakeCluster
	t     *testing.T
	d     *Door
	c     *client
	topic *meta.Topic
}

func newFetchTest(t *testing.T, partitions int, cfg Config) *fetchTest {
	f := newFakeCluster()
	d := newTestDoor(t, f, cfg)
	return &fetchTest{fakeCluster: f, t: t, d: d, c: newClient(d), topic: f.addTopic("t", partitions)}
}

func (f *fetchTest) p(n int) *fakePartition { return f.part(f.topic, n) }

func (f *fetchTest) ask(version int16, req *kmsg.FetchRequest) *kmsg.FetchResponse {
	f.t.Helper()
	r := askDoor[*kmsg.FetchResponse](f.t, f.d, f.c, version, req)
	for n := range f.topic.Partitions {
		p := f.p(n)
		p.mu.Lock()
		if p.given != p.released {
			f.t.Fatalf("partition %d: %d reads released of %d", n, p.released, p.given)
		}
		p.mu.Unlock()
	}
	if got := f.d.budgets.fetched.Load(); got != f.d.cfg.FetchMemoryBytes {
		f.t.Fatalf("%d bytes of the fetch budget are gone", f.d.cfg.FetchMemoryBytes-got)
	}
	return r
}

// sizes are the bytes of records by partition.
func sizes(r *kmsg.FetchResponse) map[int32]int {
	out := map[int32]int{}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			out[p.Partition] = len(p.RecordBatches)
		}
	}
	return out
}

func TestFetchAnswersEveryPartitionAsked(t *testing.T) {
	eachVersion(t, 1, func(t *testing.T, v int16) {
		f := newFetchTest(t, 3, Config{})
		f.p(1).add(t, 5)
		r := f.ask(v, fetchOf(f.topic, 0, 0, 9))
		if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 3 {
			t.Fatalf("answer %+v", r)
		}
		quiet, data, far := r.Topics[0].Partitions[0], r.Topics[0].Partitions[1], r.Topics[0].Partitions[2]
		if quiet.ErrorCode != 0 || quiet.RecordBatches == nil || len(quiet.RecordBatches) != 0 {
			t.Fatalf("quiet %+v", quiet)
		}
		if !bytes.Equal(data.RecordBatches, f.p(1).batches[0]) || data.HighWatermark != 5 || data.LastStableOffset != 5 {
			t.Fatalf("data %+v", data)
		}
		if far.ErrorCode != kerr.OffsetOutOfRange.Code {
			t.Fatalf("far %+v", far)
		}
		if v < 13 && r.Topics[0].Topic != "t" || v >= 13 && r.Topics[0].TopicID != [16]byte(f.topic.ID) {
			t.Fatalf("topic %+v", r.Topics[0])
		}
		for n := range 3 {
			if f.p(n).watched() != 0 {
				t.Fatalf("partition %d is still watched", n)
			}
		}
	})
}

func TestFetchNamesWhatIsUnknown(t *testing.T) {
	for v, want := range map[int16]*kerr.Error{12: kerr.UnknownTopicOrPartition, 13: kerr.UnknownTopicID} {
		f := newFetchTest(t, 1, Config{})
		req := fetchOf(&meta.Topic{Name: "nowhere", ID: record.NewTopicID()}, 0)
		if p := f.ask(v, req).Topics[0].Partitions[0]; p.ErrorCode != want.Code {
			t.Fatalf("v%d: %v", v, kerr.TypedErrorForCode(p.ErrorCode))
		}
		if p := f.ask(v, fetchOf(f.topic, 0, 0)).Topics[0].Partitions[1]; p.ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Fatalf("v%d: %v", v, kerr.TypedErrorForCode(p.ErrorCode))
		}
	}
}

func TestFetchSaysWhoLeads(t *testing.T) {
	f := newFetchTest(t, 1, Config{})
	f.change(func(im *meta.Image) { im.Nodes[2] = &meta.Node{ID: 2, Kafka: "other:1", State: meta.NodeUp} })
	f.p(0).set(func(p *fakePartition) { p.err, p.leader = broker.ErrNotLeader, 2 })
	for v := int16(11); v <= 18; v++ {
		r := f.ask(v, fetchOf(f.topic, 0))
		p := r.Topics[0].Partitions[0]
		if p.ErrorCode != kerr.NotLeaderForPartition.Code {
			t.Fatalf("v%d: %+v", v, p)
		}
		if v >= 12 && (p.CurrentLeader.LeaderID != 2 || p.CurrentLeader.LeaderEpoch != 3) {
			t.Fatalf("v%d: %+v", v, p)
		}
		if v >= 16 && (len(r.Brokers) != 1 || r.Brokers[0].Host != "other") {
			t.Fatalf("v%d: %+v", v, r.Brokers)
		}
	}
}

func TestFetchLimits(t *testing.T) {
	f := newFetchTest(t, 2, Config{})
	size := len(f.p(0).add(t, 10))
	f.p(0).add(t, 10)
	f.p(1).add(t, 10)
	served := map[int32]int{}
	for range 10 {
		req := fetchOf(f.topic, 0, 0)
		req.MaxBytes = int32(size / 2)
		got := sizes(f.ask(12, req))
		if got[0]+got[1] != size {
			t.Fatalf("a batch larger than the limit: %v, want one of %d bytes whole", got, size)
		}
		for p, n := range got {
			served[p] += n
		}
	}
	if served[0] == 0 || served[1] == 0 {
		t.Fatalf("one partition took it all: %v", served)
	}
	req := fetchOf(f.topic, 0, 0)
	req.Topics[0].Partitions[0].PartitionMaxBytes = int32(size)
	req.Topics[0].Partitions[1].PartitionMaxBytes = int32(size)
	if got := sizes(f.ask(12, req)); got[0] != size || got[1] != size {
		t.Fatalf("partition_max_bytes: %v", got)
	}
	if got := sizes(f.ask(12, fetchOf(f.topic, 0, 0))); got[0] != 2*size || got[1] != size {
		t.Fatalf("no limit: %v", got)
	}
}

func TestFetchHasAFloorWhenMemoryIsGone(t *testing.T) {
	f := newFetchTest(t, 1, Config{FetchMemoryBytes: 1})
	for range 20 {
		b := batchOf(t, 1, strings.Repeat("x", 10<<10))
		f.p(0).Produce(broker.ProduceRequest{Batch: b}, func(broker.ProduceResult) {})
	}
	if got := sizes(f.ask(12, fetchOf(f.topic, 0)))[0]; got < minFetchShareBytes/2 || got > minFetchShareBytes {
		t.Fatalf("%d bytes, want about %d", got, minFetchShareBytes)
	}
}

// What is there already must not keep a fetch from hearing of more.
func TestFetchWaitsForMoreOfWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFetchTest(t, 1, Config{})
		size := len(f.p(0).add(t, 10))
		req := fetchOf(f.topic, 0)
		req.MaxWaitMillis, req.MinBytes = 10_000, int32(size+1)
		began := time.Now()
		go func() { time.Sleep(time.Second); f.p(0).add(t, 10) }()
		if got := sizes(f.ask(12, req)); got[0] != 2*size || time.Since(began) != time.Second {
			t.Errorf("after %v: %v", time.Since(began), got)
		}
	})
}

func TestFetchWaitsUntilThereIsEnough(t *testing.T) {
	for _, v := range []int16{6, 12, 18} {
		synctest.Test(t, func(t *testing.T) {
			f := newFetchTest(t, 2, Config{})
			size := len(batchOf(t, 10, "value"))
			req := fetchOf(f.topic, 0, 0)
			req.MaxWaitMillis, req.MinBytes = 10_000, int32(size+1)
			began := time.Now()
			go func() {
				time.Sleep(time.Second)
				f.p(0).add(t, 10) // not enough
				time.Sleep(time.Second)
				f.p(0).add(t, 10)
			}()
			r := f.ask(v, req)
			if took := time.Since(began); took != 2*time.Second {
				t.Errorf("v%d: waited %v", v, took)
			}
			if got := sizes(r); got[0] != 2*size {
				t.Errorf("v%d: %v", v, got)
			}
		})
	}
}

func TestFetchAnswersAtTheLatestAfterMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFetchTest(t, 1, Config{MaxFetchWait: time.Minute})
		for asked, want := range map[int32]time.Duration{500: 500 * time.Millisecond, 1 << 30: time.Minute} {
			req := fetchOf(f.topic, 0)
			req.MaxWaitMillis = asked
			began := time.Now()
			f.ask(12, req)
			if took := time.Since(began); took != want {
				t.Errorf("asked for %d ms, took %v", asked, took)
			}
		}
		req := fetchOf(f.topic, 0)
		req.MaxWaitMillis = 30_000
		began := time.Now()
		go func() { time.Sleep(time.Second); f.d.cancel() }()
		f.ask(12, req)
		if took := time.Since(began); took != time.Second {
			t.Errorf("a stopping node took %v", took)
		}
	})
}

func TestFetchIsWokenByAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFetchTest(t, 1, Config{})
		req := fetchOf(f.topic, 0)
		req.MaxWaitMillis = 30_000
		began := time.Now()
		go func() {
			time.Sleep(time.Second)
			f.p(0).set(func(p *fakePartition) { p.err = broker.ErrNotLeader })
		}()
		r := f.ask(12, req)
		if took := time.Since(began); took != time.Second || r.Topics[0].Partitions[0].ErrorCode != kerr.NotLeaderForPartition.Code {
			t.Errorf("after %v: %+v", took, r)
		}
	})
}

func TestFetchTellsWhereLogsParted(t *testing.T) {
	f := newFetchTest(t, 1, Config{})
	f.p(0).add(t, 5)
	req := fetchOf(f.topic, 5)
	req.Topics[0].Partitions[0].LastFetchedEpoch = 4
	if p := f.ask(12, req).Topics[0].Partitions[0]; p.DivergingEpoch.Epoch != 3 || p.DivergingEpoch.EndOffset != 5 || p.ErrorCode != 0 {
		t.Fatalf("%+v", p)
	}
	req.Topics[0].Partitions[0].LastFetchedEpoch = 3
	if p := f.ask(12, req).Topics[0].Partitions[0]; p.DivergingEpoch.Epoch != -1 {
		t.Fatalf("%+v", p)
	}
}

// A record that comes after the read and before the watch wakes nobody.
func TestFetchMissesNothingBetweenReadAndWatch(t *testing.T) {
	for _, epoch := range []int32{epochNone, epochBegin} {
		synctest.Test(t, func(t *testing.T) {
			f := newFetchTest(t, 1, Config{})
			f.p(0).onWatch = func() { f.p(0).onWatch = nil; f.p(0).add(t, 1) }
			req := fetchOf(f.topic, 0)
			req.MaxWaitMillis, req.SessionEpoch = 30_000, epoch
			began := time.Now()
			if got := sizes(f.ask(13, req)); got[0] == 0 || time.Since(began) != 0 {
				t.Errorf("epoch %d: after %v: %v", epoch, time.Since(began), got)
			}
		})
	}
}

// Reading ahead takes as long as reading: it must not keep the answer, and it is of no
// use when others come first the next time.
func TestFetchReadsAheadOnceItHasAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		maxBytes int32
		want     int
	}{
		"all were served":  {1 << 20, 1},
		"one was left out": {100, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inDoor(t, Config{}, func(t *testing.T, _ *Door, cl *fakeCluster, dial func() *rawClient) {
				topic, client := cl.addTopic("t", 2), dial()
				for n := range 2 {
					cl.part(topic, n).add(t, 5)
				}
				req := fetchOf(topic, 0, 0)
				req.MaxBytes = c.maxBytes
				resp := client.ask(12, req).(*kmsg.FetchResponse)
				if got := len(sizes(resp)); got != 2 {
					t.Fatalf("%d partitions in the answer", got)
				}
				synctest.Wait()
				for n := range 2 {
					p := cl.part(topic, n)
					if p.given > 0 && len(p.ahead) != c.want {
						t.Errorf("partition %d: read ahead %d times, want %d", n, len(p.ahead), c.want)
					}
					for _, held := range p.ahead {
						if held > 0 {
							t.Error("read ahead before the answer had left")
						}
					}
				}
			})
		})
	}
}
