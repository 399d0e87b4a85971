package cli

import (
	"github.com/spf13/cobra"

	"github.com/tube-mq/tube/bench"
)

func newBench(a *app) *cobra.Command {
	kafka := a.envOr("TUBE_KAFKA", "127.0.0.1:9092")
	return parent("bench", "Measure a node, or compare two brokers", bench.Commands(kafka)...)
}
