package cli

import (
	"context"
	"errors"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueDeadRedrive(a *app) *cobra.Command {
	var filter, rate, to, edit string
	var dry, yes bool
	c := &cobra.Command{
		Use: "redrive GROUP [PARTITION/OFFSET...]", Short: "Send dead letters again", Args: atLeast(1), ValidArgsFunction: a.completeQueues,
		Long: `Send dead letters again, to where each comes from or to another topic. Without
places: all that --filter wants. Each is stored before it is taken from the list, so
that one may be there twice if this is interrupted, and none is lost.`,
		Example: "  tube queue dead redrive billing --filter 'headers[\"country\"] == \"de\"' --rate 50/s --dry-run\n" +
			"  tube queue dead redrive billing 0/17 --value fixed.json",
		RunE: func(c *cobra.Command, args []string) error {
			places, err := placesArg(args[1:])
			if err != nil {
				return err
			}
			q := &tubev1.RedriveDeadRequest{Group: args[0], Messages: places, Filter: filter, To: to, DryRun: dry}
			if rate != "" {
				if q.MessagesPerSecond, err = perSecond(rate, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }); err != nil {
					return usage("for example: --rate 50/s", "--rate %q is no number a second", rate)
				}
			}
			if edit != "" {
				if q.Edited, err = a.edited(c.Context(), args, edit); err != nil {
					return err
				}
			}
			if len(places) == 0 && !dry && !yes && !a.confirm("Send the dead letters of %s again?", args[0]) {
				return &failure{exitFailed, "nothing was sent", "--yes does not ask"}
			}
			sum, err := a.redrive(c.Context(), q)
			if err != nil {
				return err
			}
			if dry {
				return a.said(sum, "%s would be sent again.", plural(sum.Matched, "dead letter"))
			}
			return a.said(sum, "Sent %s again.", plural(sum.Redriven, "dead letter"))
		},
	}
	f := c.Flags()
	f.StringVar(&filter, "filter", "", "only those for which this CEL expression is true")
	f.StringVar(&rate, "rate", "", "not faster than this (50/s)")
	f.StringVar(&to, "to", "", "to this topic; without: to where each comes from")
	f.StringVar(&edit, "value", "", "of exactly one: with what is in this file instead of its value")
	f.BoolVar(&dry, "dry-run", false, "only count them")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask")
	return a.client(c)
}

// edited is a dead letter with another value.
func (a *app) edited(ctx context.Context, args []string, file string) (*tubev1.OutgoingMessage, error) {
	if len(args) != 2 {
		return nil, usage("", "--value is of one dead letter, which is to be named")
	}
	value, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, notFound("", "%v", err)
	} else if err != nil {
		return nil, err
	}
	m, err := a.deadLetter(ctx, args[0], args[1])
	if err != nil {
		return nil, err
	}
	for _, h := range m.RawHeaders {
		delete(m.Headers, h.Name) // the list has all of that name
	}
	return &tubev1.OutgoingMessage{Value: value, Key: m.Key, Headers: m.Headers, RawHeaders: m.RawHeaders}, nil
}

// redrive goes on until nothing is left, and sums up.
func (a *app) redrive(ctx context.Context, q *tubev1.RedriveDeadRequest) (*tubev1.RedriveDeadResponse, error) {
	sum := &tubev1.RedriveDeadResponse{}
	for {
		r, err := askWithin(ctx, a, a.timeout+queueAdminTime, a.queueAdmin().RedriveDead, q)
		if err != nil {
			if sum.Redriven > 0 {
				a.note("%s were sent before that.", plural(sum.Redriven, "dead letter"))
			}
			return nil, err
		}
		sum.Matched, sum.Redriven = sum.Matched+r.Matched, sum.Redriven+r.Redriven
		if q.PageToken = r.NextPageToken; q.PageToken == "" {
			return sum, nil
		}
	}
}
