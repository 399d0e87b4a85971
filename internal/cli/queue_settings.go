package cli

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tube-mq/tube/internal/config"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// queueSettings are the flags of create and update. What is not given is left to the
// node.
type queueSettings struct {
	maxAttempts, maxInFlight            int32
	lease, maxHandling, backoff, idle   string
	deadLetter, order, afterDead, mode  string
	filter, ack, rate, byteRate, retain string
}

func (s *queueSettings) flags(c *cobra.Command, making bool) {
	f := c.Flags()
	f.Int32Var(&s.maxAttempts, "max-attempts", 5, "deliveries that fail before a message is dead")
	f.StringVar(&s.lease, "lease", "30s", "how long a message is held by who received it")
	f.StringVar(&s.maxHandling, "max-handling", "12h", "how long a lease can be extended in all")
	f.StringVar(&s.backoff, "backoff", "1s,10s,1m,10m", "before the next delivery, by attempt; the last one repeats")
	f.StringVar(&s.deadLetter, "dead-letter", "", "topic of dead letters; default GROUP.dead-letter, which is made")
	f.StringVar(&s.afterDead, "after-dead", "continue", "of an ordered key, after a dead message: continue with the next one, or park the key")
	f.StringVar(&s.filter, "filter", "", "only messages for which this CEL expression is true")
	f.StringVar(&s.rate, "rate", "", "of the whole group, for example 100/s; 0: no limit")
	f.StringVar(&s.byteRate, "byte-rate", "", "of the whole group, for example 1MiB/s; 0: no limit")
	f.Int32Var(&s.maxInFlight, "max-in-flight", 10_000, "leases at a time in each partition")
	f.StringVar(&s.idle, "idle-consumer", "7d", "of mode broadcast: who is away for so long is forgotten")
	f.StringVar(&s.retain, "retain-until-consumed", "false", "the topic keeps what this group is not done with")
	f.Lookup("retain-until-consumed").NoOptDefVal = "true"
	if making {
		f.StringVar(&s.order, "order", "none", "none, or key: one message of a key at a time")
		f.StringVar(&s.mode, "mode", "share", "share, or broadcast: each consumer has everything")
		f.StringVar(&s.ack, "ack", "manual", "manual, or auto: received counts as done")
	}
}

// read makes what was given into the contract's settings.
func (s *queueSettings) read(c *cobra.Command) (*tubev1.QueueSettings, error) {
	out, given := &tubev1.QueueSettings{}, c.Flags().Changed
	text := func(flag, value string, to **string) {
		if given(flag) {
			*to = &value
		}
	}
	text("order", s.order, &out.Order)
	text("after-dead", s.afterDead, &out.AfterDead)
	text("mode", s.mode, &out.Mode)
	text("ack", s.ack, &out.Ack)
	text("filter", s.filter, &out.Filter)
	text("dead-letter", s.deadLetter, &out.DeadLetter)
	if given("max-attempts") {
		out.MaxAttempts = &s.maxAttempts
	}
	if given("max-in-flight") {
		out.MaxInFlight = &s.maxInFlight
	}
	for flag, d := range map[string]struct {
		value string
		to    **durationpb.Duration
	}{"lease": {s.lease, &out.Lease}, "max-handling": {s.maxHandling, &out.MaxHandling}, "idle-consumer": {s.idle, &out.IdleConsumer}} {
		if !given(flag) {
			continue
		}
		var err error
		if *d.to, err = flagDuration("--"+flag, d.value); err != nil {
			return nil, err
		}
	}
	if given("backoff") {
		for _, step := range strings.Split(s.backoff, ",") {
			d, err := flagDuration("--backoff", strings.TrimSpace(step))
			if err != nil {
				return nil, err
			}
			out.Backoff = append(out.Backoff, d)
		}
	}
	return out, s.limits(given, out)
}

func (s *queueSettings) limits(given func(string) bool, out *tubev1.QueueSettings) error {
	if given("rate") {
		n, err := perSecond(s.rate, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
		if err != nil {
			return usage("for example: --rate 100/s", "--rate %q is no number a second", s.rate)
		}
		out.MessagesPerSecond = &n
	}
	if given("byte-rate") {
		n, err := perSecond(s.byteRate, func(s string) (float64, error) { n, err := config.ParseSize(s); return float64(n), err })
		if err != nil {
			return usage("for example: --byte-rate 1MiB/s", "--byte-rate %q is no size a second", s.byteRate)
		}
		out.BytesPerSecond = &n
	}
	if given("retain-until-consumed") {
		on, err := strconv.ParseBool(s.retain)
		if err != nil {
			return usage("", "--retain-until-consumed can be true or false")
		}
		out.RetainUntilConsumed = &on
	}
	return nil
}

// perSecond reads "100/s", "100/m", "100/h" or "100".
func perSecond(s string, number func(string) (float64, error)) (float64, error) {
	digits, unit, _ := strings.Cut(s, "/")
	n, err := number(digits)
	switch unit {
	case "", "s":
	case "m":
		n /= 60
	case "h":
		n /= 3600
	default:
		return 0, strconv.ErrSyntax
	}
	return n, err
}
