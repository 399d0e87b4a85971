package queue

// bucket is a token bucket: rate tokens a second, at most a second's worth (and one)
// at a time. It may be overdrawn by one message. Rate 0: no limit.
type bucket struct {
	rate, tokens float64
	atMillis     int64
}

// set changes the rate. A bucket that had no limit is full; else what is in it stays, so
// nobody gets more by having the rate changed again and again.
func (b *bucket) set(rate float64, nowMillis int64) {
	full := b.rate <= 0
	b.refill(nowMillis)
	b.rate = rate
	if b.tokens = min(b.tokens, max(rate, 1)); full {
		b.tokens = max(rate, 1)
	}
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

// Rates are what a group, or a member of a broadcast group, may be handed out a second by
// one node: the group's rate, shared out by partition. The partitions that the node leads
// have theirs together, so that one with much may have what others do not need. They
// outlast the desks. Who guards the desks guards them.
type Rates struct {
	messages, bytes bucket
	desks           int
}

// NewRates begins with what comes in a second.
func NewRates() *Rates { return &Rates{} }

// Desks is how many desks share them.
func (r *Rates) Desks() int { return r.desks }

func (r *Rates) join(s Settings, partitions int, nowMillis int64) {
	r.desks++
	r.configure(s, partitions, nowMillis)
}

func (r *Rates) leave(s Settings, partitions int, nowMillis int64) {
	if r.desks--; r.desks > 0 { // the last one's share waits for the next
		r.configure(s, partitions, nowMillis)
	}
}

func (r *Rates) configure(s Settings, partitions int, nowMillis int64) {
	share := float64(r.desks) / float64(partitions)
	r.messages.set(s.Rate*share, nowMillis)
	r.bytes.set(s.RateBytes*share, nowMillis)
}

// ready says whether a message may be handed out; if not, why and when.
func (r *Rates) ready(nowMillis int64) (why blocked, atMillis int64) {
	if ok, at := r.messages.ready(nowMillis, 1); !ok {
		return rateMessages, at
	}
	if ok, at := r.bytes.ready(nowMillis, 0); !ok {
		return rateBytes, at
	}
	return free, 0
}

func (r *Rates) take(bytes int) {
	r.messages.take(1)
	r.bytes.take(float64(bytes))
}
