package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// maxDeleteWait bounds the timeout that a client may ask for.
const maxDeleteWait = time.Minute

// deleteRecords moves log starts up. A low watermark of −1 stands beside an error.
func (d *Door) deleteRecords(ctx context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.DeleteRecordsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	im := d.image()
	ctx, cancel := context.WithTimeout(ctx, min(max(time.Duration(req.TimeoutMillis)*time.Millisecond, 0), maxDeleteWait))
	defer cancel()
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewDeleteRecordsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewDeleteRecordsResponseTopicPartition()
			rp.Partition = p.Partition
			rp.LowWatermark, rp.ErrorCode = d.deleteBefore(ctx, im, t.Topic, p.Partition, record.Offset(p.Offset))
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (d *Door) deleteBefore(ctx context.Context, im *meta.Image, topic string, n int32, before record.Offset) (low int64, code int16) {
	if before < -1 {
		return -1, kerr.OffsetOutOfRange.Code
	}
	p, code := d.hosted(im, topic, n)
	if code != 0 {
		return -1, code
	}
	start, err := p.Lookup().DeleteRecords(ctx, before)
	switch {
	case err == nil:
		return int64(start), 0
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		return -1, kerr.RequestTimedOut.Code
	case !known(err):
		d.cfg.Logger.Error("records could not be deleted", "topic", topic, "partition", n, "err", err)
	}
	return -1, errorCode(err)
}
