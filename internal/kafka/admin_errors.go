package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
)

// adminErrors maps what administration answers to the codes that clients know
// (see wireErrors for partitions). A text that is told is about what the client
// itself asked for; the others would say how the masters are doing.
var adminErrors = []struct {
	err  error
	code *kerr.Error
	tell bool
}{
	// First: a call that ran out of time also finds no master.
	{context.DeadlineExceeded, kerr.RequestTimedOut, false},
	{master.ErrUnavailable, kerr.NotController, false}, // clients look for the controller and retry
	{meta.ErrTopicExists, kerr.TopicAlreadyExists, true},
	{meta.ErrUnknownTopic, kerr.UnknownTopicOrPartition, true},
	{meta.ErrInvalidTopicName, kerr.InvalidTopicException, true},
	{meta.ErrInvalidPartitions, kerr.InvalidPartitions, true},
	{meta.ErrInvalidReplicas, kerr.InvalidReplicationFactor, true},
	{meta.ErrInvalidPlacement, kerr.InvalidReplicaAssignment, true},
	{meta.ErrInvalidConfig, kerr.InvalidConfig, true},
	{meta.ErrUnknownPartition, kerr.UnknownTopicOrPartition, true},
	{meta.ErrNotMoving, kerr.NoReassignmentInProgress, true},
}

// refusal is a request that the door itself turns down, for one topic or
// resource; text says what to do.
type refusal struct {
	code *kerr.Error
	text string
}

func (e refusal) Error() string { return e.text }

func refuse(code *kerr.Error, format string, args ...any) error {
	return refusal{code, fmt.Sprintf(format, args...)}
}

// adminError is the code and the text of an error of administration; 0 and nil
// for none. One that is not in the table is a mistake of ours and is logged;
// what and name say what it was about.
func (d *Door) adminError(err error, what, name string) (int16, *string) {
	if err == nil {
		return 0, nil
	}
	var own refusal
	if errors.As(err, &own) {
		return own.code.Code, &own.text
	}
	for _, e := range adminErrors {
		if !errors.Is(err, e.err) {
			continue
		}
		text := e.code.Description
		if e.tell {
			text = err.Error()
		}
		return e.code.Code, &text
	}
	d.cfg.Logger.Error("a Kafka admin request failed", "request", what, "name", name, "err", err)
	text := kerr.UnknownServerError.Description
	return kerr.UnknownServerError.Code, &text
}

// maxAdminWait bounds the time that a request of administration may take,
// whatever timeout its client asks for.
const maxAdminWait = time.Minute

// adminContext ends when the client's timeout is over. Without one (≤ 0) the
// bound holds: with no time at all nothing could be done.
func adminContext(ctx context.Context, timeoutMillis int32) (context.Context, context.CancelFunc) {
	wait := maxAdminWait
	if timeoutMillis > 0 {
		wait = min(wait, time.Duration(timeoutMillis)*time.Millisecond)
	}
	return context.WithTimeout(ctx, wait)
}

// maxPartitionsPerRequest bounds the partitions that one request may ask for
// over all its topics.
const maxPartitionsPerRequest = meta.MaxPartitions

// allowance counts down what one request may still bring into being.
type allowance struct{ left int }

// take accounts for n partitions, if that many are left.
func (a *allowance) take(n int) error {
	if n > a.left {
		return refuse(kerr.PolicyViolation, "one request may ask for %d partitions in all; ask for the rest in another", maxPartitionsPerRequest)
	}
	a.left -= max(n, 0)
	return nil
}

// maxAdminItems bounds the topics or resources of one request. Each is answered,
// with a text if need be, so that an answer can be many times its question.
const maxAdminItems = 100_000

// absurd reports whether a request has more items than are answered; its
// connection is then closed.
func (d *Door) absurd(c *client, what string, items int) bool {
	if items <= maxAdminItems {
		return false
	}
	d.cfg.Logger.Warn("a Kafka admin request has too many items; its connection is closed", "request", what, "items", items, "allowed", maxAdminItems, "client", c.host)
	return true
}

// tally counts how often each key stands in a request.
type tally[K comparable] map[K]int

// first reports whether k is met for the first time by a second walk over the
// request, and whether it stands there more than once.
func (t tally[K]) first(k K) (first, twice bool) {
	n := t[k]
	t[k] = -max(n, -n)
	return n > 0, n > 1 || n < -1
}

// newestWait is longer than the masters take to elect an active one.
const newestWait = 5 * time.Second

// newest brings this node's metadata up to date for a request that asks for it, or
// changes what it has found there: another node may have acknowledged a change that
// has not come here yet.
func (d *Door) newest(ctx context.Context) error {
	if d.catchUp == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, newestWait)
	defer cancel()
	if err := d.catchUp(ctx); err != nil {
		return fmt.Errorf("%w: %w", master.ErrUnavailable, err)
	}
	return nil
}
