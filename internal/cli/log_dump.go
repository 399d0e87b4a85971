package cli

import "github.com/spf13/cobra"

func newLogDump(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "dump DIR",
		Short: "Tell what a stopped node's data folder holds, with any damage",
		Args:  exactly(1),
		RunE: func(*cobra.Command, []string) error {
			return &failure{exitFailed, "this build cannot read data folders yet", ""}
		},
	}
}
