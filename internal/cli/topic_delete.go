package cli

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func newTopicDelete(a *app) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "delete NAME", Aliases: []string{"rm"}, Short: "Delete a topic and its messages", Args: exactly(1), ValidArgsFunction: a.completeTopics,
		RunE: func(c *cobra.Command, args []string) error {
			adm, ctx, done, err := a.admin(c.Context())
			if err != nil {
				return err
			}
			defer done()
			if _, err := topic(ctx, adm, args[0]); err != nil {
				return err
			}
			if !yes && !a.confirm("Delete topic %s and all its messages?", args[0]) {
				return &failure{exitFailed, "nothing was deleted", "--yes does not ask"}
			}
			r, err := adm.DeleteTopic(ctx, args[0])
			if err != nil {
				return serverSays(err, r.ErrMessage)
			}
			return a.done(deleted{args[0], true}, "Deleted topic %s.", args[0])
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return a.client(c)
}

type deleted struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"`
}

// confirm asks a person. Where there is none, in a script, the command line was
// the decision.
func (a *app) confirm(format string, args ...any) bool {
	if !isTerminal(a.in) || !isTerminal(a.err) {
		return true
	}
	fmt.Fprintf(a.err, format+" [y/N] ", args...)
	line, err := bufio.NewReader(a.in).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	return err == nil && (answer == "y" || answer == "yes")
}
