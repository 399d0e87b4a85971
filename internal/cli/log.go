package cli

import "github.com/spf13/cobra"

func newLog(a *app) *cobra.Command {
	return parent("log", "Look into a data folder without a node", newLogDump(a))
}
