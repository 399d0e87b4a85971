package kafka

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// metadata tells who leads what. A topic that a client names is created first if
// both the client and the node allow it.
func (d *Door) metadata(ctx context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.MetadataRequest)
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	refused := map[string]*kerr.Error{}
	if d.cfg.AutoCreateTopics && (req.Version < 4 || req.AllowAutoTopicCreation) {
		refused = d.createMissing(ctx, req)
	}
	im := d.image()
	brokers := allEndpoints(im)
	up := nodesOf(brokers)
	for _, e := range brokers {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = e.node, e.host, e.port, e.rack
		resp.Brokers = append(resp.Brokers, b)
	}
	resp.ClusterID, resp.ControllerID = &im.ClusterID, -1
	if up[int32(im.Controller)] {
		resp.ControllerID = int32(im.Controller)
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}
	if req.Topics == nil || req.Version == 0 && len(req.Topics) == 0 {
		for _, t := range topicsByName(im) {
			resp.Topics = append(resp.Topics, d.topicMetadata(t, up, req.IncludeTopicAuthorizedOperations))
		}
		return resp
	}
	for i := range req.Topics {
		rt := &req.Topics[i]
		t, code := metadataTopic(im, rt, refused)
		if t == nil {
			m := kmsg.NewMetadataResponseTopic()
			m.Topic, m.TopicID, m.ErrorCode = rt.Topic, rt.TopicID, code.Code
			if byID(rt) {
				m.Topic = nil
			}
			if m.Topic == nil && req.Version < 12 {
				m.Topic = new(string)
			}
			resp.Topics = append(resp.Topics, m)
			continue
		}
		resp.Topics = append(resp.Topics, d.topicMetadata(t, up, req.IncludeTopicAuthorizedOperations))
	}
	return resp
}

// metadataTopic finds what a request names by id or, without one, by name.
func metadataTopic(im *meta.Image, rt *kmsg.MetadataRequestTopic, refused map[string]*kerr.Error) (*meta.Topic, *kerr.Error) {
	if byID(rt) {
		if t := im.Topics[record.TopicID(rt.TopicID)]; t != nil {
			return t, nil
		}
		return nil, kerr.UnknownTopicID
	}
	if t := im.Topic(*rt.Topic); t != nil {
		return t, nil
	}
	if code := refused[*rt.Topic]; code != nil {
		return nil, code
	}
	if meta.CheckTopicName(*rt.Topic) != nil {
		return nil, kerr.InvalidTopicException
	}
	return nil, kerr.UnknownTopicOrPartition
}

// byID reports whether a request names a topic by its id. An id counts first: Kafka's
// own client sends an empty name beside it, not none.
func byID(rt *kmsg.MetadataRequestTopic) bool { return rt.Topic == nil || rt.TopicID != [16]byte{} }

func (d *Door) topicMetadata(t *meta.Topic, up map[int32]bool, operations bool) kmsg.MetadataResponseTopic {
	m := kmsg.NewMetadataResponseTopic()
	m.Topic, m.TopicID = &t.Name, t.ID
	if operations {
		m.AuthorizedOperations = topicOperations
	}
	m.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	for n := range t.Partitions {
		at := d.place(t, record.Partition(n), up)
		p := &m.Partitions[n]
		p.Default()
		p.Partition, p.ErrorCode, p.Leader, p.LeaderEpoch = int32(n), at.code, at.leader, at.epoch
		p.Replicas, p.ISR, p.OfflineReplicas = at.replicas, at.isr, at.offline
	}
	return m
}

func topicsByName(im *meta.Image) []*meta.Topic {
	return slices.SortedFunc(maps.Values(im.ByName), func(a, b *meta.Topic) int { return cmp.Compare(a.Name, b.Name) })
}

// maxAutoCreate bounds the topics that one request may bring into being.
const maxAutoCreate = 100

// createMissing creates the topics that a request names and that are not there.
func (d *Door) createMissing(ctx context.Context, req *kmsg.MetadataRequest) map[string]*kerr.Error {
	im := d.image()
	refused := map[string]*kerr.Error{}
	created := 0
	for i := range req.Topics {
		name := req.Topics[i].Topic
		if byID(&req.Topics[i]) || im.Topic(*name) != nil || refused[*name] != nil || meta.CheckTopicName(*name) != nil {
			continue
		}
		if created++; created > maxAutoCreate {
			break
		}
		if code := d.autoCreate(ctx, *name); code != nil {
			refused[*name] = code
		}
	}
	return refused
}

// autoCreate makes a topic as the settings say; nil means that it is there now.
func (d *Door) autoCreate(ctx context.Context, name string) *kerr.Error {
	_, err := d.topics.CreateTopic(ctx, master.TopicSpec{Name: name, Partitions: -1, ReplicationFactor: -1})
	switch {
	case err == nil || errors.Is(err, meta.ErrTopicExists):
		return nil
	case errors.Is(err, meta.ErrInvalidTopicName):
		return kerr.InvalidTopicException // also one that collides with another's
	case errors.Is(err, master.ErrUnavailable) || errors.Is(err, meta.ErrInvalidReplicas):
		return kerr.LeaderNotAvailable // clients try again
	}
	d.cfg.Logger.Warn("a topic could not be created on first use", "topic", name, "err", err)
	return kerr.UnknownTopicOrPartition
}
