package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tube-mq/tube/internal/config"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueue(a *app) *cobra.Command {
	return parent("queue", "Queues: send, take one by one, confirm, and look after what is delayed or dead",
		newQueueCreate(a), newQueueList(a), newQueueDescribe(a), newQueueUpdate(a), newQueueDelete(a),
		newQueueSend(a), newQueueReceive(a), newQueueAck(a), newQueueNack(a), newQueueRelease(a), newQueueExtend(a),
		newQueueWhy(a), newQueuePending(a), newQueuePause(a), newQueueResume(a), newQueueSeek(a), newQueuePurge(a),
		newQueueDelayed(a), newQueueCancel(a), newQueueReschedule(a), newQueueRetry(a), newQueueDead(a))
}

// completeQueues names the queue groups to the shell.
func (a *app) completeQueues(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a.quiet, a.timeout = true, completionTimeout
	r, err := ask(c.Context(), a, a.queueAdmin().ListGroups, &tubev1.ListGroupsRequest{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, g := range r.Groups {
		out = append(out, g.Group+"\t"+g.Topic)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// contract writes an answer as the contract's JSON with --json (names as in the
// .proto, 64-bit numbers as strings, bytes as base64), else what human writes.
func (a *app) contract(m proto.Message, human func(w io.Writer) error) error {
	if !a.json {
		return human(a.out)
	}
	b, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true, Multiline: true}.Marshal(m)
	if err == nil {
		_, err = a.out.Write(append(b, '\n'))
	}
	return err
}

// said writes a sentence, or m with --json.
func (a *app) said(m proto.Message, format string, args ...any) error {
	return a.contract(m, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, format+"\n", args...)
		return err
	})
}

// atLeast wants n positional arguments or more.
func atLeast(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < n {
			return usage("usage: "+c.UseLine(), "want %d argument(s) or more and have %d", n, len(args))
		}
		return nil
	}
}

// later are the flags --delay and --at.
type later struct{ delay, at string }

func (l *later) flags(c *cobra.Command, what string) {
	c.Flags().StringVar(&l.delay, "delay", "", what+" after so long (90s, 10m, 7d)")
	c.Flags().StringVar(&l.at, "at", "", what+" at this time (2026-01-31T15:04:05Z, 2026-01-31 15:04)")
}

// read returns which of both is given; neither: both are nil.
func (l *later) read(now time.Time) (*durationpb.Duration, *timestamppb.Timestamp, error) {
	switch {
	case l.delay != "" && l.at != "":
		return nil, nil, usage("", "give --delay or --at, not both")
	case l.delay != "":
		d, err := flagDuration("--delay", l.delay)
		return d, nil, err
	case l.at != "":
		for _, form := range timeForms {
			if t, err := time.ParseInLocation(form, l.at, now.Location()); err == nil {
				return nil, timestamppb.New(t), nil
			}
		}
		return nil, nil, usage("for example: --at 2026-01-31T15:04:05Z", "--at %q is no time", l.at)
	}
	return nil, nil, nil
}

func flagDuration(flag, s string) (*durationpb.Duration, error) {
	d, err := config.ParseDuration(s)
	if err != nil {
		return nil, usage("", "%s: %v", flag, err)
	}
	return durationpb.New(d), nil
}

// placeArg reads PARTITION/OFFSET.
func placeArg(s string) (*tubev1.PartitionOffset, bool) {
	p, o, ok := strings.Cut(s, "/")
	partition, err1 := strconv.ParseInt(p, 10, 32)
	offset, err2 := strconv.ParseInt(o, 10, 64)
	if !ok || err1 != nil || err2 != nil || partition < 0 || offset < 0 {
		return nil, false
	}
	return &tubev1.PartitionOffset{Partition: int32(partition), Offset: offset}, true
}

// refArg reads what names a message: PARTITION/OFFSET, or else an id.
func refArg(s string) *tubev1.MessageRef {
	if p, ok := placeArg(s); ok {
		return &tubev1.MessageRef{Ref: &tubev1.MessageRef_At{At: p}}
	}
	return &tubev1.MessageRef{Ref: &tubev1.MessageRef_Id{Id: s}}
}

func refArgs(args []string) []*tubev1.MessageRef {
	out := make([]*tubev1.MessageRef, len(args))
	for i, s := range args {
		out[i] = refArg(s)
	}
	return out
}

// stampOf writes a time, or nothing.
func stampOf(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return stamp(t.AsTime())
}

// paged gathers pages of a listing, up to limit things; 0: all.
func paged(limit int, next func(size int32, token string) (got int, more string, err error)) error {
	token := ""
	for n := 0; limit == 0 || n < limit; {
		size := 1000
		if limit > 0 {
			size = min(size, limit-n)
		}
		got, more, err := next(int32(size), token)
		if err != nil || more == "" {
			return err
		}
		n, token = n+got, more
	}
	return nil
}

// failedSome says that some of several were refused.
func failedSome(failed, all int, first *tubev1.ItemError) error {
	if failed == 0 {
		return nil
	}
	hint := ""
	switch first.GetReason() {
	case tubev1.QueueErrorDetail_LEASE_EXPIRED, tubev1.QueueErrorDetail_LEASE_UNKNOWN:
		hint = "the message comes again or is done with; tube message trace says where it is"
	default:
		hint = queueHints[first.GetReason()]
	}
	return conflict(hint, "%d of %d failed: %s", failed, all, first.GetMessage())
}
