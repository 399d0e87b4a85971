package node

import (
	"errors"
	"time"

	"github.com/tube-mq/tube/internal/metrics"
	"github.com/tube-mq/tube/internal/rpc"
)

var errStarting = errors.New("the node is starting or stopping")

// serveHTTP opens the HTTP door before the data is recovered, so that health and
// readiness can be asked from the first moment.
func (n *Node) serveHTTP() error {
	n.metrics = metrics.New(n.version, n.id().Node)
	n.http = rpc.New(rpc.Config{
		Self:    rpc.Self{Node: n.id().Node, Version: n.version, Started: n.started},
		Cluster: cluster{n}, Events: n.meta, Operator: n.operator, Queues: n.queueBackend,
		Ready: func() error {
			if !n.ready.Load() {
				return errStarting
			}
			return nil
		},
		Metrics: n.metrics.Handler(), Pprof: n.cfg.Pprof, Logger: n.logger,
	})
	l := n.listeners[1]
	n.background.Go(func() {
		if err := n.http.Serve(l); err != nil {
			n.logger.Error("HTTP door closed", "err", err)
		}
	})
	return nil
}

// watchMetrics registers numbers that the parts of the node keep.
func (n *Node) watchMetrics() {
	n.metrics.Watch(
		metrics.Value{Name: "tube_wal_written_bytes_total", Help: "Bytes written to the write-ahead log since the start, padding included.", Counter: true,
			Read: func() float64 { return float64(n.host.Load().Written()) }},
		metrics.Value{Name: "tube_replicas_awake", Help: "Replicas whose clock runs: those of groups with something to do, or without a leader.",
			Read: func() float64 { return float64(n.host.Load().Ticking()) }},
		metrics.Value{Name: "tube_disk_sick", Help: "1 while the node is sick: its disk is slow, and it leads only what no other node can.",
			Read: func() float64 {
				if n.health.why(n.id().Node) != "" {
					return 1
				}
				return 0
			}},
		metrics.Value{Name: "tube_disk_flush_seconds", Help: "How long the flush of the write-ahead log that is under way has taken; 0: none is.",
			Read: func() float64 { return time.Duration(n.flushing.Load()).Seconds() }},
		metrics.Value{Name: "tube_tail_bytes", Help: "Bytes of batches that are in memory and the write-ahead log, not in a segment yet.",
			Read: func() float64 { return float64(n.broker.TailBytes()) }},
		metrics.Value{Name: "tube_delayed_memory_bytes", Help: "Bytes of the index of delayed messages that are in memory.",
			Read: func() float64 { return float64(n.broker.DelaySwap().MemoryBytes) }},
		metrics.Value{Name: "tube_delayed_swapped_bytes", Help: "Bytes of the index of delayed messages that are on disk, as they are due late and the memory for it is full.",
			Read: func() float64 { return float64(n.broker.DelaySwap().DiskBytes) }},
		metrics.Value{Name: "tube_delayed_swapped_messages", Help: "Delayed messages whose time is on disk, not in memory.",
			Read: func() float64 { return float64(n.broker.DelaySwap().Messages) }},
		metrics.Value{Name: "tube_partitions_damaged", Help: "Partitions out of service because their data is damaged.",
			Read: func() float64 { return float64(len(n.broker.DamagedReplicas())) }},
		metrics.Value{Name: "tube_queue_lost_messages_total", Help: "Messages that retention took before a queue group was done with them, of partitions led here.", Counter: true,
			Read: func() float64 { return float64(n.lostMessages.Load()) }},
		metrics.Value{Name: "tube_queue_retention_used_ratio", Help: "The largest share of what retention keeps, by age or size, that a queue group is behind by, of partitions led here; 0: less than half; 1: messages go that it is not done with.",
			Read: n.retentionUsed},
		metrics.Value{Name: "tube_topics", Help: "Topics.", Read: func() float64 { return float64(len(n.meta.Image().Topics)) }},
	)
}
