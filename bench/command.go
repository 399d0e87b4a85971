package bench

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// nullReadyPrefix stands before the address in what a null broker says when it listens.
const nullReadyPrefix = "null broker at "

// Commands are the commands of "tube bench": what a user calls, and two hidden
// ones by which this program starts itself as another process. kafka is the broker to
// measure if no flag names another; of several with commas the first.
func Commands(kafka string) []*cobra.Command {
	kafka, _, _ = strings.Cut(kafka, ",")
	return []*cobra.Command{
		simpleCommand(kafka, KindProduce, "produce", "Produce as fast as the broker takes it, or at a rate"),
		simpleCommand(kafka, KindConsume, "consume", "Read a topic from its start, again and again"),
		simpleCommand(kafka, KindE2E, "e2e", "Measure the time from produce to consume at a rate"),
		compareCommand(kafka),
		runCommand(),
		nullCommand(),
		loadCommand(),
	}
}

func loadCommand() *cobra.Command {
	return &cobra.Command{
		Use: "load JSON", Hidden: true, Args: cobra.ExactArgs(1), SilenceUsage: true,
		Short: "Do one load and write its result as JSON",
		RunE: func(cmd *cobra.Command, args []string) error {
			return serveLoad(cmd.Context(), args[0], cmd.OutOrStdout())
		},
	}
}

func nullCommand() *cobra.Command {
	var addr string
	var c NullConfig
	cmd := &cobra.Command{
		Use: "null", Hidden: true, Args: cobra.NoArgs, SilenceUsage: true,
		Short: "Be a broker that stores nothing",
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := ListenNull(addr, c)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), nullReadyPrefix+b.Addr())
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			<-ctx.Done()
			return b.Close()
		},
	}
	f := cmd.Flags()
	f.StringVar(&addr, "listen", "127.0.0.1:0", "address to listen on")
	f.IntVar(&c.Partitions, "partitions", 1, "partitions of every topic")
	f.IntVar(&c.RecordBytes, "size", kib, "size of the records that fetch serves, in bytes")
	f.IntVar(&c.BatchBytes, "batch-bytes", 1_000_000, "size of the batches that fetch serves, in bytes")
	f.Int64Var(&c.EndOffset, "end", 0, "offset after the last record of every partition")
	return cmd
}

// workFlags are the flags that say what a load does.
type workFlags struct {
	kafka      string
	topic      string
	size       int
	partitions int
	records    int64
	rate       float64
	duration   time.Duration
	warmup     time.Duration
	linger     time.Duration
	json       bool
}

func (w *workFlags) add(cmd *cobra.Command, kind string) {
	f := cmd.Flags()
	f.StringVarP(&w.topic, "topic", "t", "", "topic to use (default: a new one, deleted at the end)")
	f.IntVarP(&w.size, "size", "s", kib, "size of a record, in bytes")
	f.IntVarP(&w.partitions, "partitions", "p", 4, "partitions of the topic, if it is created")
	f.DurationVarP(&w.duration, "duration", "d", 10*time.Second, "how long to measure")
	f.DurationVar(&w.warmup, "warmup", time.Second, "how long to run before measuring")
	f.BoolVar(&w.json, "json", false, "write the result as JSON")
	switch kind {
	case KindProduce:
		f.Float64VarP(&w.rate, "rate", "r", 0, "records a second (default: as many as possible)")
		f.DurationVar(&w.linger, "linger", 5*time.Millisecond, "how long the client gathers records for a batch")
		f.Int64VarP(&w.records, "records", "n", 0, "so many records instead of a duration")
	case KindConsume:
		f.Int64VarP(&w.records, "records", "n", 0, "records in the topic, if another one is read than is filled")
	case KindE2E:
		f.Float64VarP(&w.rate, "rate", "r", 10_000, "records a second")
		f.DurationVar(&w.linger, "linger", 0, "how long the client gathers records for a batch")
	}
}

func (w *workFlags) check() error {
	switch {
	case w.size < 1 || w.size > 64*mib:
		return fmt.Errorf("--size %d is not from 1 to %d", w.size, 64*mib)
	case w.partitions < 1 || w.partitions > maxNullPartitions:
		return fmt.Errorf("--partitions %d is not from 1 to %d", w.partitions, maxNullPartitions)
	case w.duration <= 0 || w.duration > 24*time.Hour:
		return fmt.Errorf("--duration %v is not from a moment to a day", w.duration)
	case w.warmup < 0 || w.warmup > time.Hour:
		return fmt.Errorf("--warmup %v is not from 0 to 1h", w.warmup)
	case w.rate < 0 || w.records < 0:
		return errors.New("--rate and --records cannot be negative")
	}
	return nil
}

func (w *workFlags) load(kind, broker, topic string) Load {
	l := Load{
		Kind: kind, Brokers: []string{broker}, Topic: topic, RecordBytes: w.size, PerSecond: w.rate, Records: w.records,
		Warmup: w.warmup, Duration: w.duration, Linger: w.linger,
	}
	if kind == KindProduce && w.records > 0 {
		l.Kind = KindFill
	}
	return l
}
