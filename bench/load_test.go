package bench

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLoadsRunAgainstTheNullBroker(t *testing.T) {
	b := startTestNull(t, NullConfig{Partitions: 4, RecordBytes: 100, BatchBytes: 10_000, EndOffset: 5_000})
	short := Load{Brokers: []string{b.Addr()}, Topic: "t", RecordBytes: 100, Duration: 100 * time.Millisecond}
	for _, kind := range []string{KindProduce, KindConsume, KindSingle, KindAck} {
		t.Run(kind, func(t *testing.T) {
			l := short
			l.Kind = kind
			if kind == KindConsume {
				l.Records = 20_000
			}
			if kind == KindSingle {
				l.Producers, l.Clients = 4, 2
			}
			if kind == KindAck {
				l.PerSecond = 1000
			}
			r, err := l.Run(testContext(t), nil)
			for err == nil && r.Records == 0 && l.Duration < 10*time.Second {
				l.Duration *= 5 // a busy machine takes longer to begin
				r, err = l.Run(testContext(t), nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.Records == 0 || r.Errors != 0 || r.PerSecond <= 0 {
				t.Fatalf("result %+v, want records and no errors", r)
			}
			if (kind == KindSingle || kind == KindAck) && r.Latency.Count == 0 {
				t.Fatal("no latency was measured")
			}
		})
	}
}

func TestFillProducesExactlyWhatIsAsked(t *testing.T) {
	b := startTestNull(t, NullConfig{Partitions: 4})
	l := Load{Kind: KindFill, Brokers: []string{b.Addr()}, Topic: "t", RecordBytes: 10, Records: 12_345}
	r, err := l.Run(testContext(t), nil)
	if err != nil || r.Records != 12_345 {
		t.Fatalf("result %+v, %v, want 12,345 records", r, err)
	}
}

func TestARateIsKept(t *testing.T) {
	b := startTestNull(t, NullConfig{Partitions: 1})
	l := Load{Kind: KindProduce, Brokers: []string{b.Addr()}, Topic: "t", RecordBytes: 10, PerSecond: 2000, Warmup: 100 * time.Millisecond, Duration: 500 * time.Millisecond}
	r, err := l.Run(testContext(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.PerSecond > 2600 {
		t.Fatalf("%.0f records/s, want about 2,000", r.PerSecond)
	}
}

func TestALoadThatCannotBeDoneSaysSo(t *testing.T) {
	for name, l := range map[string]Load{
		"no broker":    {Kind: KindProduce, RecordBytes: 1},
		"no size":      {Kind: KindProduce, Brokers: []string{"127.0.0.1:1"}},
		"unknown kind": {Kind: "dance", Brokers: []string{"127.0.0.1:1"}, RecordBytes: 1},
		"no members":   {Kind: KindMembers, Brokers: []string{"127.0.0.1:1"}, RecordBytes: 1},
	} {
		if _, err := l.Run(testContext(t), nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestAResultTravelsThroughTheLoadProcess(t *testing.T) {
	b := startTestNull(t, NullConfig{Partitions: 1})
	spec, err := json.Marshal(Load{Kind: KindFill, Brokers: []string{b.Addr()}, Topic: "t", RecordBytes: 10, Records: 100})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := serveLoad(testContext(t), string(spec), &out); err != nil {
		t.Fatal(err)
	}
	r, err := readLoad(&out, nil)
	if err != nil || r.Records != 100 {
		t.Fatalf("result %+v, %v, want 100 records", r, err)
	}
	for said, want := range map[string]string{"": "without a result", `{"error":"no luck"}`: "no luck", "panic: x": "said"} {
		if _, err := readLoad(strings.NewReader(said), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a load that says %q gives the error %v, want one with %q", said, err, want)
		}
	}
}

func TestHistogramTellsQuantilesWithinItsPrecision(t *testing.T) {
	h := new(histogram)
	var all []time.Duration
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		d := time.Duration(random.ExpFloat64() * float64(time.Millisecond))
		all = append(all, d)
		h.add(d)
	}
	slices.Sort(all)
	l := h.latency()
	for _, q := range []struct {
		name      string
		got, want float64
	}{{"p50", l.P50, millis(all[5000])}, {"p99", l.P99, millis(all[9900])}, {"p99.9", l.P999, millis(all[9990])}, {"max", l.Max, millis(all[9999])}} {
		if q.got < q.want || q.got > q.want*(1+1.0/64)+1e-6 {
			t.Errorf("%s is %v, want %v and at most 1/64 more", q.name, q.got, q.want)
		}
	}
	if l.Count != 10_000 {
		t.Errorf("count is %d, want 10,000", l.Count)
	}
}

func TestEveryDurationHasABucket(t *testing.T) {
	for _, d := range []time.Duration{-1, 0, 1, 63, 64, 65, 127, 128, time.Second, time.Hour, 1<<63 - 1} {
		b := bucketOf(d)
		if upperBound(b) < d || b > 0 && upperBound(b-1) >= max(d, 0) {
			t.Errorf("%d is in bucket %d, which ends at %d", d, b, upperBound(b))
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{3, 1, 2}, 2}, {[]float64{4, 1, 2, 3}, 2.5}} {
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
	}
}

func TestFiguresAreEasyToRead(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 1234567.8: "1,234,568", 1000: "1,000", 12.345: "12.3", 0.456: "0.46", 0.0123: "0.0123", -1234: "-1,234"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) is %q, want %q", v, got, want)
		}
	}
}

func TestPairsTakeTurns(t *testing.T) {
	var order strings.Builder
	one := func(name string, rate float64) func(int) (*Result, error) {
		return func(int) (*Result, error) { order.WriteString(name); return &Result{PerSecond: rate}, nil }
	}
	e := &env{pairs: 3}
	as, bs, err := e.pair(one("a", 1), one("b", 2))
	if err != nil || order.String() != "abbaab" {
		t.Fatalf("order %s, %v, want abbaab", order.String(), err)
	}
	for i := range as {
		if as[i].PerSecond != 1 || bs[i].PerSecond != 2 {
			t.Fatalf("pair %d is mixed up", i)
		}
	}
}

func TestScenariosAreChosenByNameOrBeginning(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  int
	}{{nil, len(scenarios)}, {[]string{"idle"}, 1}, {[]string{"produce"}, 4}, {[]string{"idle", "members"}, 2}} {
		if got, err := choose(c.names); err != nil || len(got) != c.want {
			t.Errorf("%v chooses %d scenarios, %v, want %d", c.names, len(got), err, c.want)
		}
	}
	if _, err := choose([]string{"nosuch"}); err == nil {
		t.Error("an unknown name gives no error")
	}
}
