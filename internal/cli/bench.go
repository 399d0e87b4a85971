package cli

import "github.com/spf13/cobra"

// benchCommands are the commands below "tube bench".
var benchCommands = func() []*cobra.Command { return nil }

func newBench(*app) *cobra.Command {
	return parent("bench", "Measure a node, or compare two brokers", benchCommands()...)
}
