package cli

import "github.com/spf13/cobra"

func newMessage(a *app) *cobra.Command {
	return parent("message", "Find a message", newMessageTrace(a))
}
