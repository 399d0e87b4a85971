package cli

import (
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueCreate(a *app) *cobra.Command {
	var (
		s           queueSettings
		topic, from string
		paused      bool
	)
	c := &cobra.Command{
		Use: "create GROUP --topic TOPIC", Short: "Create a queue group of a topic", Args: exactly(1),
		Long: `Create a queue group of a topic. It has what is sent from now on, or with --from
start also what is there; its members share the messages. A message that fails
too often goes to the topic of dead letters.`,
		Example: "  tube queue create billing --topic orders --max-attempts 5 --backoff 1s,1m,1h\n" +
			`  tube queue create audit --topic orders --from start --filter 'headers["country"] == "de"'`,
		RunE: func(c *cobra.Command, args []string) error {
			if topic == "" {
				return usage("usage: "+c.UseLine(), "which topic? give --topic")
			}
			settings, err := s.read(c)
			if err != nil {
				return err
			}
			where, err := a.position(from)
			if err != nil {
				return err
			}
			if where.GetOffset() != nil {
				return usage("want start, end or a time", "--from %q is of one partition", from)
			}
			r, err := ask(c.Context(), a, a.queueAdmin().CreateGroup, &tubev1.CreateGroupRequest{Group: args[0], Topic: topic, Settings: settings, From: where, Paused: paused})
			if err != nil {
				return err
			}
			return a.said(r, "Created queue group %s of topic %s; dead letters go to %s.", r.Group.Group, r.Group.Topic, r.Group.Settings.GetDeadLetter())
		},
	}
	c.Flags().StringVar(&topic, "topic", "", "the topic that it reads")
	c.Flags().StringVar(&from, "from", "end", "where it begins: start, end or a time (2026-01-31, 2026-01-31T15:04:05Z, -15m, -7d)")
	c.Flags().BoolVar(&paused, "paused", false, "hand nothing out until it is resumed")
	s.flags(c, true)
	return a.client(c)
}

// position reads start, end, a time, or PARTITION/OFFSET.
func (a *app) position(s string) (*tubev1.Position, error) {
	if p, ok := placeArg(s); ok {
		return &tubev1.Position{At: &tubev1.Position_Offset{Offset: p}}, nil
	}
	p, err := parsePosition(s, a.now())
	if err == nil {
		switch p.kind {
		case atStart:
			return &tubev1.Position{At: &tubev1.Position_Start{Start: true}}, nil
		case atEnd:
			return &tubev1.Position{At: &tubev1.Position_End{End: true}}, nil
		case atTime:
			return &tubev1.Position{At: &tubev1.Position_Time{Time: timestamppb.New(p.t)}}, nil
		}
	}
	return nil, usage("want start, end, a time (2026-01-31, 2026-01-31T15:04:05Z, -15m, -7d) or PARTITION/OFFSET", "%q is no position of a queue group", s)
}
