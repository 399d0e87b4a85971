package kafka

import (
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

func metadataReq(names ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, n := range names {
		req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &n})
	}
	return req
}

func TestMetadataTellsWhoLeads(t *testing.T) {
	eachVersion(t, 3, func(t *testing.T, v int16) {
		cl := newFakeCluster()
		d := newTestDoor(t, cl, Config{})
		topic := cl.addTopic("t", 2)
		cl.addTopic("u", 1)
		r := askDoor[*kmsg.MetadataResponse](t, d, newClient(d), v, metadataReq("t"))
		if len(r.Brokers) != 1 || r.Brokers[0].NodeID != 1 || r.Brokers[0].Port != 9092 || v >= 1 && (r.ControllerID != 1 || *r.Brokers[0].Rack != "z") || v >= 2 && *r.ClusterID != "fake" {
			t.Fatalf("%+v", r)
		}
		got := r.Topics[0]
		if len(r.Topics) != 1 || got.ErrorCode != 0 || *got.Topic != "t" || len(got.Partitions) != 2 || v >= 10 && got.TopicID != [16]byte(topic.ID) {
			t.Fatalf("%+v", got)
		}
		if p := got.Partitions[1]; p.Partition != 1 || p.Leader != 1 || v >= 7 && p.LeaderEpoch != 3 || len(p.Replicas) != 1 || len(p.ISR) != 1 {
			t.Fatalf("%+v", p)
		}
		all := kmsg.NewPtrMetadataRequest()
		if r = askDoor[*kmsg.MetadataResponse](t, d, newClient(d), v, all); len(r.Topics) != 2 || *r.Topics[1].Topic != "u" {
			t.Fatalf("all: %+v", r)
		}
		r = askDoor[*kmsg.MetadataResponse](t, d, newClient(d), v, metadataReq())
		if want := map[bool]int{true: 2, false: 0}[v == 0]; len(r.Topics) != want {
			t.Fatalf("none asked: %d topics", len(r.Topics))
		}
	})
}

func TestMetadataNamesNoLeaderThatIsNotInItsBrokers(t *testing.T) {
	cl := newFakeCluster()
	d := newTestDoor(t, cl, Config{})
	topic := cl.addTopic("t", 1)
	cl.change(func(im *meta.Image) {
		im.Nodes[2] = &meta.Node{ID: 2, Kafka: "other:1", State: meta.NodeDown}
		im.Controller = 2
	})
	cl.part(topic, 0).set(func(p *fakePartition) { p.leader = 2 })
	r := askDoor[*kmsg.MetadataResponse](t, d, newClient(d), 12, metadataReq("t"))
	if p := r.Topics[0].Partitions[0]; p.Leader != -1 || p.ErrorCode != kerr.LeaderNotAvailable.Code || r.ControllerID != -1 {
		t.Fatalf("controller %d, %+v", r.ControllerID, p)
	}
}

func TestMetadataFindsTopicsByID(t *testing.T) {
	cl := newFakeCluster()
	d := newTestDoor(t, cl, Config{AutoCreateTopics: true})
	topic := cl.addTopic("t", 1)
	req := metadataReq()
	req.Topics = []kmsg.MetadataRequestTopic{{TopicID: topic.ID}, {TopicID: record.NewTopicID()}}
	r := askDoor[*kmsg.MetadataResponse](t, d, newClient(d), 12, req)
	if *r.Topics[0].Topic != "t" || r.Topics[1].ErrorCode != kerr.UnknownTopicID.Code {
		t.Fatalf("%+v", r.Topics)
	}
}

// Kafka's own client puts an empty name, not none, beside the id.
func TestMetadataFindsTopicsByIDBesideAnEmptyName(t *testing.T) {
	cl := newFakeCluster()
	d := newTestDoor(t, cl, Config{AutoCreateTopics: true})
	topic, nowhere := cl.addTopic("t", 1), record.NewTopicID()
	for v := int16(10); v <= 13; v++ {
		req := metadataReq("", "")
		req.AllowAutoTopicCreation = true
		req.Topics[0].TopicID, req.Topics[1].TopicID = topic.ID, nowhere
		r := askDoor[*kmsg.MetadataResponse](t, d, newClient(d), v, req)
		if r.Topics[0].ErrorCode != 0 || *r.Topics[0].Topic != "t" || len(r.Topics[0].Partitions) != 1 {
			t.Errorf("v%d: %+v", v, r.Topics[0])
		}
		if got := r.Topics[1]; got.ErrorCode != kerr.UnknownTopicID.Code || got.TopicID != nowhere || v >= 12 && got.Topic != nil {
			t.Errorf("v%d: %+v", v, got)
		}
	}
}

func TestMetadataCreatesTopics(t *testing.T) {
	for _, c := range []struct {
		name         string
		version      int16
		node, client bool
		topic        string
		err          error
		want         *kerr.Error
		created      int
	}{
		{"both allow", 12, true, true, "new", nil, nil, 1},
		{"old client", 3, true, false, "new", nil, nil, 1},
		{"client does not", 12, true, false, "new", nil, kerr.UnknownTopicOrPartition, 0},
		{"node does not", 12, false, true, "new", nil, kerr.UnknownTopicOrPartition, 0},
		{"bad name", 12, true, true, "new topic", nil, kerr.InvalidTopicException, 0},
		{"collision", 12, true, true, "a.b", meta.ErrInvalidTopicName, kerr.InvalidTopicException, 1},
		{"no master", 12, true, true, "new", master.ErrUnavailable, kerr.LeaderNotAvailable, 1},
		{"else", 12, true, true, "new", errors.New("?"), kerr.UnknownTopicOrPartition, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := newFakeCluster()
			cl.createErr = c.err
			d := newTestDoor(t, cl, Config{AutoCreateTopics: c.node})
			req := metadataReq(c.topic)
			req.AllowAutoTopicCreation = c.client
			r := askDoor[*kmsg.MetadataResponse](t, d, newClient(d), c.version, req).Topics[0]
			var want int16
			if c.want != nil {
				want = c.want.Code
			}
			if r.ErrorCode != want || len(cl.created) != c.created || want == 0 && len(r.Partitions) != 2 {
				t.Fatalf("%v, created %q: %+v", kerr.TypedErrorForCode(r.ErrorCode), cl.created, r)
			}
		})
	}
}

func TestReplicasThatAreLostOrDownAreOffline(t *testing.T) {
	cl := newFakeCluster()
	d := newTestDoor(t, cl, Config{})
	topic := cl.addTopic("t", 1)
	cl.change(func(im *meta.Image) {
		im.Nodes[2] = &meta.Node{ID: 2, Kafka: "two:1", State: meta.NodeDown}
		im.Nodes[3] = &meta.Node{ID: 3, Kafka: "three:1", State: meta.NodeUp}
		moved := *topic
		moved.Partitions = []meta.Placement{{Leader: 1, Replicas: []meta.Replica{{ID: 1, Node: 1}, {ID: 2, Node: 2}, {ID: 3, Node: 3, Lost: true}}}}
		im.Topics[topic.ID], im.ByName["t"] = &moved, &moved
	})
	p := askDoor[*kmsg.MetadataResponse](t, d, newClient(d), 12, metadataReq("t")).Topics[0].Partitions[0]
	if !slices.Equal(p.Replicas, []int32{1, 2, 3}) || !slices.Equal(p.ISR, []int32{1}) || !slices.Equal(p.OfflineReplicas, []int32{2, 3}) {
		t.Fatalf("%+v", p)
	}
}
