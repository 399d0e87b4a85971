package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// simpleCommand does one load against a broker that runs.
func simpleCommand(kafka, kind, use, short string) *cobra.Command {
	w := &workFlags{}
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := w.check(); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			p, err := self(cmd.Parent().CommandPath())
			if err != nil {
				return err
			}
			r, err := workOnce(ctx, p, w, kind, w.kafka, newDisplay())
			if err != nil {
				return err
			}
			return w.write(cmd.OutOrStdout(), r)
		},
	}
	cmd.Flags().StringVar(&w.kafka, "kafka", kafka, "Kafka address of the broker ($TUBE_KAFKA)")
	w.add(cmd, kind)
	return cmd
}

func (w *workFlags) write(out io.Writer, r *Result) error {
	if w.json {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	if _, err := fmt.Fprintln(out, r); err != nil {
		return err
	}
	if r.Errors > 0 {
		return fmt.Errorf("%d errors, the first: %s", r.Errors, r.FirstError)
	}
	return nil
}

// workOnce prepares the topic, does the load and cleans up what it made.
func workOnce(ctx context.Context, p program, w *workFlags, kind, broker string, show *display) (*Result, error) {
	topic, records := w.topic, w.records
	if topic == "" {
		topic = fmt.Sprintf("bench-%d", time.Now().UnixNano())
		if err := createTopic(ctx, broker, topic, w.partitions); err != nil {
			return nil, err
		}
		defer func() {
			if err := deleteTopic(context.WithoutCancel(ctx), broker, topic); err != nil {
				show.line("%v", err)
			}
		}()
	}
	if kind == KindConsume {
		var err error
		if records, err = readable(ctx, p, w, broker, topic, show); err != nil {
			return nil, err
		}
	}
	l := w.load(kind, broker, topic)
	l.Records = records
	return p.runLoad(ctx, l, func(pr Progress) { show.progress(kind, pr) })
}

// readable says how many records there are to read; a topic of our own is filled first.
func readable(ctx context.Context, p program, w *workFlags, broker, topic string, show *display) (int64, error) {
	if w.topic == "" {
		records := w.records
		if records == 0 {
			records = gib / int64(w.size)
		}
		l := Load{Kind: KindFill, Brokers: []string{broker}, Topic: topic, RecordBytes: w.size, Records: records, Linger: 100 * time.Millisecond, RoundRobin: true}
		_, err := p.runLoad(ctx, l, func(pr Progress) { show.progress("fill", pr) })
		return records, err
	}
	var records int64
	err := withAdmin(ctx, broker, func(ctx context.Context, a *kadm.Client) error {
		starts, err := a.ListStartOffsets(ctx, topic)
		if err != nil {
			return err
		}
		ends, err := a.ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		if err := errors.Join(starts.Error(), ends.Error()); err != nil {
			return fmt.Errorf("offsets of %s: %w", topic, err)
		}
		ends.Each(func(end kadm.ListedOffset) {
			if start, ok := starts.Lookup(end.Topic, end.Partition); ok {
				records += end.Offset - start.Offset
			}
		})
		return nil
	})
	if err == nil && records == 0 {
		err = fmt.Errorf("topic %s is empty: there is nothing to read", topic)
	}
	return records, err
}

// compareCommand measures two brokers in alternating pairs.
func compareCommand(kafka string) *cobra.Command {
	w := &workFlags{}
	var a, b, work string
	var pairs int
	cmd := &cobra.Command{
		Use: "compare", Short: "Measure a broker against another, or against one that stores nothing",
		Long: "Runs the same load on A and B in turns and reports the median of the ratios B/A.\nWithout --a, A is a null broker started here: the most that client and network allow.",
		Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := w.check(); err != nil {
				return err
			}
			if pairs < 1 || pairs > 1000 {
				return fmt.Errorf("--pairs %d is not from 1 to 1000", pairs)
			}
			if work != KindProduce && work != KindConsume && work != KindE2E {
				return fmt.Errorf("--work %q is not produce, consume or e2e", work)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			p, err := self(cmd.Parent().CommandPath())
			if err != nil {
				return err
			}
			return compare(ctx, cmd.OutOrStdout(), p, w, work, a, b, pairs)
		},
	}
	f := cmd.Flags()
	f.StringVar(&a, "a", "", "address of A (default: a null broker)")
	f.StringVar(&b, "b", kafka, "address of B")
	f.StringVarP(&work, "work", "w", KindProduce, "produce, consume or e2e")
	f.IntVar(&pairs, "pairs", 5, "how many times each")
	f.Float64VarP(&w.rate, "rate", "r", 0, "records a second (default: as many as possible; e2e: 10000)")
	f.DurationVar(&w.linger, "linger", 5*time.Millisecond, "how long the client gathers records for a batch")
	f.Int64VarP(&w.records, "records", "n", 0, "consume: records to fill a topic with (default: 1 GiB of them)")
	w.add(cmd, "")
	return cmd
}

func compare(ctx context.Context, out io.Writer, p program, w *workFlags, work, a, b string, pairs int) error {
	if work == KindE2E && w.rate == 0 {
		w.rate = 10_000
	}
	nameA := a
	if a == "" {
		if work == KindE2E {
			return errors.New("a null broker keeps nothing, so nothing comes out of it end to end: name a broker with --a")
		}
		if w.records == 0 {
			w.records = gib / int64(w.size)
		}
		null, err := p.startNull(ctx, NullConfig{Partitions: w.partitions, RecordBytes: w.size, BatchBytes: 1_000_000, EndOffset: w.records / int64(w.partitions)})
		if err != nil {
			return err
		}
		defer null.kill()
		a, nameA = null.kafka, "null"
	}
	e := &env{pairs: pairs, show: newDisplay()}
	one := func(name, broker string) func(int) (*Result, error) {
		return func(i int) (*Result, error) {
			r, err := workOnce(ctx, p, w, work, broker, e.show)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			e.show.line("%s on %s: %s", pairName(i), name, r)
			return r, nil
		}
	}
	as, bs, err := e.pair(one(nameA, a), one(b, b))
	if err != nil {
		return err
	}
	o := &Outcome{Name: work, Title: fmt.Sprintf("%s: %s against %s", work, b, nameA)}
	o.ratios(nameA, as, b, bs, 0)
	if work == KindE2E {
		for _, side := range []struct {
			name string
			runs []*Result
		}{{nameA, as}, {b, bs}} {
			o.add(side.name+" p50", medianOf(side.runs, func(r *Result) float64 { return r.Latency.P50 }), "ms")
			o.add(side.name+" p99", medianOf(side.runs, func(r *Result) float64 { return r.Latency.P99 }), "ms")
		}
	}
	if w.json {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(o)
	}
	_, err = writeTable(out, []*Outcome{o})
	return err
}
