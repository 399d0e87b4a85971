package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// offsetCommit stores positions. Each partition has its own answer: one that is
// not there does not keep the others from being stored.
func (d *Door) offsetCommit(ctx context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.OffsetCommitRequest)
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	im := d.image()
	commit := &group.CommitRequest{
		Group: req.Group, Generation: req.Generation, MemberID: req.MemberID, Instance: orEmpty(req.InstanceID),
	}
	commit.NoEpochs = req.Version < 9
	if req.Version <= 4 && req.RetentionTimeMillis > 0 {
		commit.Retention = time.Duration(min(req.RetentionTimeMillis, maxRetentionMillis)) * time.Millisecond
	}
	for _, t := range req.Topics {
		topic, unknown := groupTopic(im, req.Version >= 10, t.TopicID, t.Topic)
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		var known group.CommitTopic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition = p.Partition
			if rp.ErrorCode = checkPartition(topic, unknown, p.Partition); rp.ErrorCode == 0 {
				known.Partitions = append(known.Partitions, group.CommitPartition{
					Partition: record.Partition(p.Partition), Offset: record.Offset(p.Offset),
					LeaderEpoch: record.Epoch(p.LeaderEpoch), Metadata: orEmpty(p.Metadata),
				})
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		if len(known.Partitions) > 0 {
			known.Topic, known.Name = topic.ID, topic.Name
			commit.Topics = append(commit.Topics, known)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	fillCommitErrors(im, req.Version >= 10, resp, d.groups.Offsets.Commit(ctx, commit))
	return resp
}

// maxRetentionMillis keeps a client's retention within what a Duration can hold.
const maxRetentionMillis = int64(100 * 365 * 24 * time.Hour / time.Millisecond)

// groupTopic looks a topic up by id or by name; unknown is the code for its absence.
func groupTopic(im *meta.Image, byID bool, id [16]byte, name string) (t *meta.Topic, unknown int16) {
	if byID {
		return im.Topics[record.TopicID(id)], kerr.UnknownTopicID.Code
	}
	return im.Topic(name), kerr.UnknownTopicOrPartition.Code
}

// checkPartition is 0 if the topic has the partition.
func checkPartition(t *meta.Topic, unknown int16, p int32) int16 {
	switch {
	case t == nil:
		return unknown
	case p < 0 || int(p) >= len(t.Partitions):
		return kerr.UnknownTopicOrPartition.Code
	}
	return 0
}

// fillCommitErrors gives the commit's outcome to the partitions that took part.
func fillCommitErrors(im *meta.Image, byID bool, resp *kmsg.OffsetCommitResponse, r *group.CommitResponse) {
	for i := range resp.Topics {
		t := &resp.Topics[i]
		topic, _ := groupTopic(im, byID, t.TopicID, t.Topic)
		for j := range t.Partitions {
			p := &t.Partitions[j]
			switch {
			case p.ErrorCode != 0:
			case r.Err != nil:
				p.ErrorCode = groupCode(r.Err)
			default:
				p.ErrorCode = groupCode(r.Refused[record.TopicPartition{Topic: topic.ID, Partition: record.Partition(p.Partition)}])
			}
		}
	}
}
