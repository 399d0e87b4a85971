package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newClusterUnsafeRecover(a *app) *cobra.Command {
	var (
		survivor, nodes    string
		dryRun, yes, force bool
	)
	c := &cobra.Command{
		Use: "unsafe-recover TOPIC/PARTITION --survivor NODE|none", Short: "Go on from one replica when the majority is lost for good", Args: exactly(1), ValidArgsFunction: a.completePartition,
		Long: `If it is the masters that have lost their majority, see: unsafe-recover masters --help.

Go on from one replica of a partition whose majority is lost for good, or with
"none" from an empty one. Acknowledged records that did not reach that replica
are gone then, and their offsets may be given again. If the other nodes can come
back, wait for them instead.

It says what may be lost, and asks for the partition's name before it does
anything. It is recorded as an event.`,
		Example: "  tube cluster unsafe-recover orders/3 --survivor 2 --dry-run\n  tube cluster unsafe-recover orders/3 --survivor 2",
		RunE: func(c *cobra.Command, args []string) error {
			q, err := recoverRequest(args[0], survivor, nodes)
			if err != nil {
				return err
			}
			q.Force = force
			return a.unsafeRecover(c.Context(), q, dryRun, yes)
		},
	}
	c.Flags().StringVar(&survivor, "survivor", "", "node whose replica to go on from; none: the partition starts empty")
	c.Flags().StringVar(&nodes, "nodes", "", "where it shall lie then, for example 2,4,5; else the master chooses")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what may be lost")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&force, "force", false, "although a majority seems to be there")
	c.AddCommand(newClusterUnsafeRecoverMasters(a))
	return a.client(c)
}

func recoverRequest(name, survivor, nodes string) (q *tubev1.UnsafeRecoverRequest, err error) {
	q = &tubev1.UnsafeRecoverRequest{Survivor: -1}
	if q.Topic, q.Partition, err = partitionArg(name); err != nil {
		return nil, err
	}
	if survivor == "" {
		return nil, usage("give the node whose replica to go on from, or none", "--survivor is missing")
	}
	if survivor != "none" {
		if q.Survivor, err = nodeArg(survivor); err != nil {
			return nil, err
		}
	}
	if nodes != "" {
		q.Nodes, err = nodeArgs(nodes)
	}
	return q, err
}

// unsafeRecover says what may be lost and, unless that was all that was asked for,
// does it once somebody has confirmed.
func (a *app) unsafeRecover(ctx context.Context, q *tubev1.UnsafeRecoverRequest, dryRun, yes bool) error {
	name := fmt.Sprintf("%s/%d", q.Topic, q.Partition)
	q.DryRun = true
	r, err := ask(ctx, a, a.cluster().UnsafeRecover, q)
	if err != nil {
		return err
	}
	out := toRecovery(q, r)
	if dryRun {
		return a.result(out, out.write)
	}
	if err := a.agreed(out.write, name, yes); err != nil {
		return err
	}
	q.DryRun, q.Confirm = false, name
	if r, err = ask(ctx, a, a.cluster().UnsafeRecover, q); err != nil {
		return err
	}
	out.DryRun = false
	where := "nodes"
	if len(r.Nodes) == 1 {
		where = "node"
	}
	return a.done(out, "Recovered %s: it lies on %s %s now.", name, where, ids(r.Nodes))
}

type recovery struct {
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	Survivor  int32      `json:"survivor"` // -1: none
	Nodes     []int32    `json:"nodes"`
	MayLose   string     `json:"may_lose"`
	Ends      []knownEnd `json:"known_ends"`
	DryRun    bool       `json:"dry_run"`
}

type knownEnd struct {
	Node  int32     `json:"node"`
	End   int64     `json:"end_offset"`
	Time  time.Time `json:"time"`
	Alive bool      `json:"alive"`
}

func toRecovery(q *tubev1.UnsafeRecoverRequest, r *tubev1.UnsafeRecoverResponse) *recovery {
	out := &recovery{q.Topic, q.Partition, q.Survivor, append([]int32{}, r.Nodes...), r.MayLose, []knownEnd{}, true}
	for _, e := range r.Ends {
		out.Ends = append(out.Ends, knownEnd{e.Node, e.EndOffset, e.Time.AsTime(), e.Alive})
	}
	return out
}

func (r *recovery) write(w io.Writer) error {
	from := fmt.Sprintf("from the replica on node %d", r.Survivor)
	if r.Survivor < 0 {
		from = "empty"
	}
	fmt.Fprintf(w, "%s/%d would go on %s, on nodes %s.\n%s\n", r.Topic, r.Partition, from, ids(r.Nodes), sentence(r.MayLose))
	if len(r.Ends) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := newTable("NODE", "ENDS AT", "AS OF", "")
	for _, e := range r.Ends {
		t.row(e.Node, e.End, stamp(e.Time), map[bool]string{false: "not heard of"}[e.Alive])
	}
	return t.write(w)
}

// agreed shows what may be lost, on standard error unless a program asks, and, unless
// yes was said beforehand, has the user type a name.
func (a *app) agreed(show func(io.Writer) error, name string, yes bool) error {
	if !a.json {
		if err := show(a.err); err != nil {
			return err
		}
	}
	if yes {
		return nil
	}
	return a.confirmName(name)
}

// confirmName has a person type what is to be given up. Where there is none
// nothing is: this must not happen by mistake.
func (a *app) confirmName(name string) error {
	if !isTerminal(a.in) || !isTerminal(a.err) {
		return usage("--yes does it without being asked", "this gives up data, and there is nobody to ask")
	}
	fmt.Fprintf(a.err, "\nType %s to go on: ", name)
	line, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != name {
		return &failure{exitFailed, "nothing was changed", ""}
	}
	return nil
}
