// Package metrics is what a node tells Prometheus. Every name begins with tube_
// and ends with its unit. Subsystems do not know this package: the node hands
// them the small typed structs here through interfaces of theirs, or registers
// functions that read the counters they keep (Watch).
//
// Labels take values from fixed sets only (API names, error names, reasons),
// never what a client sent, so that the number of series is bounded.
package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tube-mq/tube/internal/record"
)

// maxScrapes bounds how many callers may read at a time; more get 503.
const maxScrapes = 4

// Registry holds the metrics of one node.
type Registry struct{ reg *prometheus.Registry }

// New makes a registry with the Go runtime's and the process's metrics and
// tube_build_info.
func New(version string, node record.NodeID) *Registry {
	r := &Registry{prometheus.NewRegistry()}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tube_build_info", Help: "Always 1; the labels say which version runs as which node.",
		ConstLabels: prometheus.Labels{"version": version, "node": strconv.Itoa(int(node))},
	})
	build.Set(1)
	r.reg.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Handler serves the metrics in Prometheus' text format, uncompressed.
func (r *Registry) Handler() http.Handler {
	return promhttp.HandlerFor(r.reg, promhttp.HandlerOpts{
		DisableCompression: true, MaxRequestsInFlight: maxScrapes, Timeout: 30 * time.Second,
	})
}

// Value is one number that somebody else keeps.
type Value struct {
	Name string // with tube_ in front and the unit at the end; _total for a counter
	Help string
	// Counter: it never goes down while the process lives.
	Counter bool
	// Read is called for every scrape, from any goroutine; it must be quick.
	Read func() float64
}

// Watch registers numbers that are read when somebody asks. A name that is there
// already is a programmer's mistake and panics.
func (r *Registry) Watch(values ...Value) {
	for _, v := range values {
		if v.Counter {
			r.reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: v.Name, Help: v.Help}, v.Read))
		} else {
			r.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: v.Name, Help: v.Help}, v.Read))
		}
	}
}

func (r *Registry) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	r.reg.MustRegister(c)
	return c
}

func (r *Registry) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	r.reg.MustRegister(c)
	return c
}

func (r *Registry) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	r.reg.MustRegister(g)
	return g
}

// secondsBuckets reach from a fast fsync to a stuck disk.
var secondsBuckets = []float64{50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.2, 0.5, 1, 2, 5, 10}
