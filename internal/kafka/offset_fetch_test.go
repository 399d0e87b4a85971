package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchReq asks for one position, in the form of every version.
func fetchReq(name, topic string, p int32) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group, req.RequireStable = name, true
	req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: topic, Partitions: []int32{p}}}
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = name
	g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic, Partitions: []int32{p}}}
	req.Groups = append(req.Groups, g)
	return req
}

// topicsOf is a version's answer in one form.
func topicsOf(v int16, r *kmsg.OffsetFetchResponse) (topics []kmsg.OffsetFetchResponseGroupTopic, code int16) {
	if v >= 8 {
		return r.Groups[0].Topics, r.Groups[0].ErrorCode
	}
	for _, t := range r.Topics {
		gt := kmsg.OffsetFetchResponseGroupTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			gt.Partitions = append(gt.Partitions, kmsg.OffsetFetchResponseGroupTopicPartition{
				Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode,
			})
		}
		topics = append(topics, gt)
	}
	return topics, r.ErrorCode
}

func TestOffsetFetchAnswersWhatIsAsked(t *testing.T) {
	eachGroupVersion(t, 9, func(t *testing.T, v int16) {
		d := newGroupDoor(t)
		d.commit("g", "t", 1, 7, "note")
		req := fetchReq("g", "t", 1)
		req.Groups[0].Topics[0].TopicID = d.im.ByName["t"].ID
		topics, code := topicsOf(v, askGroups[*kmsg.OffsetFetchResponse](d, v, req))
		wantGroupCode(t, code, nil)
		p := topics[0].Partitions[0]
		if p.Partition != 1 || p.Offset != 7 || *p.Metadata != "note" || v >= 5 && p.LeaderEpoch != 4 {
			t.Fatalf("position %+v", p)
		}

		// No position, no partition, no topic: −1, and no error but for an id.
		for _, c := range []struct {
			topic string
			p     int32
		}{{"t", 0}, {"t", 99}, {"nowhere", 0}} {
			req := fetchReq("g", c.topic, c.p)
			if topic := d.im.ByName[c.topic]; topic != nil {
				req.Groups[0].Topics[0].TopicID = topic.ID
			}
			topics, code := topicsOf(v, askGroups[*kmsg.OffsetFetchResponse](d, v, req))
			wantGroupCode(t, code, nil)
			p := topics[0].Partitions[0]
			if p.Offset != -1 || p.Metadata == nil {
				t.Fatalf("%s/%d: %+v", c.topic, c.p, p)
			}
			if v >= 10 && c.topic == "nowhere" {
				wantGroupCode(t, p.ErrorCode, kerr.UnknownTopicID)
			} else {
				wantGroupCode(t, p.ErrorCode, nil)
			}
		}
	})
}

func TestOffsetFetchOfEverything(t *testing.T) {
	for v := int16(2); v <= 10; v++ {
		d := newGroupDoor(t)
		d.commit("g", "t", 0, 1, "")
		d.commit("g", "t", 1, 2, "")
		d.commit("g", "u", 0, 3, "")
		d.dropTopic("u")
		d.addTopic("u", 1) // another topic, though of the same name
		req := fetchReq("g", "", 0)
		req.Topics, req.Groups[0].Topics = nil, nil
		topics, code := topicsOf(v, askGroups[*kmsg.OffsetFetchResponse](d, v, req))
		wantGroupCode(t, code, nil)
		if len(topics) != 1 || len(topics[0].Partitions) != 2 || topics[0].Partitions[1].Offset != 2 {
			t.Fatalf("v%d: %+v", v, topics)
		}
		if v < 10 && topics[0].Topic != "t" || v >= 10 && topics[0].TopicID != d.im.ByName["t"].ID {
			t.Fatalf("v%d: topic %+v", v, topics[0])
		}
		// Nothing asked is not everything.
		req.Topics, req.Groups[0].Topics = []kmsg.OffsetFetchRequestTopic{}, []kmsg.OffsetFetchRequestGroupTopic{}
		if topics, _ := topicsOf(v, askGroups[*kmsg.OffsetFetchResponse](d, v, req)); len(topics) != 0 {
			t.Fatalf("v%d: %+v", v, topics)
		}
	}
}

func TestOffsetFetchElsewhere(t *testing.T) {
	eachGroupVersion(t, 9, func(t *testing.T, v int16) {
		d := newGroupDoor(t)
		d.groups.Shard(0).LoseLeadership()
		topics, code := topicsOf(v, askGroups[*kmsg.OffsetFetchResponse](d, v, fetchReq("g", "t", 1)))
		if v == 1 {
			code = topics[0].Partitions[0].ErrorCode
		}
		wantGroupCode(t, code, kerr.NotCoordinator)
	})
}
