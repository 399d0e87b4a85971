package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Kafka counts what goes through the Kafka door.
type Kafka struct {
	requests    *prometheus.HistogramVec
	errors      *prometheus.CounterVec
	connections prometheus.Gauge
	refused     *prometheus.CounterVec
	in, out     prometheus.Counter
	produced    prometheus.Counter
	producedB   prometheus.Counter
	fetchedB    prometheus.Counter
	followed    prometheus.Counter
}

// Kafka registers the Kafka door's metrics; once a registry.
func (r *Registry) Kafka() *Kafka {
	requests := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "tube_kafka_request_seconds", Help: "Time from having read a request to having its response, by API. Waits that the client asked for (fetch, join, sync) are part of it.",
		Buckets: secondsBuckets,
	}, []string{"api"})
	r.reg.MustRegister(requests)
	return &Kafka{
		requests:    requests,
		errors:      r.counters("tube_kafka_errors_total", "Errors that clients were answered, by API and Kafka's name of the error.", "api", "error"),
		connections: r.gauge("tube_kafka_connections", "Open Kafka connections."),
		refused:     r.counters("tube_kafka_connections_closed_total", "Kafka connections that the node closed by itself, by reason.", "reason"),
		in:          r.counter("tube_kafka_received_bytes_total", "Bytes of Kafka requests."),
		out:         r.counter("tube_kafka_sent_bytes_total", "Bytes of Kafka responses."),
		produced:    r.counter("tube_kafka_produced_records_total", "Records that were acknowledged to producers."),
		producedB:   r.counter("tube_kafka_produced_bytes_total", "Bytes of batches that were acknowledged to producers."),
		fetchedB:    r.counter("tube_kafka_fetched_bytes_total", "Bytes of batches that were sent to consumers."),
		followed:    r.counter("tube_kafka_follower_fetches_total", "Partitions in answers to fetches that a replica gave which does not lead, to a consumer in its zone."),
	}
}

// Request counts one answered request. api is a name of the door's table.
func (k *Kafka) Request(api string, took time.Duration) {
	k.requests.WithLabelValues(api).Observe(took.Seconds())
}

// Error counts one error that a client was answered.
func (k *Kafka) Error(api, name string) { k.errors.WithLabelValues(api, name).Inc() }

// Opened and Closed count connections; Dropped those that the node closed by
// itself, for one of a fixed set of reasons.
func (k *Kafka) Opened() { k.connections.Inc() }

// Closed is the counterpart of Opened, for whatever reason.
func (k *Kafka) Closed() { k.connections.Dec() }

// Dropped counts a connection that the node closed by itself.
func (k *Kafka) Dropped(reason string) { k.refused.WithLabelValues(reason).Inc() }

// Received and Sent count bytes on the wire.
func (k *Kafka) Received(bytes int) { k.in.Add(float64(bytes)) }

// Sent counts bytes of responses.
func (k *Kafka) Sent(bytes int) { k.out.Add(float64(bytes)) }

// Produced counts one acknowledged batch.
func (k *Kafka) Produced(records, bytes int) {
	k.produced.Add(float64(records))
	k.producedB.Add(float64(bytes))
}

// Fetched counts bytes of batches that were sent to consumers.
func (k *Kafka) Fetched(bytes int) { k.fetchedB.Add(float64(bytes)) }

// Followed counts partitions of fetches that a follower answered.
func (k *Kafka) Followed(partitions int) { k.followed.Add(float64(partitions)) }
