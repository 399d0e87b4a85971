package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func newGroupDescribe(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "describe GROUP", Short: "Tell a group's members, positions and lag", Args: exactly(1), ValidArgsFunction: a.completeGroups,
		RunE: func(c *cobra.Command, args []string) error {
			adm, ctx, done, err := a.admin(c.Context())
			if err != nil {
				return err
			}
			defer done()
			g, err := group(ctx, adm, args[0])
			if err != nil {
				return err
			}
			out := describeGroup(g)
			return a.result(out, out.write)
		},
	}
	return a.client(c)
}

type describedGroup struct {
	Name        string            `json:"name"`
	State       string            `json:"state"`
	Type        string            `json:"protocol_type"`
	Assignor    string            `json:"assignor"`
	Coordinator int32             `json:"coordinator"`
	TotalLag    int64             `json:"total_lag"`
	Members     []describedMember `json:"members"`
	Partitions  []describedLag    `json:"partitions"`
}

type describedMember struct {
	ID       string `json:"id"`
	Instance string `json:"instance_id,omitempty"`
	Client   string `json:"client_id"`
	Host     string `json:"host"`
}

type describedLag struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed_offset"` // -1: nothing committed
	End       int64  `json:"end_offset"`
	Lag       int64  `json:"lag"` // -1: not known
	Member    string `json:"member_id,omitempty"`
	Error     string `json:"error,omitempty"`
}

func describeGroup(g kadm.DescribedGroupLag) *describedGroup {
	out := &describedGroup{Name: g.Group, State: g.State, Type: g.ProtocolType, Assignor: g.Protocol, Coordinator: g.Coordinator.NodeID,
		Members: []describedMember{}, Partitions: []describedLag{}}
	for _, m := range g.Members {
		d := describedMember{ID: m.MemberID, Client: m.ClientID, Host: m.ClientHost}
		if m.InstanceID != nil {
			d.Instance = *m.InstanceID
		}
		out.Members = append(out.Members, d)
	}
	for _, l := range g.Lag.Sorted() {
		d := describedLag{Topic: l.Topic, Partition: l.Partition, Committed: l.Commit.At, End: l.End.Offset, Lag: l.Lag}
		if l.Member != nil {
			d.Member = l.Member.MemberID
		}
		if l.Err != nil {
			d.Error = l.Err.Error()
		} else {
			out.TotalLag += max(l.Lag, 0)
		}
		out.Partitions = append(out.Partitions, d)
	}
	return out
}

func (g *describedGroup) write(w io.Writer) error {
	fmt.Fprintf(w, "Group        %s\nState        %s\nAssignor     %s\nCoordinator  node %d\nLag          %s\n", printable(g.Name), g.State, printable(g.Assignor), g.Coordinator, count(g.TotalLag))
	if len(g.Members) > 0 {
		fmt.Fprintln(w)
		t := newTable("MEMBER", "INSTANCE", "CLIENT", "HOST")
		for _, m := range g.Members {
			t.row(m.ID, m.Instance, m.Client, m.Host)
		}
		if err := t.write(w); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	t := newTable("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "")
	for _, p := range g.Partitions {
		committed := any("-")
		if p.Committed >= 0 {
			committed = p.Committed
		}
		t.row(p.Topic, p.Partition, committed, p.End, p.Lag, p.Member, p.Error)
	}
	return t.write(w)
}
