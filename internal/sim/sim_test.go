package sim

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var (
	seed  = flag.Uint64("sim.seed", 0, "run this seed only, and print everything that happens")
	seeds = flag.Int("sim.seeds", 0, "run so many seeds, from -sim.from on")
	from  = flag.Uint64("sim.from", 1, "the first of -sim.seeds")
	mode  = flag.String("sim.mode", "", "safety or liveness; default: odd seeds show liveness")
)

// runner runs seeds and sums up what happened.
type runner struct {
	t      *testing.T
	counts map[string]int
}

func newRunner(t *testing.T) *runner { return &runner{t, map[string]int{}} }

func (r *runner) run(seed uint64, print func(string)) {
	r.t.Helper()
	cfg := Config{Seed: seed, Mode: Mode(*mode), Print: print}
	if cfg.Mode == "" {
		cfg.Mode = []Mode{Safety, Liveness}[seed%2]
	}
	res := Run(cfg)
	if res.Err != nil {
		r.t.Errorf("%s", res.Failure())
	}
	for k, v := range res.Counts {
		r.counts[k] += v
	}
	r.counts["event"] += res.Events
	r.counts["seed"]++
}

func (r *runner) report() {
	r.t.Helper()
	for _, k := range slices.Sorted(maps.Keys(r.counts)) {
		r.t.Logf("%9d %s", r.counts[k], k)
	}
}

// TestSeeds is what make sim runs.
func TestSeeds(t *testing.T) {
	r := newRunner(t)
	switch {
	case *seed != 0:
		r.run(*seed, func(s string) { fmt.Println(s) })
	case *seeds == 0:
		t.Skip("no seeds are asked for: make sim")
	}
	for i := range *seeds {
		if *seed == 0 {
			r.run(*from+uint64(i), nil)
		}
	}
	r.report()
}

func TestFixedSeeds(t *testing.T) {
	r := newRunner(t)
	for i := range uint64(fixedSeeds) {
		r.run(i+1, nil)
	}
	r.report()
	if fixedSeeds < 10 {
		return
	}
	for _, k := range slices.Concat(kinds, queueKinds) {
		if r.counts[k.name] == 0 {
			t.Errorf("no fault of the kind %q happened", k.name)
		}
	}
	for _, k := range []string{
		"crash in a checkpoint", "crash while starting", "copy", "copy cut off", "replica damaged", "membership changed",
		"message cut off", "message dropped", "message late", "message repeated", "message overtaken",
		"unsynced data lost", "unsynced data lost or torn", "unsynced data kept", "write-ahead log waited for room",
		windowLease, windowLetter, windowIntent, "queue: acknowledged to a later leader", "queue: message suspected", "queue: delayed message handed out",
		"queue: repeat answered with the first one's place", "queue: complete refused", "complete carried out by the leader",
		"consumer asked: unknown", "consumer asked: done", "consumer asked: working", "consumer ended by a message", "consumer spoke late",
		"delayed messages put out of memory: blocks", "delayed messages read from disk: blocks",
		"queue: taken by a broadcast member", "queue: message filtered out", "queue: message handed out and done", "queue: message handed out at a rate",
		"queue: parked message tried again", "queue: id stored anew behind its window", "queue: id stored anew after a group was late", "queue: acquired by partition", "queue: group paused",
		"queue: cursor set elsewhere", "queue: log begins later", "queue: messages lost to retention", "queue: loss told",
		"outcome unknown", "read behind a barrier", "read from a follower", "node sick", "sick node asked to hand over",
	} {
		if r.counts[k] == 0 {
			t.Errorf("it never came to: %s", k)
		}
	}
}

func TestRandomSeeds(t *testing.T) {
	r := newRunner(t)
	for range someSeeds {
		seed := rand.Uint64N(1 << 40)
		t.Logf("seed %d", seed)
		r.run(seed, nil)
	}
}

// One seed is one run: the whole trace is the same, not only its end.
func TestASeedReplaysExactly(t *testing.T) {
	for seed := range uint64(3) {
		cfg := Config{Seed: 1000 + seed, Chaos: 20 * time.Second, Mode: []Mode{Safety, Liveness}[seed%2]}
		a, b := Run(cfg), Run(cfg)
		if a.Trace != b.Trace || a.Events != b.Events {
			t.Errorf("seed %d: %d events with trace %016x, then %d with %016x", cfg.Seed, a.Events, a.Trace, b.Events, b.Trace)
		}
	}
}
