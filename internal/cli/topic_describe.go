package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/record"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newTopicDescribe(a *app) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "describe NAME", Short: "Tell a topic's partitions, replicas, offsets and settings", Args: exactly(1), ValidArgsFunction: a.completeTopics,
		Long: `Tell a topic's partitions, offsets and settings, and how each of its replicas is:
LAG is how many entries the replica on each of the nodes under REPLICAS lacks. An
entry is a batch, mostly of many messages. What only the cluster knows comes from
the node at --http.`,
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
			a.addReplicas(ctx, adm, out)
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
	Health     string               `json:"health,omitempty"`
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
	// What only the cluster knows; not there if it could not be asked.
	Health string             `json:"health,omitempty"`
	Copies []describedReplica `json:"replica_states,omitempty"`
}

type describedReplica struct {
	Node     int32  `json:"node"`
	Role     string `json:"role"` // leader, voter, learner, lost, unknown
	Last     uint64 `json:"last_entry"`
	Lag      uint64 `json:"lag_entries"`
	Current  bool   `json:"current"`
	NodeUp   bool   `json:"node_up"`
	Adding   bool   `json:"adding"`
	Removing bool   `json:"removing"`
}

type describedSetting struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Changed bool   `json:"changed"`
}

func describeTopic(ctx context.Context, adm *kadm.Client, d kadm.TopicDetail, all bool) (*describedTopic, error) {
	// Of a partition without a leader nobody can tell the offsets: it is shown as that.
	var some *kadm.ShardErrors
	starts, err := adm.ListStartOffsets(ctx, d.Topic)
	if err != nil && !errors.As(err, &some) {
		return nil, err
	}
	ends, err := adm.ListEndOffsets(ctx, d.Topic)
	if err != nil && !errors.As(err, &some) {
		return nil, err
	}
	out := &describedTopic{Name: d.Topic, ID: record.TopicID(d.ID).String(), Partitions: []describedPartition{}, Settings: []describedSetting{}}
	for _, p := range d.Partitions.Sorted() {
		row := describedPartition{Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, InSync: p.ISR, Start: -1, End: -1}
		s, started := starts.Lookup(d.Topic, p.Partition)
		e, ended := ends.Lookup(d.Topic, p.Partition)
		// A partition that cannot answer is shown as that, not the end of the command.
		switch {
		case p.Err != nil:
			row.Error = p.Err.Error()
		case s.Err != nil:
			row.Error = s.Err.Error()
		case e.Err != nil:
			row.Error = e.Err.Error()
		case !started || !ended:
			row.Error = "its leader does not answer"
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

// addReplicas adds what the cluster service knows. A topic is described without it
// too: the node at --http may not be there, or be of another cluster.
func (a *app) addReplicas(ctx context.Context, adm *kadm.Client, d *describedTopic) {
	client := a.cluster()
	status, err := ask(ctx, a, client.Status, &tubev1.StatusRequest{})
	if err != nil {
		a.note("tube: how the replicas are is not known: %v", explain(err).text)
		return
	}
	if meta, err := adm.BrokerMetadata(ctx); err != nil || meta.Cluster != status.ClusterId {
		a.note("tube: how the replicas are is not known: the node at %s (--http) is of another cluster", a.http)
		return
	}
	r, err := ask(ctx, a, client.DescribeReplicas, &tubev1.DescribeReplicasRequest{Topic: d.Name})
	if err != nil {
		a.note("tube: how the replicas are is not known: %v", explain(err).text)
		return
	}
	unwell := 0
	for _, p := range r.Partitions {
		if p.Severity != tubev1.Severity_SEVERITY_HEALTHY {
			unwell++
		}
		for i := range d.Partitions {
			if row := &d.Partitions[i]; row.Partition == p.Partition {
				row.Health, row.Copies = p.Health, toReplicas(p.Replicas)
			}
		}
	}
	d.Health = "healthy"
	if unwell > 0 {
		d.Health = fmt.Sprintf("%d of %s not healthy", unwell, plural(int64(len(r.Partitions)), "partition"))
	}
}

func toReplicas(replicas []*tubev1.Replica) []describedReplica {
	var out []describedReplica
	for _, r := range replicas {
		x := describedReplica{Node: r.Node, Role: "learner", Last: r.LastEntry, Lag: r.Lag, Current: r.Current, NodeUp: r.NodeUp, Adding: r.Adding, Removing: r.Removing}
		switch {
		case r.Lost:
			x.Role = "lost"
		case !r.Known:
			x.Role = "unknown"
		case r.Leader:
			x.Role = "leader"
		case r.Voter:
			x.Role = "voter"
		}
		out = append(out, x)
	}
	return out
}

// lags lists how far replicas are behind; those that come (+) and go (−) stand at
// the end, with their nodes.
func (p *describedPartition) lags() string {
	var at, moving []string
	for _, r := range p.Copies {
		lag := count(int64(r.Lag))
		switch {
		case r.Role == "lost" || r.Role == "unknown":
			lag = map[string]string{"lost": "lost", "unknown": "?"}[r.Role]
		case !r.Current && r.Lag == 0:
			lag = "away" // nothing is missing, as far as the leader knows
		}
		switch {
		case r.Adding:
			moving = append(moving, fmt.Sprintf("+%d:%s", r.Node, lag))
		case r.Removing:
			moving = append(moving, fmt.Sprintf("−%d:%s", r.Node, lag))
			at = append(at, lag)
		default:
			at = append(at, lag)
		}
	}
	return strings.Join(append([]string{strings.Join(at, ",")}, moving...), " ")
}

func (d *describedTopic) write(w io.Writer) error {
	fmt.Fprintf(w, "Topic     %s\nId        %s\nMessages  %s\n", d.Name, d.ID, count(d.Messages))
	if d.Health != "" {
		fmt.Fprintf(w, "Health    %s\n", d.Health)
	}
	fmt.Fprintln(w)
	t := newTable("PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "LAG", "START", "END", "HEALTH", "")
	for _, p := range d.Partitions {
		trouble := p.Error
		if p.Health != "" && p.Leader < 0 { // says it in fewer words
			trouble = ""
		}
		t.row(p.Partition, orNone(p.Leader), p.LeaderEpoch, ids(p.Replicas), ids(p.InSync), p.lags(), p.Start, p.End, p.Health, trouble)
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
