// Package bench measures a broker that speaks the Kafka protocol, and its queues.
//
// It has three parts. The null broker (null*.go) answers produce and fetch from
// memory and stores nothing: it is the ceiling that client and network allow.
// The load (load*.go) is one piece of work with one franz-go client, run in a
// process of its own, so that its CPU is counted apart from the server's; it
// reports one Result. The scenarios (scenario*.go) are the rows of the table of
// speeds in docs/performance.md: each starts servers and loads, runs them in
// alternating pairs against the null broker where a ratio is asked for, and gives
// an Outcome.
//
//	tube bench run ── starts ──▶ tube start          (or tube bench null)
//	      │                           ▲
//	      └──────── starts ──▶ tube bench load ── Kafka protocol
//
// Queues are loaded over gRPC (load_queue.go), as their clients do. What they are
// compared with is not in this module: the program of bench/peers is both the broker
// and its load, and is told the same.
//
// Processes talk by lines on standard output: a server says its address, a load
// says its progress and then its result, as JSON.
package bench
