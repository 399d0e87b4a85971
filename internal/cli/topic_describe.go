package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/record"
)

func newTopicDescribe(a *app) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "describe NAME", Short: "Tell a topic's partitions, offsets and settings", Args: exactly(1), ValidArgsFunction: a.completeTopics,
		RunE: func(c *cobra.Command, args []string) error {
			adm, ctx, done, err := a.admin(c.Context())
			if err != nil {
				return err
			}
			defer done()
			d, err := topic(ctx, adm, args[0])
			if err != nil {
				return err
			}
			out, err := describeTopic(ctx, adm, d, all)
			if err != nil {
				return err
			}
			return a.result(out, out.write)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "show every setting, not only those that were changed")
	return a.client(c)
}

type describedTopic struct {
	Name       string               `json:"name"`
	ID         string               `json:"id"`
	Messages   int64                `json:"messages"`
	Partitions []describedPartition `json:"partitions"`
	Settings   []describedSetting   `json:"settings"`
}

type describedPartition struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"` // -1: none
	LeaderEpoch int32   `json:"leader_epoch"`
	Replicas    []int32 `json:"replicas"`
	InSync      []int32 `json:"in_sync_replicas"`
	Start       int64   `json:"start_offset"`
	End         int64   `json:"end_offset"`
	Error       string  `json:"error,omitempty"`
}

type describedSetting struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Changed bool   `json:"changed"`
}

func describeTopic(ctx context.Context, adm *kadm.Client, d kadm.TopicDetail, all bool) (*describedTopic, error) {
	starts, err := adm.ListStartOffsets(ctx, d.Topic)
	if err != nil {
		return nil, err
	}
	ends, err := adm.ListEndOffsets(ctx, d.Topic)
	if err != nil {
		return nil, err
	}
	out := &describedTopic{Name: d.Topic, ID: record.TopicID(d.ID).String(), Partitions: []describedPartition{}, Settings: []describedSetting{}}
	for _, p := range d.Partitions.Sorted() {
		row := describedPartition{Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, InSync: p.ISR, Start: -1, End: -1}
		s, _ := starts.Lookup(d.Topic, p.Partition)
		e, _ := ends.Lookup(d.Topic, p.Partition)
		// A partition that cannot answer is shown as that, not the end of the command.
		switch {
		case p.Err != nil:
			row.Error = p.Err.Error()
		case s.Err != nil:
			row.Error = s.Err.Error()
		case e.Err != nil:
			row.Error = e.Err.Error()
		default:
			row.Start, row.End = s.Offset, e.Offset
			out.Messages += max(e.Offset-s.Offset, 0)
		}
		out.Partitions = append(out.Partitions, row)
	}
	configs, err := adm.DescribeTopicConfigs(ctx, d.Topic)
	if err != nil {
		return nil, err
	}
	for _, rc := range configs {
		if rc.Err != nil {
			return nil, serverSays(rc.Err, rc.ErrMessage)
		}
		for _, cfg := range rc.Configs {
			changed := cfg.Source == kmsg.ConfigSourceDynamicTopicConfig
			if changed || all {
				out.Settings = append(out.Settings, describedSetting{cfg.Key, cfg.MaybeValue(), changed})
			}
		}
	}
	slices.SortFunc(out.Settings, func(a, b describedSetting) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (d *describedTopic) write(w io.Writer) error {
	fmt.Fprintf(w, "Topic     %s\nId        %s\nMessages  %s\n\n", d.Name, d.ID, count(d.Messages))
	t := newTable("PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "START", "END", "")
	for _, p := range d.Partitions {
		t.row(p.Partition, p.Leader, p.LeaderEpoch, ids(p.Replicas), ids(p.InSync), p.Start, p.End, p.Error)
	}
	if err := t.write(w); err != nil {
		return err
	}
	if len(d.Settings) == 0 {
		_, err := fmt.Fprintln(w, "\nAll settings are the defaults; --all shows them.")
		return err
	}
	fmt.Fprintln(w)
	t = newTable("SETTING", "VALUE", "")
	for _, s := range d.Settings {
		t.row(s.Name, s.Value, map[bool]string{true: "changed", false: "default"}[s.Changed])
	}
	return t.write(w)
}

func ids(nodes []int32) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(nodes), " ", ","), "[]")
}
