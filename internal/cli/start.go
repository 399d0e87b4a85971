package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tube-mq/tube/internal/config"
)

func newStart(a *app) *cobra.Command {
	var file string
	given := map[string]string{}
	c := &cobra.Command{
		Use:   "start",
		Short: "Start a node; Ctrl-C or SIGTERM stops it cleanly",
		Long: `Start a node. Without flags it is a whole cluster of one, on this machine only,
with its data in ./data.

Every flag is also an environment variable (--node-id is TUBE_NODE_ID) and a key
of the YAML file given with --config; docs/configuration.md explains each.`,
		Example: "  tube start\n  tube start --data /var/lib/tube --kafka 127.0.0.1:9192",
		Args:    exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := config.Load(c.Context(), config.Sources{Flags: given, Env: a.env, File: file})
			if err != nil {
				return usage("see: tube start --help and docs/configuration.md", "%s", strings.ReplaceAll(err.Error(), "\n", "\n      "))
			}
			return a.serve(c.Context(), cfg)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&file, "config", "", "YAML file with settings ($TUBE_CONFIG)")
	for _, s := range config.Settings() {
		flag := f.VarPF(&settingFlag{s: s, given: given}, s.Name, "", s.Summary())
		flag.Annotations = map[string][]string{"section": {s.Section}}
		if s.Bool() {
			flag.NoOptDefVal = "true"
		}
	}
	c.SetUsageFunc(startUsage)
	return c
}

// settingFlag remembers what was given; config.Load judges it.
type settingFlag struct {
	s     config.Setting
	given map[string]string
}

func (f *settingFlag) Set(v string) error { f.given[f.s.Name] = v; return nil }
func (f *settingFlag) Type() string       { return "" }
func (f *settingFlag) String() string {
	if f.given == nil {
		return ""
	}
	return f.s.Default
}

// startUsage shows the flags by section: there are many.
func startUsage(c *cobra.Command) error {
	w := c.OutOrStdout()
	fmt.Fprintf(w, "Usage:\n  %s\n\nExamples:\n%s\n", c.UseLine(), c.Example)
	section := "\x00"
	c.Flags().VisitAll(func(f *pflag.Flag) {
		name := strings.Join(f.Annotations["section"], "")
		if name != section {
			section = name
			if name == "" {
				name = "General"
			}
			fmt.Fprintf(w, "\n%s:\n", name)
		}
		text := f.Usage
		if f.DefValue != "" && f.DefValue != "false" {
			text += " (" + f.DefValue + ")"
		}
		fmt.Fprintf(w, "  --%-30s %s\n", f.Name, text)
	})
	return nil
}

// serve runs a node until it is told to stop or fails.
func (a *app) serve(ctx context.Context, cfg *config.Config) error {
	log := newLogger(a.err, cfg)
	node, err := startNode(ctx, cfg, log)
	if err != nil {
		return fmt.Errorf("the node did not start: %w", err)
	}
	fmt.Fprint(a.out, a.welcome(cfg, node.Addrs()))
	select {
	case <-ctx.Done():
	case <-node.Done():
		return a.stoppedByItself(node)
	}
	log.Info("stopping: no new requests, those under way are finished", "timeout", cfg.ShutdownTimeout)
	// The context of the signal has ended; the stop has its own.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.ShutdownTimeout)
	defer cancel()
	began := a.now()
	stopped := make(chan error, 1)
	go func() { stopped <- node.Stop(ctx) }()
	select {
	case err := <-stopped:
		if err != nil {
			return fmt.Errorf("the node did not stop cleanly: %w", err)
		}
	case <-failed(node): // its disk hangs, and the stop with it
		return a.stoppedByItself(node)
	}
	log.Info("stopped", "took", a.now().Sub(began).Round(time.Millisecond))
	return nil
}

// lastWordTimeout is how long a node that ends by itself may take to say so:
// standard error may be a file on the disk that hangs.
const lastWordTimeout = 3 * time.Second

func (a *app) stoppedByItself(node runningNode) error {
	time.AfterFunc(lastWordTimeout, func() { a.exit(exitFailed) })
	return &failure{exitFailed, fmt.Sprintf("the node stopped: %v", node.Err()), "the log above says more; docs/operations.md says what to do about a full or failing disk"}
}

// failed is closed when the node has ended by itself.
func failed(node runningNode) <-chan struct{} {
	out := make(chan struct{})
	go func() { // ends with the node
		<-node.Done()
		if node.Err() != nil {
			close(out)
		}
	}()
	return out
}

func newLogger(w io.Writer, cfg *config.Config) *slog.Logger {
	opts := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == "text" || cfg.LogFormat == "auto" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	opts.ReplaceAttr = durationWithUnit
	return slog.New(slog.NewJSONHandler(w, opts))
}

// durationWithUnit has durations read as in a text log, and as they are configured: JSON
// would have nanoseconds without saying so.
func durationWithUnit(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// welcome says where the node is and what to try, ready to be pasted.
func (a *app) welcome(cfg *config.Config, at config.Addrs) string {
	where := ""
	if at.Kafka != "127.0.0.1:9092" {
		where = " --kafka " + cfg.Advertised(at).Kafka
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Tube %s, node %d, data in %s\n\n", version(), cfg.NodeID, cfg.Data)
	fmt.Fprintf(&b, "  Kafka clients  %s\n  HTTP           http://%s\n\n", at.Kafka, at.HTTP)
	fmt.Fprintf(&b, "Try in another terminal:\n\n")
	fmt.Fprintf(&b, "  %s topic create orders%s\n", a.program, where)
	fmt.Fprintf(&b, "  echo hello | %s produce orders%s\n", a.program, where)
	fmt.Fprintf(&b, "  %s consume orders --from start%s\n\nCtrl-C stops the node.\n", a.program, where)
	return b.String()
}
