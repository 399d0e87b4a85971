package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newClusterEvents(a *app) *cobra.Command {
	var (
		after  uint64
		limit  int32
		follow bool
	)
	c := &cobra.Command{
		Use: "events", Short: "List what happened in the cluster, newest last", Args: exactly(0),
		Example: "  tube cluster events -n 20 --follow",
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), a.timeout)
			defer cancel()
			r, err := a.cluster().ListEvents(ctx, connect.NewRequest(&tubev1.ListEventsRequest{AfterSeq: after, Limit: limit}))
			if err != nil {
				return a.clusterError(err)
			}
			if err := a.writeEvents(r.Msg.Events); err != nil || !follow {
				return err
			}
			if n := len(r.Msg.Events); n > 0 {
				after = r.Msg.Events[n-1].Seq
			}
			return a.followEvents(c.Context(), after)
		},
	}
	c.Flags().Uint64Var(&after, "after", 0, "only events after this sequence number; 0: the last ones")
	c.Flags().Int32VarP(&limit, "limit", "n", 50, "at most so many, up to 1000")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with events as they happen, until Ctrl-C")
	return a.client(c)
}

// followEvents goes on until the user ends it: from another node, or the same, if the one
// that is followed goes away.
func (a *app) followEvents(ctx context.Context, after uint64) error {
	for lost := false; ; {
		before := after
		err := a.watchEvents(ctx, &after)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && explain(err).code != exitUnavailable:
			return err
		}
		if lost = lost && after == before; !lost {
			a.note("tube: lost the node that was followed; going on as soon as one answers")
			lost = true
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

// watchEvents writes what happens after an event, and moves that on, until the stream ends.
func (a *app) watchEvents(ctx context.Context, after *uint64) error {
	stream, err := a.cluster().WatchEvents(ctx, connect.NewRequest(&tubev1.WatchEventsRequest{AfterSeq: *after}))
	if err != nil {
		return a.clusterError(err)
	}
	defer stream.Close()
	for stream.Receive() {
		events := stream.Msg().Events
		if err := a.writeEvents(events); err != nil {
			return err
		}
		if n := len(events); n > 0 {
			*after = events[n-1].Seq
		}
	}
	return stream.Err()
}

// writeEvents writes a line an event, so that output can go on: JSON lines for programs.
func (a *app) writeEvents(events []*tubev1.Event) error {
	for _, e := range events {
		if a.json {
			if err := json.NewEncoder(a.out).Encode(listedEvent{e.Seq, e.Time.AsTime(), e.Kind, e.Subject, e.Text}); err != nil {
				return err
			}
			continue
		}
		if _, err := fmt.Fprintf(a.out, "%6d  %s  %-24s  %s  %s\n", e.Seq, stamp(e.Time.AsTime()), printable(e.Kind), printable(e.Subject), printable(e.Text)); err != nil {
			return err
		}
	}
	return nil
}

type listedEvent struct {
	Seq     uint64    `json:"seq"`
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"`
	Subject string    `json:"subject"`
	Text    string    `json:"text"`
}
