package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tube-mq/tube/internal/config"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueDescribe(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "describe GROUP", Short: "Show a queue group: settings, backlog, what is in hand", Args: exactly(1), ValidArgsFunction: a.completeQueues,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := ask(c.Context(), a, a.queueAdmin().GetGroup, &tubev1.GetGroupRequest{Group: args[0]})
			if err != nil {
				return err
			}
			return a.contract(r, func(w io.Writer) error { return writeQueue(w, r) })
		},
	}
	return a.client(c)
}

func writeQueue(w io.Writer, r *tubev1.GetGroupResponse) error {
	g, s := r.Group, r.Group.GetSettings()
	fmt.Fprintf(w, "Group:        %s%s\nTopic:        %s\n", printable(g.Group), map[bool]string{true: " (paused)"}[g.Paused], printable(g.Topic))
	fmt.Fprintf(w, "Delivery:     %s, order %s, ack %s, lease %s (up to %s), %d in flight for each partition\n", s.GetMode(), s.GetOrder(), s.GetAck(),
		config.FormatDuration(s.GetLease().AsDuration()), config.FormatDuration(s.GetMaxHandling().AsDuration()), s.GetMaxInFlight())
	var steps []string
	for _, d := range s.GetBackoff() {
		steps = append(steps, config.FormatDuration(d.AsDuration()))
	}
	fmt.Fprintf(w, "Failures:     %d attempts, back-off %s, then to %s\n", s.GetMaxAttempts(), strings.Join(steps, ", "), printable(s.GetDeadLetter()))
	if s.GetMessagesPerSecond() > 0 || s.GetBytesPerSecond() > 0 {
		fmt.Fprintf(w, "Rate:         %g messages/s, %g bytes/s (0: no limit)\n", s.GetMessagesPerSecond(), s.GetBytesPerSecond())
	}
	if s.GetFilter() != "" {
		fmt.Fprintf(w, "Filter:       %s\n", printable(s.GetFilter()))
	}
	if t := r.Total; t != nil {
		fmt.Fprintf(w, "Backlog:      %s, with %s\n", plural(t.Backlog, "message"), plural(int64(t.Consumers), "consumer"))
	}
	used := int32(0)
	for _, p := range r.Partitions {
		used = max(used, p.RetentionUsedPercent)
	}
	if used > 0 || r.Total.GetLost() > 0 {
		fmt.Fprintf(w, "Retention:    %d %% used at the worst partition, %s lost to it\n", used, plural(r.Total.GetLost(), "message"))
	}
	t := newTable("PARTITION", "LEADER", "DONE UP TO", "END", "READY", "IN FLIGHT", "BACKING OFF", "DELAYED", "BLOCKED", "DYING", "OLDEST")
	for _, p := range r.Partitions {
		if !p.Known {
			t.row(p.Partition, "no answer", "", "", "", "", "", "", "", "", "")
			continue
		}
		t.row(p.Partition, p.Leader, p.Floor, p.End, p.Ready, p.InFlight, p.BackingOff, p.Delayed, p.Blocked, p.Dying, stampOf(p.Oldest))
	}
	return t.write(w)
}
