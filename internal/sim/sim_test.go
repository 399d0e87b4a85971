package sim

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
)

var (
	seed  = flag.Uint64("sim.seed", 0, "run this seed only, and print everything")
	seeds = flag.Int("sim.seeds", 0, "run so many seeds, from -sim.from on")
	from  = flag.Uint64("sim.from", 1, "the first of -sim.seeds")
	mode  = flag.String("sim.mode", "", "safety or liveness; default: both in turn")
)

func TestSeeds(t *testing.T) {
	n := *seeds
	if n == 0 {
		n = 10
	}
	counts := map[string]int{}
	for i := range n {
		cfg := Config{Seed: *from + uint64(i), Mode: Mode(*mode)}
		if *seed != 0 {
			cfg.Seed = *seed
			cfg.Print = func(s string) { fmt.Println(s) }
		}
		if cfg.Mode == "" {
			cfg.Mode = []Mode{Safety, Liveness}[cfg.Seed%2]
		}
		r := Run(cfg)
		if r.Err != nil {
			t.Errorf("%s", r.Failure())
		}
		for k, v := range r.Counts {
			counts[k] += v
		}
		counts["event"] += r.Events
		if *seed != 0 {
			break
		}
	}
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%9d %s", counts[k], k)
	}
}

// One seed is one run: the whole trace is the same, not only its end.
func TestASeedReplaysExactly(t *testing.T) {
	for seed := range uint64(4) {
		cfg := Config{Seed: 1000 + seed, Mode: []Mode{Safety, Liveness}[seed%2]}
		a, b := Run(cfg), Run(cfg)
		if a.Trace != b.Trace || a.Events != b.Events {
			t.Errorf("seed %d: %d events with trace %016x, then %d with %016x", cfg.Seed, a.Events, a.Trace, b.Events, b.Trace)
		}
	}
}
