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

// followEvents ends without an error when the user ends it.
func (a *app) followEvents(ctx context.Context, after uint64) error {
	stream, err := a.cluster().WatchEvents(ctx, connect.NewRequest(&tubev1.WatchEventsRequest{AfterSeq: after}))
	switch {
	case err != nil && ctx.Err() != nil: // nothing has happened yet
		return nil
	case err != nil:
		return a.clusterError(err)
	}
	defer stream.Close()
	for stream.Receive() {
		if err := a.writeEvents(stream.Msg().Events); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return nil
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
