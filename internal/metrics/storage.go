package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Storage counts what goes to disk.
type Storage struct {
	syncs       prometheus.Histogram
	writes      prometheus.Histogram
	walBytes    prometheus.Counter
	checkpoints prometheus.Histogram
	flushed     prometheus.Counter
	corruptions *prometheus.CounterVec
}

// Storage registers the storage's metrics; once a registry.
func (r *Registry) Storage() *Storage {
	seconds := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		r.reg.MustRegister(h)
		return h
	}
	return &Storage{
		writes:      seconds("tube_wal_write_seconds", "Time of one write of the write-ahead log.", secondsBuckets),
		syncs:       seconds("tube_wal_sync_seconds", "Time of one fsync of the write-ahead log.", secondsBuckets),
		walBytes:    r.counter("tube_wal_written_bytes_total", "Bytes written to the write-ahead log, padding included."),
		checkpoints: seconds("tube_checkpoint_seconds", "Time of one checkpoint.", prometheus.ExponentialBuckets(0.001, 4, 9)),
		flushed:     r.counter("tube_segments_written_bytes_total", "Bytes written to segments."),
		corruptions: r.counters("tube_corruptions_total", "Damage found on disk, by the kind of file.", "kind"),
	}
}

// Wrote counts one write of the write-ahead log.
func (s *Storage) Wrote(bytes int, took time.Duration) {
	s.walBytes.Add(float64(bytes))
	s.writes.Observe(took.Seconds())
}

// Synced counts one fsync of the write-ahead log.
func (s *Storage) Synced(took time.Duration) { s.syncs.Observe(took.Seconds()) }

// Checkpointed counts one checkpoint.
func (s *Storage) Checkpointed(took time.Duration) { s.checkpoints.Observe(took.Seconds()) }

// Flushed counts bytes written to segments.
func (s *Storage) Flushed(bytes int) { s.flushed.Add(float64(bytes)) }

// Corrupted counts damage found in a file of a kind: wal, segment, index, checkpoint.
func (s *Storage) Corrupted(kind string) { s.corruptions.WithLabelValues(kind).Inc() }
