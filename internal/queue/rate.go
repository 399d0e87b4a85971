package queue

// bucket is a token bucket: rate tokens a second, at most a second's worth (and one)
// at a time. It may be overdrawn by one message. Rate 0: no limit.
type bucket struct {
	rate, tokens float64
	atMillis     int64
}

func newBucket(rate float64, nowMillis int64) bucket {
	return bucket{rate, max(rate, 1), nowMillis}
}

func (b *bucket) refill(nowMillis int64) {
	if nowMillis > b.atMillis {
		b.tokens = min(b.tokens+b.rate*float64(nowMillis-b.atMillis)/1000, max(b.rate, 1))
		b.atMillis = nowMillis
	}
}

// ready says whether something may be handed out; if not, when.
func (b *bucket) ready(nowMillis int64, least float64) (ok bool, atMillis int64) {
	if b.rate <= 0 {
		return true, 0
	}
	b.refill(nowMillis)
	if b.tokens >= least {
		return true, 0
	}
	return false, nowMillis + int64((least-b.tokens)*1000/b.rate) + 1
}

func (b *bucket) take(n float64) {
	if b.rate > 0 {
		b.tokens -= n
	}
}
