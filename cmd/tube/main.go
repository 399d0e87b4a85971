// Command tube is the whole of Tube: a node, and the client to talk to one.
package main

import (
	"os"

	"github.com/tube-mq/tube/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
