package cli

import (
	"context"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueDead(a *app) *cobra.Command {
	return parent("dead", "Dead letters: list, show, redrive and drop",
		newQueueDeadList(a), newQueueDeadShow(a), newQueueDeadRedrive(a), newQueueDeadDrop(a))
}

// placesArg reads dead letters' places, PARTITION/OFFSET each.
func placesArg(args []string) ([]*tubev1.PartitionOffset, error) {
	var out []*tubev1.PartitionOffset
	for _, s := range args {
		p, ok := placeArg(s)
		if !ok {
			return nil, usage("see: tube queue dead list GROUP", "%q is not PARTITION/OFFSET", s)
		}
		out = append(out, p)
	}
	return out, nil
}

// deadLetter finds one.
func (a *app) deadLetter(ctx context.Context, group, place string) (*tubev1.DeadMessage, error) {
	places, err := placesArg([]string{place})
	if err != nil {
		return nil, err
	}
	r, err := ask(ctx, a, a.queueAdmin().ListDead, &tubev1.ListDeadRequest{Group: group, Messages: places, Values: true})
	if err != nil {
		return nil, err
	}
	if len(r.Messages) == 0 {
		return nil, notFound("see: tube queue dead list "+group, "group %s has no dead letter %s", group, place)
	}
	return r.Messages[0], nil
}

// deadLetters lists dead letters, up to limit; 0: all.
func (a *app) deadLetters(ctx context.Context, group, filter string, limit int) (*tubev1.ListDeadResponse, error) {
	all := &tubev1.ListDeadResponse{}
	err := paged(limit, func(size int32, token string) (int, string, error) {
		r, err := ask(ctx, a, a.queueAdmin().ListDead, &tubev1.ListDeadRequest{Group: group, Filter: filter, Limit: size, PageToken: token})
		if err != nil {
			return 0, "", err
		}
		all.Messages, all.NextPageToken = append(all.Messages, r.Messages...), r.NextPageToken
		return len(r.Messages), r.NextPageToken, nil
	})
	return all, err
}
