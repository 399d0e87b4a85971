package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// Times with a meaning of their own.
const (
	timeLatest        = -1
	timeEarliest      = -2
	timeMax           = -3 // v7+: the record with the largest timestamp
	timeEarliestLocal = -4 // v8+: nothing is tiered, so the same as earliest
	timeLatestTiered  = -5 // v9+: none
	timePendingUpload = -6 // v11+: none
)

const (
	// maxConfirms is how many partitions of a request are confirmed at a time.
	maxConfirms = 64
	// confirmTimeout is longer than a leader that is cut off takes to notice.
	confirmTimeout = 5 * time.Second
)

// listOffsets finds offsets by time. Who asks for the end of a partition, and is
// told an old one by a leader that does not know of its successor, would take what
// was acknowledged since for not there; so the leader is confirmed first.
func (d *Door) listOffsets(ctx context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.ListOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	im := d.image()
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	var asked errgroup.Group
	asked.SetLimit(maxConfirms)
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			asked.Go(func() error {
				rt.Partitions[j] = d.listOffset(ctx, im, t.Topic, &t.Partitions[j], req.IsolationLevel == 1)
				return nil
			})
		}
		resp.Topics = append(resp.Topics, rt)
	}
	_ = asked.Wait()
	return resp
}

func (d *Door) listOffset(ctx context.Context, im *meta.Image, topic string, ask *kmsg.ListOffsetsRequestTopicPartition, committed bool) kmsg.ListOffsetsResponseTopicPartition {
	rp := kmsg.NewListOffsetsResponseTopicPartition()
	rp.Partition, rp.Offset, rp.Timestamp, rp.LeaderEpoch = ask.Partition, -1, -1, -1
	p, code := d.hosted(im, topic, ask.Partition)
	if code != 0 {
		rp.ErrorCode = code
		return rp
	}
	found, err := findOffset(ctx, p, ask, committed)
	if err != nil {
		if rp.ErrorCode = errorCode(err); !known(err) {
			d.cfg.Logger.Error("an offset could not be found", "topic", topic, "partition", ask.Partition, "err", err)
		}
		return rp
	}
	rp.Offset, rp.Timestamp, rp.LeaderEpoch = int64(found.Offset), found.TimestampMillis, int32(found.LeaderEpoch)
	return rp
}

// errUnknownTime is a negative time without a meaning.
var errUnknownTime = wireError{kerr.UnsupportedVersion.Code}

func findOffset(ctx context.Context, p Partition, ask *kmsg.ListOffsetsRequestTopicPartition, committed bool) (broker.TimedOffset, error) {
	none := broker.TimedOffset{Offset: -1, TimestampMillis: -1, LeaderEpoch: -1}
	b, err := p.Bounds()
	if err == nil {
		err = checkEpoch(ask.CurrentLeaderEpoch, b)
	}
	if err == nil && ask.Timestamp != timeEarliest && ask.Timestamp != timeEarliestLocal {
		if err = p.Lookup().Confirm(ctx); err == nil {
			b, err = p.Bounds()
		}
	}
	if err != nil {
		return none, err
	}
	end := b.HighWatermark
	if committed {
		end = b.LastStable
	}
	var found broker.TimedOffset
	switch {
	case ask.Timestamp == timeLatest:
		return broker.TimedOffset{Offset: end, TimestampMillis: -1, LeaderEpoch: b.LeaderEpoch}, nil
	case ask.Timestamp == timeEarliest || ask.Timestamp == timeEarliestLocal:
		return broker.TimedOffset{Offset: b.LogStart, TimestampMillis: -1, LeaderEpoch: firstEpoch(b)}, nil
	case ask.Timestamp == timeMax:
		found, err = p.Lookup().OffsetForMaxTime()
	case ask.Timestamp == timeLatestTiered || ask.Timestamp == timePendingUpload:
		return none, nil
	case ask.Timestamp < 0:
		return none, errUnknownTime
	default:
		found, err = p.Lookup().OffsetForTime(ask.Timestamp)
	}
	if err != nil || found.Offset < 0 || found.Offset >= end {
		return none, err
	}
	return found, nil
}

// firstEpoch is the epoch at the log start when it is certain: an empty log is
// the leader's own.
func firstEpoch(b broker.Bounds) record.Epoch {
	if b.LogStart == b.HighWatermark {
		return b.LeaderEpoch
	}
	return -1
}
