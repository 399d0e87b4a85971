package cli

import (
	"github.com/spf13/cobra"

	"github.com/tube-mq/tube/bench"
)

func newBench(*app) *cobra.Command {
	return parent("bench", "Measure a node, or compare two brokers", bench.Commands()...)
}
