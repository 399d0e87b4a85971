package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// pollRecords is how many messages are written before positions are marked.
const pollRecords = 1000

// recheckZone is how often the leader is asked which replica to read from. The
// client tries a replica that is gone for as long as that.
const recheckZone = 10 * time.Second

type consumeFlags struct {
	group    string
	from     string
	n        int64
	format   string
	untilEnd bool
	zone     string
}

func newConsume(a *app) *cobra.Command {
	var f consumeFlags
	c := &cobra.Command{
		Use: "consume TOPIC", Short: "Write a topic's messages to standard output, until Ctrl-C", Args: exactly(1), ValidArgsFunction: a.completeTopics,
		Long: `Write a topic's messages to standard output as they come, until Ctrl-C.

With -g the messages are shared with the other members of the group, and the
group's position moves past what was written; --from then counts only where the
group has no position yet.

` + formatHelp,
		Example: "  tube consume orders --from start -n 10\n  tube consume orders -g billing --format '%p/%o %k: %v\\n'\n  tube consume orders --from -1h --until-end --format json | jq .value",
		RunE: func(c *cobra.Command, args []string) error {
			return a.consume(c.Context(), args[0], f)
		},
	}
	c.Flags().StringVarP(&f.group, "group", "g", "", "read as a member of this group")
	c.Flags().StringVar(&f.from, "from", "start", positionHelp)
	c.Flags().Int64VarP(&f.n, "number", "n", 0, "stop after so many messages; 0: go on")
	c.Flags().StringVar(&f.format, "format", `%v\n`, "how a message is written, or json")
	c.Flags().BoolVarP(&f.untilEnd, "until-end", "e", false, "stop at what is the end when the command starts; not with -g")
	c.Flags().StringVar(&f.zone, "zone", a.envOr("TUBE_ZONE", ""), "read from replicas in this zone where there are some ($TUBE_ZONE)")
	return a.client(c)
}

func (a *app) consume(ctx context.Context, topicName string, f consumeFlags) error {
	from, err := parsePosition(f.from, a.now())
	if err != nil {
		return err
	}
	if f.n < 0 {
		return usage("", "-n must not be negative")
	}
	if f.untilEnd && f.group != "" {
		return usage("use -n to stop", "--until-end does not go with -g: other members may have the rest")
	}
	if a.json {
		f.format = "json"
	}
	write, err := parseFormat(f.format)
	if err != nil {
		return err
	}
	opts, rest, err := a.consumeFrom(ctx, topicName, from, f)
	if err != nil {
		return err
	}
	if f.untilEnd && len(rest) == 0 {
		return nil
	}
	client, err := a.connect(ctx, opts...)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	r := &reader{client: client, out: bufio.NewWriterSize(a.out, 64<<10), write: write, group: f.group != "", left: f.n, rest: rest}
	if f.n == 0 {
		r.left = math.MaxInt64
	}
	err = r.run(ctx)
	if r.group {
		// The user's Ctrl-C must not cost the group its position.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
		defer cancel()
		err = errors.Join(err, client.CommitMarkedOffsets(ctx))
	}
	return err
}

// consumeFrom makes the client's options. With untilEnd it also tells the end of
// every partition that has something to read.
func (a *app) consumeFrom(ctx context.Context, name string, from position, f consumeFlags) ([]kgo.Opt, map[int32]int64, error) {
	adm, ctx, done, err := a.admin(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	// A consumer of a topic that is not there would wait in silence.
	if _, err := topic(ctx, adm, name); err != nil {
		return nil, nil, err
	}
	opts := []kgo.Opt{kgo.ConsumeStartOffset(from.kgo()), kgo.KeepControlRecords()}
	if f.zone != "" {
		opts = append(opts, kgo.Rack(f.zone), kgo.RecheckPreferredReplicaInterval(recheckZone))
	}
	switch {
	case f.group != "":
		return append(opts, kgo.ConsumeTopics(name), kgo.ConsumerGroup(f.group), kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll()), nil, nil
	case !f.untilEnd:
		return append(opts, kgo.ConsumeTopics(name)), nil, nil
	}
	spans, err := from.resolve(ctx, adm, name)
	if err != nil {
		return nil, nil, err
	}
	rest, begin := map[int32]int64{}, map[int32]kgo.Offset{}
	for p, s := range spans[name] {
		if s.at < s.end {
			rest[p], begin[p] = s.end, kgo.NewOffset().At(s.at)
		}
	}
	return append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{name: begin})), rest, nil
}

// reader writes what the client fetches.
type reader struct {
	client *kgo.Client
	out    *bufio.Writer
	write  func(w *bufio.Writer, r *kgo.Record) error
	group  bool
	left   int64           // messages still to write
	rest   map[int32]int64 // partition → end; nil: there is no end
}

// run returns nil when enough was written or the user ended it.
func (r *reader) run(ctx context.Context) error {
	for r.left > 0 && (r.rest == nil || len(r.rest) > 0) {
		fetches := r.client.PollRecords(ctx, int(min(r.left, pollRecords)))
		if err := fatal(fetches); err != nil {
			return err
		}
		if err := r.take(fetches); err != nil {
			return err
		}
		if r.group {
			r.client.AllowRebalance()
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	return nil
}

// take writes messages and marks them only when they have left this process.
func (r *reader) take(fetches kgo.Fetches) error {
	var written []*kgo.Record
	for it := fetches.RecordIter(); !it.Done(); {
		rec := it.Next()
		end, counted := r.rest[rec.Partition]
		if r.rest != nil && (!counted || rec.Offset >= end) {
			continue
		}
		if counted && rec.Offset+1 >= end {
			delete(r.rest, rec.Partition)
		}
		written = append(written, rec)
		if rec.Attrs.IsControl() {
			continue
		}
		if err := r.write(r.out, rec); err != nil {
			return err
		}
		r.left--
	}
	if err := r.out.Flush(); err != nil {
		return err
	}
	if r.group {
		r.client.MarkCommitRecords(written...)
	}
	return nil
}

// fatal returns the first error that trying again does not cure. Others pass: the
// client goes on by itself, and says through its hook whom it cannot reach.
func fatal(fetches kgo.Fetches) error {
	var first error
	fetches.EachError(func(topic string, p int32, err error) {
		var k *kerr.Error
		if first != nil || !errors.As(err, &k) || k.Retriable {
			return
		}
		first = err
		if topic != "" {
			first = fmt.Errorf("topic %s partition %d: %w", topic, p, err)
		}
	})
	return first
}
