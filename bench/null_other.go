package bench

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// nullVersions is what the null broker advertises.
var nullVersions = []struct{ key, min, max int16 }{
	{int16(kmsg.Produce), 3, nullProduceVersion},
	{int16(kmsg.Fetch), nullFetchVersion, nullFetchVersion},
	{int16(kmsg.ListOffsets), 1, 5},
	{int16(kmsg.Metadata), 1, 12},
	{int16(kmsg.FindCoordinator), 0, 3},
	{int16(kmsg.ApiVersions), 0, 3},
	{int16(kmsg.CreateTopics), 0, 7},
	{int16(kmsg.DeleteTopics), 0, 5},
	{int16(kmsg.InitProducerID), 0, 4},
}

// other answers the requests that are rare: speed does not matter, so they go
// through the codec.
func (n *nullConn) other(key, version int16, restBytes int64) error {
	body, err := n.readSmall(restBytes)
	if err != nil {
		return err
	}
	req := kmsg.RequestForKey(key)
	if req == nil {
		return fmt.Errorf("%w: api %d", errNullFrame, key)
	}
	if key == int16(kmsg.ApiVersions) && version > 3 {
		version = 0 // a v0 body with error 35: the client then asks again
		return n.respond(nullApiVersions(35), version)
	}
	req.SetVersion(version)
	p := parser{b: body}
	p.string() // client id
	if req.IsFlexible() && p.take(1) == nil {
		return errNullFrame
	}
	if err := req.ReadFrom(p.b); err != nil {
		return fmt.Errorf("%w: %w", errNullFrame, err)
	}
	resp := n.broker.respondTo(req)
	if resp == nil {
		return fmt.Errorf("%w: api %d is not for a null broker", errNullFrame, key)
	}
	return n.respond(resp, version)
}

func (n *nullConn) respond(resp kmsg.Response, version int16) error {
	resp.SetVersion(version)
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		n.reply = append(n.reply, 0) // no tags in the header
	}
	n.reply = resp.AppendTo(n.reply)
	return n.send()
}

func (b *NullBroker) respondTo(req kmsg.Request) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.ApiVersionsRequest:
		return nullApiVersions(0)
	case *kmsg.MetadataRequest:
		return b.metadata(req)
	case *kmsg.InitProducerIDRequest:
		r := kmsg.NewPtrInitProducerIDResponse()
		r.ProducerID = b.producerID.Add(1)
		return r
	case *kmsg.ListOffsetsRequest:
		return b.listOffsets(req)
	case *kmsg.FindCoordinatorRequest:
		r := kmsg.NewPtrFindCoordinatorResponse()
		r.NodeID, r.Host, r.Port = 1, b.host, b.port
		return r
	case *kmsg.CreateTopicsRequest:
		r := kmsg.NewPtrCreateTopicsResponse()
		for _, t := range req.Topics {
			rt := kmsg.NewCreateTopicsResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, topicID(t.Topic)
			rt.NumPartitions, rt.ReplicationFactor = int32(b.config.Partitions), 1
			r.Topics = append(r.Topics, rt)
		}
		return r
	case *kmsg.DeleteTopicsRequest:
		r := kmsg.NewPtrDeleteTopicsResponse()
		for _, t := range req.TopicNames {
			rt := kmsg.NewDeleteTopicsResponseTopic()
			rt.Topic = kmsg.StringPtr(t)
			r.Topics = append(r.Topics, rt)
		}
		return r
	}
	return nil
}

func nullApiVersions(errorCode int16) *kmsg.ApiVersionsResponse {
	r := kmsg.NewPtrApiVersionsResponse()
	r.ErrorCode = errorCode
	for _, v := range nullVersions {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = v.key, v.min, v.max
		r.ApiKeys = append(r.ApiKeys, k)
	}
	return r
}

func (b *NullBroker) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	r := kmsg.NewPtrMetadataResponse()
	broker := kmsg.NewMetadataResponseBroker()
	broker.NodeID, broker.Host, broker.Port = 1, b.host, b.port
	r.Brokers = append(r.Brokers, broker)
	r.ClusterID, r.ControllerID = kmsg.StringPtr("null"), 1
	for _, asked := range req.Topics {
		if asked.Topic == nil {
			continue
		}
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.TopicID = asked.Topic, topicID(*asked.Topic)
		for p := range b.config.Partitions {
			mp := kmsg.NewMetadataResponseTopicPartition()
			mp.Partition, mp.Leader, mp.LeaderEpoch = int32(p), 1, 0
			mp.Replicas, mp.ISR = []int32{1}, []int32{1}
			t.Partitions = append(t.Partitions, mp)
		}
		r.Topics = append(r.Topics, t)
	}
	return r
}

func (b *NullBroker) listOffsets(req *kmsg.ListOffsetsRequest) kmsg.Response {
	r := kmsg.NewPtrListOffsetsResponse()
	for _, t := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch = p.Partition, 0, 0
			if p.Timestamp == -1 {
				rp.Offset = b.config.EndOffset
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

// topicID gives a topic the same id whenever it is asked for.
func topicID(name string) (id [16]byte) {
	h := fnv.New128a()
	h.Write([]byte(name))
	h.Sum(id[:0])
	binary.BigEndian.PutUint16(id[6:], 0x4000|binary.BigEndian.Uint16(id[6:])&0x0fff)
	return id
}
