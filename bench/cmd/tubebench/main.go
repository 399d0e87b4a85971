// Command tubebench is "tube bench" on its own: it measures a broker without
// being it.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tube-mq/tube/bench"
)

func main() {
	root := &cobra.Command{
		Use: "tubebench", Short: "Measure a broker that speaks the Kafka protocol",
		SilenceErrors: true, SilenceUsage: true,
	}
	root.AddCommand(bench.Commands("127.0.0.1:9092")...)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "tubebench:", err)
		os.Exit(1)
	}
}
