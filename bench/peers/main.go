// Peers runs brokers that Tube's queues are compared with, and loads them. It is a
// module of its own, so that the product does not depend on them. "tubebench run
// queue --peers BINARY" calls it:
//
//	peers serve DIR   NATS JetStream with file storage and default settings; it says
//	                  its address on standard output and ends when it is told to
//	peers load JSON   one load, of the fields of bench.Load that are needed; its
//	                  result is a line of JSON, as that of "tubebench load"
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(ctx, args[1])
	case len(args) == 2 && args[0] == "load":
		var l load
		if err := json.Unmarshal([]byte(args[1]), &l); err != nil {
			return fmt.Errorf("read the load: %w", err)
		}
		enc := json.NewEncoder(os.Stdout)
		r, err := l.run(ctx)
		if err != nil {
			return enc.Encode(map[string]string{"error": err.Error()})
		}
		return enc.Encode(map[string]*result{"result": r})
	}
	return fmt.Errorf("usage: peers serve DIR | peers load JSON")
}

// serve is nats-server -js -sd DIR.
func serve(ctx context.Context, dir string) error {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoSigs: true})
	if err != nil {
		return fmt.Errorf("make the server: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		return fmt.Errorf("the server was not ready in time")
	}
	fmt.Println("peer at", s.Addr())
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}
