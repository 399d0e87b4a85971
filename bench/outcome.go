package bench

import (
	"fmt"
	"slices"
)

// Outcome is what a scenario found.
type Outcome struct {
	Name    string   `json:"name"`
	Title   string   `json:"title"`
	Metrics []Metric `json:"metrics"`
	Runs    []Run    `json:"runs"`
	Error   string   `json:"error,omitempty"`
}

// Metric is one figure with what it has to be.
type Metric struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Must  string  `json:"must,omitempty"`
	OK    *bool   `json:"ok,omitempty"` // nil: only reported
}

// Run is one load on one server.
type Run struct {
	Server string `json:"server"`
	What   string `json:"what"`
	Result Result `json:"result"`
}

func (o *Outcome) add(name string, value float64, unit string) {
	o.Metrics = append(o.Metrics, Metric{Name: name, Value: value, Unit: unit})
}

// atLeast adds a figure that must reach least.
func (o *Outcome) atLeast(name string, value, least float64, unit string) {
	ok := value >= least
	o.Metrics = append(o.Metrics, Metric{name, value, unit, "≥ " + number(least), &ok})
}

// atMost adds a figure that must not pass most.
func (o *Outcome) atMost(name string, value, most float64, unit string) {
	ok := value <= most
	o.Metrics = append(o.Metrics, Metric{name, value, unit, "≤ " + number(most), &ok})
}

// usage adds what a server's runs cost: medians of CPU for each million records, and memory.
func (o *Outcome) usage(name string, runs []*Result) {
	perMillion := func(cpu func(*Result) float64) float64 {
		return medianOf(runs, func(r *Result) float64 { return cpu(r) / max(1e-6, float64(r.Records)/1e6) })
	}
	o.add(name+" client CPU", perMillion(func(r *Result) float64 { return r.ClientCPUSeconds }), "s / M records")
	o.add(name+" server CPU", perMillion(func(r *Result) float64 { return r.ServerCPUSeconds }), "s / M records")
	o.add(name+" server RSS peak", medianOf(runs, func(r *Result) float64 { return float64(r.ServerRSSPeakBytes) / (1 << 20) }), "MiB")
}

// noErrors adds the number of failures, which must be none.
func (o *Outcome) noErrors(runs []*Result) {
	var n int64
	for _, r := range runs {
		n += r.Errors
	}
	o.atMost("errors", float64(n), 0, "")
}

func medianOf(runs []*Result, of func(*Result) float64) float64 {
	values := make([]float64, 0, len(runs))
	for _, r := range runs {
		values = append(values, of(r))
	}
	return median(values)
}

// median of nothing is 0.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	if mid := len(v) / 2; len(v)%2 == 0 {
		return (v[mid-1] + v[mid]) / 2
	} else {
		return v[mid]
	}
}

// String is the result in one line.
func (r *Result) String() string {
	s := fmt.Sprintf("%s records/s, %s MiB/s, CPU client %.1f s server %.1f s in %.1f s", number(r.PerSecond), number(r.MiBPerSecond), r.ClientCPUSeconds, r.ServerCPUSeconds, r.Seconds)
	if l := r.Latency; l != nil {
		s += fmt.Sprintf(", p50 %.2f p99 %.2f p99.9 %.2f max %.2f ms", l.P50, l.P99, l.P999, l.Max)
	}
	if r.Errors > 0 {
		s += fmt.Sprintf(", %d errors, the first: %s", r.Errors, r.FirstError)
	}
	return s
}

// number writes a figure with three significant digits or as a whole number with
// separators.
func number(v float64) string {
	switch {
	case v >= 1000 || v == float64(int64(v)):
		s := fmt.Sprintf("%.0f", v)
		for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
