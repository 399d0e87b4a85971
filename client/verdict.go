package tube

import (
	"errors"
	"fmt"
	"time"
)

// kind is what is said of a message.
type kind uint8

const (
	acked    kind = iota // done
	failed               // again later, counted
	released             // again, not counted
	dead                 // never again
)

// verdict is what a handler's error says. It is an error, so that it can be returned
// and wrapped.
type verdict struct {
	kind  kind
	delay time.Duration // with timed, and of released; at least 0
	at    time.Time     // not zero: instead of delay
	timed bool          // delay or at counts; else the group's back-off
	text  string
}

func (v *verdict) Error() string { return v.text }

// RetryAfter makes a handler's message come again after d, counted as a failure. Wrap
// it to say why: fmt.Errorf("no stock: %w", tube.RetryAfter(time.Minute)).
func RetryAfter(d time.Duration) error {
	return &verdict{kind: failed, timed: true, delay: max(d, 0), text: fmt.Sprintf("again in %v", d)}
}

// RetryAt makes a handler's message come again at t, counted as a failure.
func RetryAt(t time.Time) error {
	return &verdict{kind: failed, timed: true, at: t, text: "again at " + t.Format(time.RFC3339)}
}

// Release gives a handler's message back, as if it had not been handed out: it comes
// again at once, to any member, and is not counted.
func Release() error { return &verdict{kind: released, text: "given back"} }

// ReleaseAfter gives a handler's message back; it comes again after d. Not counted, so
// without end: prefer RetryAfter where the limit of attempts should hold.
func ReleaseAfter(d time.Duration) error {
	return &verdict{kind: released, delay: max(d, 0), text: fmt.Sprintf("given back for %v", d)}
}

// Dead sets a handler's message aside at once: it goes to the group's dead letters,
// with reason in the record of its attempts.
func Dead(reason string) error { return &verdict{kind: dead, text: reason} }

// verdictOf is what a handler's result says of its message. The text is the whole
// error's.
func verdictOf(err error) verdict {
	if err == nil {
		return verdict{kind: acked}
	}
	out := verdict{kind: failed}
	var v *verdict
	if errors.As(err, &v) {
		out = *v
	}
	out.text = err.Error()
	return out
}
