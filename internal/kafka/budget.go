package kafka

import (
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// budgets are the limits of memory over all connections.
type budgets struct {
	// requests: frames from before they are read until they are answered or wait
	// for something. Whoever does not fit waits in line.
	requests     *semaphore.Weighted
	requestBytes int64 // all of it
	// parked: requests that wait for other clients or messages. Nobody waits in
	// line here, as a line of waiters could wait for one of its own: whoever does
	// not fit is answered without waiting.
	parked *semaphore.Weighted
	// fetched: records on their way to consumers, in bytes left.
	fetched *atomic.Int64
}

func newBudgets(cfg *Config) budgets {
	b := budgets{
		requests: semaphore.NewWeighted(cfg.RequestMemoryBytes), requestBytes: cfg.RequestMemoryBytes,
		parked:  semaphore.NewWeighted(cfg.RequestMemoryBytes),
		fetched: new(atomic.Int64),
	}
	b.fetched.Store(cfg.FetchMemoryBytes)
	return b
}

// decodeFactor is what a request that is not Produce is charged for a byte of its
// frame, as decoding makes arrays of it. An array of empty elements may become
// 32 times its bytes; records stay in the frame.
const decodeFactor = 8

// charge is what a request takes of the budget for requests.
func (b *budgets) charge(h head) int64 {
	n := int64(h.sizeBytes)
	if h.key != keyProduce {
		n *= decodeFactor
	}
	return min(n, b.requestBytes)
}

// minFetchShareBytes is what a fetch response may have of records however
// little is left, so that slow readers cannot starve the others.
const minFetchShareBytes = 64 << 10

// fetchShare grants memory for one fetch response: what it asks for, but at most
// a quarter of what is left, so that the share of each shrinks as memory gets
// scarce and nobody ever waits. The grant is given back with returnFetchShare.
func (b *budgets) fetchShare(askedBytes int) int {
	for {
		left := b.fetched.Load()
		grant := int64(askedBytes)
		if left/4 < grant {
			grant = max(left/4, min(minFetchShareBytes, grant))
		}
		if b.fetched.CompareAndSwap(left, left-grant) {
			return int(grant)
		}
	}
}

func (b *budgets) returnFetchShare(bytes int) { b.fetched.Add(int64(bytes)) }
