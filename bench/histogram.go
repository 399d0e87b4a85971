package bench

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// subBuckets per power of two: a value is told to within 1/64 of itself.
const subBuckets = 64

// histogram counts durations. It may be added to from many goroutines; its size is fixed.
type histogram struct {
	buckets [(64 - 6) * subBuckets]atomic.Int64
	max     atomic.Int64 // nanoseconds
}

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < subBuckets {
		return int(v)
	}
	shift := bits.Len64(v) - 7 // v>>shift has seven bits: 64…127
	return (shift+1)*subBuckets + int(v>>shift) - subBuckets
}

// upperBound is the largest duration that the bucket counts.
func upperBound(bucket int) time.Duration {
	if bucket < subBuckets {
		return time.Duration(bucket)
	}
	shift := bucket/subBuckets - 1
	return time.Duration((uint64(bucket%subBuckets)+subBuckets+1)<<shift - 1)
}

func (h *histogram) add(d time.Duration) {
	h.buckets[bucketOf(d)].Add(1)
	for {
		m := h.max.Load()
		if int64(d) <= m || h.max.CompareAndSwap(m, int64(d)) {
			return
		}
	}
}

// Latency sums up many durations; all are in milliseconds.
type Latency struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	Max   float64 `json:"max_ms"`
}

func (h *histogram) latency() *Latency {
	var l Latency
	for i := range h.buckets {
		l.Count += h.buckets[i].Load()
	}
	at := func(q float64) float64 {
		rank, seen := int64(q*float64(l.Count)), int64(0)
		for i := range h.buckets {
			if seen += h.buckets[i].Load(); seen > rank {
				return millis(min(upperBound(i), time.Duration(h.max.Load())))
			}
		}
		return millis(time.Duration(h.max.Load()))
	}
	l.P50, l.P99, l.P999, l.Max = at(0.5), at(0.99), at(0.999), millis(time.Duration(h.max.Load()))
	return &l
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
