package sim

import (
	"container/heap"
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// Mode is what a run is to show.
type Mode string

// The modes.
const (
	// Safety: anything goes, then everybody is healed and everything is compared.
	Safety Mode = "safety"
	// Liveness: one node stays away at the end; the others must make progress.
	Liveness Mode = "liveness"
)

// Config of a run. Zero values are replaced by the defaults named here.
type Config struct {
	Seed uint64
	Mode Mode
	// Chaos is how long things go wrong, in virtual time: 40 s.
	Chaos time.Duration
	// Print, if set, is given every line of the trace.
	Print func(string)
}

// Result of a run.
type Result struct {
	Config
	Err    error  // what must hold and did not; nil: nothing
	Trace  uint64 // a hash of everything that happened, in order
	Events int
	Counts map[string]int // how often what happened
	Last   []string       // the trace's end
}

// Failure tells what went wrong and how to see it again.
func (r Result) Failure() string {
	s := ""
	for _, l := range r.Last {
		s += l + "\n"
	}
	return fmt.Sprintf("%sseed %d (%s): %v\nsee it again: make sim SEED=%d MODE=%s", s, r.Seed, r.Mode, r.Err, r.Seed, r.Mode)
}

// cluster is one run.
type cluster struct {
	cfg   Config
	rng   *rand.Rand
	now   time.Duration
	queue events
	seq   uint64
	done  int

	nodes   []*node
	teams   []*team
	clients []*client
	// clientIDs is the highest id given.
	clientIDs uint32
	net       network
	faults    faults
	check     *checker
	queues    *queues // nil: this run has no queue groups
	trace     trace
	// calm: nothing goes wrong any more.
	calm bool
	// absent is the node that stays away at the end; nil: none.
	absent *node
	// delayedBytes is what a node keeps in memory of the index of delayed messages; 0: all.
	delayedBytes int64
}

// raftRandom serialises runs: raft takes its election timeouts from
// crypto/rand.Reader, which is one for the process.
var raftRandom sync.Mutex

type pcgReader struct{ rng *rand.PCG }

func (r pcgReader) Read(b []byte) (int, error) {
	for i := 0; i < len(b); i += 8 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], r.rng.Uint64())
		copy(b[i:], w[:])
	}
	return len(b), nil
}

// Run runs one seed.
func Run(cfg Config) (res Result) {
	if cfg.Mode == "" {
		cfg.Mode = Safety
	}
	if cfg.Chaos == 0 {
		cfg.Chaos = 40 * time.Second
	}
	raftRandom.Lock()
	defer raftRandom.Unlock()
	defer func(r io.Reader) { crand.Reader = r }(crand.Reader)
	crand.Reader = pcgReader{rand.NewPCG(cfg.Seed, 2)}

	c := &cluster{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 1))}
	c.trace.print = cfg.Print
	c.net.c = c
	c.faults = faults{c: c, counts: map[string]int{}}
	c.check = newChecker(c)
	defer func() {
		if p := recover(); p != nil {
			if _, ours := p.(violation); !ours {
				c.check.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}
		res = Result{Config: cfg, Err: c.check.err, Trace: c.trace.sum(), Events: c.done, Counts: c.faults.counts, Last: c.trace.last()}
	}()
	c.run()
	return res
}

func (c *cluster) run() {
	c.build()
	c.faults.begin()
	c.until(c.cfg.Chaos, nil)
	c.heal()
	c.converge()
}

// build makes the nodes, groups and clients.
func (c *cluster) build() {
	nodes := 3 + c.rng.IntN(3)
	c.log("%d nodes, %s", nodes, c.cfg.Mode)
	for i := range nodes {
		c.nodes = append(c.nodes, newNode(c, record.NodeID(i+1)))
	}
	if c.cfg.Seed%3 > 0 {
		c.delayedBytes = int64(c.cfg.Seed%3-1)*128 + 1 // none, or some
	}
	c.makeTeams()
	c.makeQueues()
	for _, n := range c.nodes {
		n.start()
	}
	c.makeClients()
	if c.queues != nil {
		c.queues.makeClients()
		c.queues.makeOperator()
	}
	c.makeReaders()
	c.makeTravellers()
}

// event is something that happens at a time.
type event struct {
	at   time.Duration
	seq  uint64
	node *node // whose it is: void if that has crashed since, late if it pauses
	life int
	do   func()
}

type events []*event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(*event)) }
func (q *events) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return e
}

func (c *cluster) push(e *event) {
	c.seq++
	e.seq = c.seq
	heap.Push(&c.queue, e)
}

// after has f called later.
func (c *cluster) after(d time.Duration, f func()) { c.push(&event{at: c.now + d, do: f}) }

// until runs events up to a time, or until done says so; it reports whether it did.
func (c *cluster) until(end time.Duration, done func() bool) bool {
	for len(c.queue) > 0 && c.queue[0].at <= end {
		e := heap.Pop(&c.queue).(*event)
		c.now = max(c.now, e.at)
		if n := e.node; n != nil {
			if n.life != e.life {
				continue
			}
			if n.pausedUntil > c.now {
				e.at = n.pausedUntil
				c.push(e)
				continue
			}
		}
		c.done++
		e.do()
		if done != nil && c.done%64 == 0 && done() {
			return true
		}
	}
	c.now = max(c.now, end)
	return done != nil && done()
}

// between is a random duration.
func (c *cluster) between(from, to time.Duration) time.Duration {
	return from + time.Duration(c.rng.Int64N(int64(to-from)+1))
}

// oneIn is true once in n times.
func (c *cluster) oneIn(n int) bool { return c.rng.IntN(n) == 0 }

func (c *cluster) log(format string, args ...any) { c.trace.add(c.now, format, args...) }
