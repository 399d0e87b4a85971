package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tube-mq/tube/internal/node"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

func newClusterUnsafeRecoverMasters(a *app) *cobra.Command {
	var (
		dir, lost   string
		dryRun, yes bool
	)
	c := &cobra.Command{
		Use: "masters --data DIR", Short: "Have the masters go on from one of them when the majority is lost for good", Args: exactly(0),
		Long: `Have the masters go on from the data folder of one of them when the majority is lost for
good. Run it on that master's machine, with its node stopped. Of several that are left take the one
whose logs end last: --dry-run says where.

What was acknowledged and did not reach that folder is gone then: topics, settings, nodes,
group memberships and committed offsets. If the other masters can come back, start them instead.

It says what may be lost, and asks before it does anything. When the node is started it leads alone;
the masters that are given up are removed, with what they stored, and their data folders are
refused from then on. It is recorded as an event. New masters are added by starting nodes with
empty data folders; nodes that are kept have to be restarted once.`,
		Example: "  tube cluster unsafe-recover masters --data /var/lib/tube --dry-run\n  tube cluster unsafe-recover masters --data /var/lib/tube",
		RunE: func(*cobra.Command, []string) error {
			if dir == "" {
				return usage("give the folder that tube start --data names", "--data is missing")
			}
			var nodes []record.NodeID
			if lost != "" {
				ids, err := nodeArgs(lost)
				if err != nil {
					return err
				}
				for _, id := range ids {
					nodes = append(nodes, record.NodeID(id))
				}
			}
			return a.recoverMasters(filepath.Clean(dir), nodes, dryRun, yes)
		},
	}
	c.Flags().StringVar(&dir, "data", "", "data folder of the master to go on from; its node is stopped")
	c.Flags().StringVar(&lost, "lost", "", "masters that are given up, for example 2,3; else all others")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what may be lost")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&a.json, "json", false, "write JSON for programs")
	return c
}

func (a *app) recoverMasters(dir string, lost []record.NodeID, dryRun, yes bool) error {
	left, err := node.InspectMasters(vfs.OS{}, dir, lost)
	switch {
	case errors.Is(err, node.ErrNoDataFolder), errors.Is(err, fs.ErrNotExist):
		return notFound("give the folder that tube start --data names", "%v", err)
	case err != nil:
		return err
	}
	out := toMastersLeft(left, dryRun)
	if dryRun {
		return a.result(out, out.write)
	}
	if err := a.agreed(out.write, "masters", yes); err != nil {
		return err
	}
	if _, err := node.RecoverMasters(vfs.OS{}, dir, lost); err != nil {
		return err
	}
	return a.done(out, "The masters go on from node %d. Start it now; then start new masters with empty data folders.", left.Node)
}

type mastersLeft struct {
	Cluster    string      `json:"cluster_id"`
	Node       int32       `json:"node"`
	Groups     []groupLeft `json:"groups"`
	LastChange time.Time   `json:"last_change"`
	Lost       []int32     `json:"lost_masters"`
	Kept       []int32     `json:"kept_nodes"`
	Stuck      []string    `json:"partitions_without_majority"`
	Gone       []string    `json:"partitions_without_replica"`
	DryRun     bool        `json:"dry_run"`
}

type groupLeft struct {
	Name      string `json:"name"`
	Last      uint64 `json:"last_index"`
	Term      uint64 `json:"last_term"`
	Committed uint64 `json:"committed_index"`
}

func toMastersLeft(l *node.MastersLeft, dryRun bool) *mastersLeft {
	out := &mastersLeft{
		Cluster: l.ClusterID, Node: int32(l.Node), LastChange: l.LastChange, Lost: []int32{}, Kept: []int32{},
		Stuck: append([]string{}, l.Stuck...), Gone: append([]string{}, l.Gone...), DryRun: dryRun,
	}
	for _, g := range l.Groups {
		out.Groups = append(out.Groups, groupLeft{g.Whose, uint64(g.Last), uint64(g.Term), uint64(g.Committed)})
	}
	for _, m := range l.Lost {
		out.Lost = append(out.Lost, int32(m.Node))
	}
	for _, n := range l.Kept {
		out.Kept = append(out.Kept, int32(n))
	}
	return out
}

func (l *mastersLeft) write(w io.Writer) error {
	fmt.Fprintf(w, "The masters of cluster %s would go on from what node %d has, and without %s.\n", l.Cluster, l.Node, masterNames(l.Lost))
	fmt.Fprintf(w, "The last change of metadata in it is of %s. Whatever was acknowledged and is not in the logs\nbelow is given up: topics, settings, nodes, group memberships, committed offsets.\n\n", stamp(l.LastChange))
	t := newTable("LOG", "ENDS AT INDEX", "TERM", "COMMITTED")
	for _, g := range l.Groups {
		t.row(g.Name, g.Last, g.Term, g.Committed)
	}
	if err := t.write(w); err != nil {
		return err
	}
	if len(l.Kept) > 0 {
		fmt.Fprintf(w, "\nTo be restarted afterwards: nodes %s.\n", ids(l.Kept))
	}
	if len(l.Stuck) > 0 {
		fmt.Fprintf(w, "\nPartitions that lose their majority with those masters, each to be recovered by itself:\n%s\n", strings.Join(l.Stuck, " "))
	}
	if len(l.Gone) > 0 {
		fmt.Fprintf(w, "\nPartitions that were on those masters only:\n%s\n", strings.Join(l.Gone, " "))
	}
	return nil
}

func masterNames(ids32 []int32) string {
	if len(ids32) == 1 {
		return "master " + ids(ids32)
	}
	return "masters " + ids(ids32)
}
