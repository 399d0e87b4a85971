package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func newGroupReset(a *app) *cobra.Command {
	var (
		to     string
		topics []string
		dryRun bool
	)
	c := &cobra.Command{
		Use: "reset GROUP --to start|end|OFFSET|TIME", Short: "Move a group's positions", Args: exactly(1), ValidArgsFunction: a.completeGroups,
		Long: "Move the positions of a group without members, in every topic that it has read or in those named with --topic.\n" +
			"A position outside of what a partition holds becomes its start or end.",
		Example: "  tube group reset billing --to 2026-01-31T06:00:00Z --dry-run",
		RunE: func(c *cobra.Command, args []string) error {
			where, err := parsePosition(to, a.now())
			if err != nil {
				return err
			}
			adm, ctx, done, err := a.admin(c.Context())
			if err != nil {
				return err
			}
			defer done()
			moves, err := planReset(ctx, adm, args[0], topics, where)
			if err != nil {
				return err
			}
			if !dryRun {
				if err := commitReset(ctx, adm, args[0], moves); err != nil {
					return err
				}
			}
			return a.result(resetGroup{args[0], dryRun, moves}, func(w io.Writer) error { return writeReset(w, moves, dryRun) })
		},
	}
	c.Flags().StringVar(&to, "to", "", positionHelp)
	c.Flags().StringArrayVar(&topics, "topic", nil, "only this topic; may be repeated")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be done")
	return a.client(c)
}

type resetGroup struct {
	Name       string  `json:"name"`
	DryRun     bool    `json:"dry_run"`
	Partitions []reset `json:"partitions"`
}

type reset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from_offset"` // -1: nothing was committed
	To        int64  `json:"to_offset"`
}

func planReset(ctx context.Context, adm *kadm.Client, name string, topics []string, where position) ([]reset, error) {
	described, err := adm.DescribeGroups(ctx, name)
	if err != nil {
		return nil, err
	}
	consumers, err := adm.DescribeConsumerGroups(ctx, name)
	if err != nil {
		return nil, err
	}
	if members := len(described[name].Members) + len(consumers[name].Members); members > 0 {
		return nil, conflict("stop them first; tube group describe "+name+" names them", "group %q has %s", name, plural(int64(members), "member"))
	}
	committed, err := adm.FetchOffsets(ctx, name)
	if err == nil {
		err = committed.Error()
	}
	if err != nil && explain(err).code != exitNotFound {
		return nil, err
	}
	if len(topics) == 0 {
		if len(committed) == 0 {
			return nil, notFound("see: tube group list\nto give a new group a position, name the topic with --topic", "group %q has no positions", name)
		}
		topics = slices.Sorted(maps.Keys(committed))
	}
	for _, t := range topics {
		if _, err := topic(ctx, adm, t); err != nil {
			return nil, err
		}
	}
	spans, err := where.resolve(ctx, adm, topics...)
	if err != nil {
		return nil, err
	}
	moves := []reset{}
	for _, t := range slices.Sorted(maps.Keys(spans)) {
		for _, p := range slices.Sorted(maps.Keys(spans[t])) {
			r := reset{t, p, -1, spans[t][p].at}
			if old, ok := committed.Lookup(t, p); ok {
				r.From = old.At
			}
			moves = append(moves, r)
		}
	}
	return moves, nil
}

func commitReset(ctx context.Context, adm *kadm.Client, name string, moves []reset) error {
	offsets := kadm.Offsets{}
	for _, m := range moves {
		offsets.AddOffset(m.Topic, m.Partition, m.To, -1)
	}
	rs, err := adm.CommitOffsets(ctx, name, offsets)
	if err == nil {
		err = rs.Error()
	}
	return err
}

func writeReset(w io.Writer, moves []reset, dryRun bool) error {
	t := newTable("TOPIC", "PARTITION", "FROM", "TO")
	for _, m := range moves {
		from := any("-")
		if m.From >= 0 {
			from = m.From
		}
		t.row(m.Topic, m.Partition, from, m.To)
	}
	if err := t.write(w); err != nil {
		return err
	}
	text := "Moved."
	if dryRun {
		text = "Nothing was changed: this was a dry run."
	}
	_, err := fmt.Fprintf(w, "\n%s\n", text)
	return err
}
