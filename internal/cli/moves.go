package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tube-mq/tube/internal/config"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// moveFlags are those of every command that moves replicas.
type moveFlags struct {
	throttle string
	dryRun   bool
	wait     bool
}

func (f *moveFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.throttle, "throttle", "", "most bytes per second that a node takes in by copying, all partitions together, for example 50MB/s")
	fs.BoolVar(&f.dryRun, "dry-run", false, "only say what would move")
	fs.BoolVar(&f.wait, "wait", false, "return when all is where it shall be; shows progress on a terminal")
}

func (f *moveFlags) bytesPerSecond() (int64, error) {
	if f.throttle == "" {
		return 0, nil
	}
	n, err := config.ParseSize(strings.TrimSuffix(f.throttle, "/s"))
	if err != nil || n == 0 {
		return 0, usage("for example: --throttle 50MB/s", "--throttle %q is not a number of bytes per second", f.throttle)
	}
	return n, nil
}

type movedPartitions struct {
	DryRun bool             `json:"dry_run"`
	Moves  []movedPartition `json:"moves"`
	// Done: with --wait, all is there.
	Done bool `json:"done"`
}

type movedPartition struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	From      []int32 `json:"from"`
	To        []int32 `json:"to"`
	Copies    int     `json:"copies"` // replicas to be made; 0: only the order changes
}

func toMoves(moves []*tubev1.PartitionMove) []movedPartition {
	out := []movedPartition{}
	for _, m := range moves {
		p := movedPartition{Topic: m.Topic, Partition: m.Partition, From: m.From, To: m.To}
		for _, n := range m.To {
			if !slices.Contains(m.From, n) {
				p.Copies++
			}
		}
		out = append(out, p)
	}
	return out
}

// moved reports what moves, or would, and with --wait waits for it. nothing is
// what to say if nothing does.
func (a *app) moved(c *cobra.Command, moves []*tubev1.PartitionMove, f *moveFlags, nothing string) error {
	out := &movedPartitions{DryRun: f.dryRun, Moves: toMoves(moves)}
	if len(moves) == 0 {
		out.Done = !f.dryRun
		return a.done(out, "%s", nothing)
	}
	if f.wait && !f.dryRun {
		if err := a.awaitMoves(c.Context(), moves); err != nil {
			return err
		}
		out.Done = true
	}
	return a.result(out, func(w io.Writer) error { return out.write(w, a.program) })
}

func (m *movedPartitions) write(w io.Writer, program string) error {
	t := newTable("PARTITION", "FROM", "TO", "COPIES")
	copies := 0
	for _, p := range m.Moves {
		t.row(fmt.Sprintf("%s/%d", p.Topic, p.Partition), ids(p.From), ids(p.To), p.Copies)
		copies += p.Copies
	}
	if err := t.write(w); err != nil {
		return err
	}
	what := plural(int64(len(m.Moves)), "partition") + ", " + plural(int64(copies), "copy")
	if copies != 1 {
		what = strings.TrimSuffix(what, "copys") + "copies"
	}
	switch {
	case m.DryRun:
		fmt.Fprintf(w, "\nWould move %s. Nothing was changed.\n", what)
	case m.Done:
		fmt.Fprintf(w, "\nMoved %s.\n", what)
	default:
		fmt.Fprintf(w, "\nMoving %s. See how far it is with: %s topic reassign --list\n", what, program)
	}
	return nil
}

// pollEvery is how often what is waited for is looked at.
const pollEvery = 200 * time.Millisecond

// poll calls look until it says done, an error that does not pass, or ctx ends.
// A node that does not answer is asked again for as long as --timeout says.
func (a *app) poll(ctx context.Context, look func() (done bool, err error)) error {
	good := a.now()
	for {
		done, err := look()
		switch {
		case err == nil:
			good = a.now()
		case ctx.Err() != nil || explain(err).code != exitUnavailable || a.now().Sub(good) > a.timeout:
			return err
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// awaitMoves returns when partitions are where they shall be.
func (a *app) awaitMoves(ctx context.Context, moves []*tubev1.PartitionMove) error {
	type name struct {
		topic string
		n     int32
	}
	of := map[name]bool{}
	topics := map[string]bool{}
	for _, m := range moves {
		of[name{m.Topic, m.Partition}], topics[m.Topic] = true, true
	}
	only := ""
	if len(topics) == 1 {
		only = moves[0].Topic
	}
	p, client := a.newProgress("partition", 0), a.cluster()
	defer p.end()
	var stuck time.Time // since
	err := a.poll(ctx, func() (bool, error) {
		r, err := ask(ctx, a, client.ListReassignments, &tubev1.ListReassignmentsRequest{Topic: only})
		if err != nil {
			return false, err
		}
		left, share := 0, float64(len(of))
		var mine []*tubev1.Reassignment
		for _, m := range r.Reassignments {
			if of[name{m.Topic, m.Partition}] {
				left++
				share -= 1 - arrived(m)
				mine = append(mine, m)
			}
		}
		nodes, err := ask(ctx, a, client.ListNodes, &tubev1.ListNodesRequest{})
		if err != nil {
			return false, err
		}
		switch id := downTarget(mine, nodes.Nodes); {
		case id == 0:
			stuck = time.Time{}
		case stuck.IsZero():
			stuck = a.now()
		case a.now().Sub(stuck) > stuckFor:
			return false, conflict("start it, and they go on; to take them back: "+a.program+" topic reassign TOPIC --cancel",
				"node %d, which partitions are to be copied to, is down, and they wait for it", id)
		}
		p.share(share/float64(len(of)), fmt.Sprintf("%d of %s moved", len(of)-left, plural(int64(len(of)), "partition")))
		return left == 0, nil
	})
	p.end()
	if errors.Is(err, context.Canceled) {
		return &failure{exitFailed, "interrupted: the partitions go on moving", "see: " + a.program + " topic reassign --list\nto take it back: " + a.program + " topic reassign TOPIC --cancel"}
	}
	if err != nil {
		return err
	}
	return a.checkArrived(ctx, moves)
}

// downTarget is a node that is down and that something is to be copied to; 0: none.
func downTarget(moves []*tubev1.Reassignment, nodes []*tubev1.Node) int32 {
	for _, m := range moves {
		for _, n := range nodes {
			if n.State == "down" && slices.Contains(m.Adding, n.Id) {
				return n.Id
			}
		}
	}
	return 0
}

// arrived is how much of what has to be copied is there, from 0 to 1.
func arrived(m *tubev1.Reassignment) float64 {
	if m.EntriesNeeded == 0 {
		return 0
	}
	// The last step is a change of members, which takes its moment too.
	return 0.95 * float64(m.EntriesThere) / float64(m.EntriesNeeded)
}

// checkArrived makes sure that partitions are where they should be: somebody else
// may have sent them elsewhere meanwhile.
func (a *app) checkArrived(ctx context.Context, moves []*tubev1.PartitionMove) error {
	topics := map[string][]*tubev1.PartitionReplicas{}
	client := a.cluster()
	for _, m := range moves {
		if topics[m.Topic] == nil {
			r, err := ask(ctx, a, client.DescribeReplicas, &tubev1.DescribeReplicasRequest{Topic: m.Topic})
			if err != nil {
				return err
			}
			topics[m.Topic] = r.Partitions
		}
		var at []int32
		for _, p := range topics[m.Topic] {
			for _, r := range p.Replicas {
				if p.Partition == m.Partition && !r.Lost && !r.Removing {
					at = append(at, r.Node)
				}
			}
		}
		if !slices.Equal(slices.Sorted(slices.Values(at)), slices.Sorted(slices.Values(m.To))) {
			return conflict("see: "+a.program+" cluster events", "partition %s/%d is on nodes %s, not on %s: somebody or something else moved it meanwhile", m.Topic, m.Partition, ids(at), ids(m.To))
		}
	}
	return nil
}

// isCode reports whether a node answered with this code.
func isCode(err error, code connect.Code) bool {
	var rpc *connect.Error
	return errors.As(err, &rpc) && rpc.Code() == code
}
