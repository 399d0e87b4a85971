package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// offsetFetch returns positions. A partition without one, and a topic that does
// not exist, have offset −1 and no error: it is how a client finds that it must
// choose where to begin. Every position is stable, as there are no transactions
// yet, so require_stable has nothing to wait for.
func (d *Door) offsetFetch(ctx context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.OffsetFetchRequest)
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	im := d.image()
	if req.Version < 8 {
		g := d.fetchGroup(ctx, im, false, oldFetch(req))
		fillOldFetch(req, resp, g)
		return resp
	}
	for _, g := range req.Groups {
		resp.Groups = append(resp.Groups, d.fetchGroup(ctx, im, req.Version >= 10, g))
	}
	return resp
}

// oldFetch is the single group of v0–7 in the form of the later versions.
func oldFetch(req *kmsg.OffsetFetchRequest) kmsg.OffsetFetchRequestGroup {
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = req.Group
	if req.Topics != nil {
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range req.Topics {
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.Partitions = t.Topic, t.Partitions
		g.Topics = append(g.Topics, gt)
	}
	return g
}

// fillOldFetch writes a group's answer in the form of v0–7. v1 has no error for
// the whole: each partition asked for gets it.
func fillOldFetch(req *kmsg.OffsetFetchRequest, resp *kmsg.OffsetFetchResponse, g kmsg.OffsetFetchResponseGroup) {
	resp.ErrorCode = g.ErrorCode
	for _, t := range g.Topics {
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetFetchResponseTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata, rp.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if g.ErrorCode == 0 || req.Version >= 2 {
		return
	}
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetFetchResponseTopicPartition()
			rp.Partition, rp.Offset, rp.ErrorCode = p, -1, g.ErrorCode
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
}

func (d *Door) fetchGroup(ctx context.Context, im *meta.Image, byID bool, g kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	resp := kmsg.NewOffsetFetchResponseGroup()
	resp.Group = g.Group
	ask := &group.FetchOffsetsRequest{Group: g.Group, Member: orEmpty(g.MemberID), Epoch: g.MemberEpoch}
	if g.Topics != nil {
		ask.Topics = []group.FetchTopic{}
	}
	for _, t := range g.Topics {
		if topic, _ := groupTopic(im, byID, t.TopicID, t.Topic); topic != nil {
			ask.Topics = append(ask.Topics, group.FetchTopic{Topic: topic.ID, Partitions: partitionNumbers(t.Partitions)})
		}
	}
	r := d.groups.Offsets.Fetch(ctx, ask)
	if resp.ErrorCode = groupCode(r.Err); r.Err != nil {
		return resp
	}
	if g.Topics == nil {
		resp.Topics = allPositions(im, r.Topics)
		return resp
	}
	found := map[record.TopicPartition]group.Offset{}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			found[record.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = p.Offset
		}
	}
	for _, t := range g.Topics {
		resp.Topics = append(resp.Topics, askedPositions(im, byID, t, found))
	}
	return resp
}

func partitionNumbers(in []int32) []record.Partition {
	out := make([]record.Partition, len(in))
	for i, p := range in {
		out[i] = record.Partition(p)
	}
	return out
}

// allPositions answers a request for everything. What belongs to a topic that
// was deleted is left out: a new topic of that name begins anew.
func allPositions(im *meta.Image, topics []group.FetchedTopic) []kmsg.OffsetFetchResponseGroupTopic {
	var out []kmsg.OffsetFetchResponseGroupTopic
	for _, t := range topics {
		topic := im.Topics[t.Topic]
		if topic == nil {
			continue
		}
		rt := kmsg.NewOffsetFetchResponseGroupTopic()
		rt.Topic, rt.TopicID = topic.Name, topic.ID
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions, fetchedPosition(int32(p.Partition), p.Offset))
		}
		out = append(out, rt)
	}
	return out
}

func askedPositions(im *meta.Image, byID bool, t kmsg.OffsetFetchRequestGroupTopic, found map[record.TopicPartition]group.Offset) kmsg.OffsetFetchResponseGroupTopic {
	rt := kmsg.NewOffsetFetchResponseGroupTopic()
	rt.Topic, rt.TopicID = t.Topic, t.TopicID
	topic, unknown := groupTopic(im, byID, t.TopicID, t.Topic)
	for _, p := range t.Partitions {
		none := group.Offset{Offset: -1, LeaderEpoch: -1}
		if topic == nil {
			rp := fetchedPosition(p, none)
			if byID {
				rp.ErrorCode = unknown // a name may be created later, an id never comes back
			}
			rt.Partitions = append(rt.Partitions, rp)
			continue
		}
		o, ok := found[record.TopicPartition{Topic: topic.ID, Partition: record.Partition(p)}]
		if !ok {
			o = none
		}
		rt.Partitions = append(rt.Partitions, fetchedPosition(p, o))
	}
	return rt
}

func fetchedPosition(p int32, o group.Offset) kmsg.OffsetFetchResponseGroupTopicPartition {
	rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = p, int64(o.Offset), int32(o.LeaderEpoch), &o.Metadata
	return rp
}
