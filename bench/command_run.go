package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// report is what a run of scenarios writes as JSON.
type report struct {
	At       time.Time  `json:"at"`
	CPUs     int        `json:"cpus"`
	Go       string     `json:"go"`
	Duration string     `json:"duration"` // counted time of each run
	Pairs    int        `json:"pairs"`
	Outcomes []*Outcome `json:"outcomes"`
}

// runCommand runs scenarios.
func runCommand() *cobra.Command {
	e := &env{}
	var list bool
	var jsonPath string
	var restart []string
	cmd := &cobra.Command{
		Use: "run [SCENARIO]...", Short: "Run the scenarios of docs/performance.md, all or those named",
		Long: "Starts nodes and null brokers on free loopback ports, loads them from a process of its own,\nand compares the figures with what they must be. A name may be the beginning of several.",
		Args: cobra.ArbitraryArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, err := choose(args)
			if err != nil {
				return err
			}
			if list {
				for _, s := range chosen {
					fmt.Fprintf(cmd.OutOrStdout(), "%-16s %s\n", s.name, s.title)
				}
				return nil
			}
			if err := e.prepare(cmd.Parent().CommandPath(), restart); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			rep := report{At: time.Now().UTC(), CPUs: runtime.NumCPU(), Go: runtime.Version(), Duration: e.duration.String(), Pairs: e.pairs}
			rep.Outcomes = e.runAll(ctx, chosen)
			if e.dir == defaultDir {
				_ = os.Remove(e.dir) // empty now, unless something else is in it
			}
			ok, err := writeTable(cmd.OutOrStdout(), rep.Outcomes)
			if err == nil && jsonPath != "" {
				err = writeJSON(jsonPath, rep)
			}
			if err == nil && !ok {
				err = errors.New("not every figure is what it must be")
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&list, "list", false, "list the scenarios")
	f.StringVar(&e.binary, "server", "", "the tube binary to start (default: this one, or bin/tube)")
	f.StringArrayVar(&e.nodeFlags, "server-flag", nil, "a flag for \"tube start\", e.g. --server-flag=--tail-memory=256MiB; may be repeated")
	f.StringVar(&e.dir, "dir", "", "folder for data folders; choose the disk to measure (default: bench-data in the working folder)")
	f.IntVar(&e.pairs, "pairs", 5, "how many times each")
	f.DurationVarP(&e.duration, "duration", "d", 5*time.Second, "how long one run is measured")
	f.DurationVar(&e.warmup, "warmup", time.Second, "how long one runs before it is measured")
	f.Int64Var(&e.fillBytes, "fill", 2*gib, "consume: bytes there are to read")
	f.Float64Var(&e.rate, "rate", 260_000, "produce and consume at once: records a second")
	f.StringSliceVar(&restart, "restart-gib", []string{"10", "1"}, "restart: sizes of the data folder in GiB")
	f.IntVar(&e.members.Count, "members", 15_000, "members: how many")
	f.IntVar(&e.members.GroupSize, "group-size", 10, "members: how many in a group")
	f.DurationVar(&e.members.Interval, "heartbeat", 3*time.Second, "members: time between heartbeats")
	f.IntVar(&e.crowd, "crowd", 100_000, "crowd: how many members; ten in a group")
	f.StringVar(&e.peers, "peers", "", "queue: the program of bench/peers, to compare with another broker")
	f.StringVar(&e.peer, "peer", "jetstream", "queue: which one: jetstream, jetstream-always, nsq or rabbitmq")
	f.Int64Var(&e.messages, "messages", 500_000, "queue: how many messages there are to receive")
	f.Int64Var(&e.delayed, "delayed", 1_000_000, "queue: how many messages are sent with a delay")
	f.Int64Var(&e.held, "held", 1_000_000, "queue-holes: how many messages are in hand, with as many between them that are done")
	f.StringVar(&e.pprof, "pprof", "", "folder for CPU and heap profiles of the node, one for each run")
	f.StringVar(&jsonPath, "json", "", "file to write all figures into")
	return cmd
}

// defaultDir is for data folders, below the working folder.
const defaultDir = "bench-data"

// choose returns the scenarios whose name is, or begins with, one of the names;
// without names all.
func choose(names []string) (chosen []scenario, err error) {
	if len(names) == 0 {
		return scenarios, nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(scenarios, func(s scenario) bool { return strings.HasPrefix(s.name, name) }) {
			return nil, fmt.Errorf("there is no scenario %q; see --list", name)
		}
	}
	for _, s := range scenarios {
		if slices.Contains(names, s.name) || slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(s.name, n) }) {
			chosen = append(chosen, s)
		}
	}
	return chosen, nil
}

// prepare fills in what follows from the flags.
func (e *env) prepare(commandPath string, restart []string) (err error) {
	if e.self, err = self(commandPath); err != nil {
		return err
	}
	if e.binary == "" {
		e.binary = e.self.path
		if !strings.HasPrefix(filepath.Base(e.binary), "tube") || strings.HasPrefix(filepath.Base(e.binary), "tubebench") {
			e.binary = filepath.Join("bin", "tube")
		}
	}
	if _, err := exec.LookPath(e.binary); err != nil {
		return fmt.Errorf("find the node to start: %w; build it, or name it with --server", err)
	}
	if e.dir == "" {
		e.dir = defaultDir
	}
	for _, text := range restart {
		var size float64
		if _, err := fmt.Sscanf(text, "%g", &size); err != nil || size <= 0 || size > 10_000 {
			return fmt.Errorf("--restart-gib %q is not a size in GiB", text)
		}
		e.restart = append(e.restart, int64(size*gib))
	}
	switch {
	case e.pairs < 1 || e.pairs > 1000:
		return fmt.Errorf("--pairs %d is not from 1 to 1000", e.pairs)
	case e.duration < 100*time.Millisecond || e.duration > time.Hour || e.warmup < 0 || e.warmup > time.Hour:
		return errors.New("--duration must be from 100ms to 1h, --warmup at most 1h")
	case e.members.Count < 1 || e.members.GroupSize < 1 || e.members.Interval < 10*time.Millisecond:
		return errors.New("--members and --group-size must be at least 1, --heartbeat at least 10ms")
	case e.crowd < crowdGroupSize*crowdNodes:
		return fmt.Errorf("--crowd must be at least %d", crowdGroupSize*crowdNodes)
	case e.messages < 1 || e.delayed < 5 || e.held < 1:
		return errors.New("--messages and --held must be at least 1, --delayed at least 5")
	case e.fillBytes < mib || e.rate < 1:
		return errors.New("--fill must be at least 1 MiB, --rate at least 1")
	}
	e.members.Partitions = 100
	e.show = newDisplay()
	return nil
}

// runAll runs each scenario; one that fails does not keep the others.
func (e *env) runAll(ctx context.Context, chosen []scenario) (outcomes []*Outcome) {
	for i, s := range chosen {
		o := &Outcome{Name: s.name, Title: s.title}
		outcomes = append(outcomes, o)
		e.show.line("[%d/%d] %s: %s", i+1, len(chosen), s.name, s.title)
		if err := s.run(ctx, e, o); err != nil {
			o.Error = err.Error()
			e.show.line("%s: %v", s.name, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return outcomes
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
