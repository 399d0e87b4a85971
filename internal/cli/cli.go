// Package cli is the tube command: it starts a node, and it is a client of one.
// One file holds one command. Results go to standard output, everything else to
// standard error; exit codes are in exit.go.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/tube-mq/tube/internal/config"
)

// app is what every command has: where it reads and writes, and the flags that
// all client commands share.
type app struct {
	in       io.Reader
	out, err io.Writer
	program  string // as the user typed it, for commands to try
	env      []string
	now      func() time.Time
	exit     func(code int) // ends the process at once

	kafka, http string        // addresses of nodes
	timeout     time.Duration // of one call
	json, quiet bool
}

// Main runs one command line and returns the process's exit code.
func Main(args []string) int {
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer restore()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, restore)
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, program: programName(os.Args[0]), env: os.Environ(), now: time.Now, exit: os.Exit}
	return a.run(ctx, args)
}

func programName(arg0 string) string {
	if name := filepath.Base(arg0); !strings.ContainsRune(arg0, filepath.Separator) || filepath.IsAbs(arg0) {
		return name
	}
	return arg0
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		f := explain(err)
		fmt.Fprint(a.err, f.message())
		return f.code
	}
	return exitOK
}

func (a *app) root() *cobra.Command {
	root := parent("tube", "Message middleware in one binary: streams and queues, durable by default.")
	root.Long = root.Short + `

Start a node with "tube start"; the other commands talk to one.`
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(flagError)
	root.AddGroup(&cobra.Group{ID: "node", Title: "A node:"}, &cobra.Group{ID: "client", Title: "Messages:"},
		&cobra.Group{ID: "admin", Title: "Administration:"})
	add := func(group string, cs ...*cobra.Command) {
		for _, c := range cs {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("node", newStart(a), newLog(a), newBench(a))
	add("client", newProduce(a), newConsume(a), newQueue(a), newMessage(a))
	add("admin", newTopic(a), newGroup(a), newCluster(a))
	root.AddCommand(newVersion(a))
	return root
}

// parent makes a command that only has commands below it.
func parent(use, short string, below ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		var names []string
		for _, sub := range c.Commands() {
			names = append(names, sub.Name())
		}
		hint := fmt.Sprintf("see: %s --help", c.CommandPath())
		if near := config.Nearest(args[0], names); near != "" {
			hint = fmt.Sprintf("did you mean: %s %s?", c.CommandPath(), near)
		}
		return usage(hint, "there is no command %q below %q", args[0], c.CommandPath())
	}}
	c.AddCommand(below...)
	return c
}

// flagError makes mistakes in flags usage errors and names the nearest flag.
func flagError(c *cobra.Command, err error) error {
	hint := fmt.Sprintf("see: %s --help", c.CommandPath())
	if name, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		if near := config.Nearest(name, names); near != "" {
			hint = "did you mean --" + near + "?"
		}
	}
	return usage(hint, "%v", err)
}

// exactly wants n positional arguments, which the command's Use line names.
func exactly(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return usage("usage: "+c.UseLine(), "want %d argument(s) and have %d", n, len(args))
		}
		return nil
	}
}

// client adds the flags of a command that talks to a node.
func (a *app) client(c *cobra.Command) *cobra.Command {
	f := c.Flags()
	f.StringVar(&a.kafka, "kafka", a.envOr("TUBE_KAFKA", "127.0.0.1:9092"), "Kafka address of a node, or several with commas ($TUBE_KAFKA)")
	f.StringVar(&a.http, "http", a.envOr("TUBE_HTTP", "127.0.0.1:9080"), "HTTP address of a node, or several with commas ($TUBE_HTTP)")
	f.DurationVar(&a.timeout, "timeout", 15*time.Second, "longest time to wait for an answer")
	f.BoolVar(&a.json, "json", false, "write JSON for programs")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "no progress and no notes on standard error")
	return c
}

func (a *app) envOr(name, other string) string {
	for _, kv := range a.env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok && v != "" {
			return v
		}
	}
	return other
}

// note tells the user something that is not a result.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
