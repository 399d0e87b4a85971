// Peers runs brokers that Tube's queues are compared with, and loads them. It is a
// module of its own, so that the product does not depend on them. "tubebench run
// queue --peers BINARY --peer NAME" calls it:
//
//	peers serve NAME DIR   the broker of that name, which keeps its data in DIR; it
//	                       says its address on standard output, with the process that
//	                       does the work if that is another, and ends when it is told to
//	peers load JSON        one load, of the fields of bench.Load that are needed; its
//	                       result is a line of JSON, as that of "tubebench load"
//
// The names:
//
//	jetstream          NATS JetStream, file storage, default settings: what is
//	                   acknowledged is in the page cache, and is synced every two minutes
//	jetstream-always   the same with sync_interval: always, which syncs message by message
//	nsq                NSQ, default settings: the first 10,000 messages of a topic are in
//	                   memory alone, and others are synced every 2,500 messages or 2 s
//	rabbitmq           a quorum queue of the RabbitMQ that is installed, with confirms
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// servers run a broker on a folder until ctx ends. They call ready with the address,
// as scheme://host:port, and the process that does the work.
var servers = map[string]func(ctx context.Context, dir string, ready func(address string, pid int)) error{
	"jetstream":        serveJetStream(false),
	"jetstream-always": serveJetStream(true),
	"nsq":              serveNSQ,
	"rabbitmq":         serveRabbitMQ,
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 3 && args[0] == "serve":
		serve := servers[args[1]]
		if serve == nil {
			return fmt.Errorf("no broker %q", args[1])
		}
		return serve(ctx, args[2], func(address string, pid int) { fmt.Println("peer at", address, "process", pid) })
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
	return fmt.Errorf("usage: peers serve NAME DIR | peers load JSON")
}
