package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/record"
)

// deleteByName asks in either form for topics by name.
func deleteByName(v int16, names ...string) *kmsg.DeleteTopicsRequest {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 5000
	if v < 6 {
		req.TopicNames = names
		return req
	}
	for _, n := range names {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &n
		req.Topics = append(req.Topics, t)
	}
	return req
}

func TestTopicsAreDeletedByName(t *testing.T) {
	eachGroupVersion(t, 20, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		a := d.topic("a", 1)
		for _, name := range []string{"b", "keep", "twice"} {
			d.topic(name, 1)
		}
		got := askAdmin[*kmsg.DeleteTopicsResponse](d, v, deleteByName(v, "a", "twice", "none", "b", "twice", "")).Topics
		want := map[string]*kerr.Error{"a": nil, "b": nil, "twice": kerr.InvalidRequest, "none": kerr.UnknownTopicOrPartition, "": kerr.UnknownTopicOrPartition}
		if len(got) != len(want) {
			t.Fatalf("%d answers, want %d: %+v", len(got), len(want), got)
		}
		for _, r := range got {
			name := orEmpty(r.Topic)
			if v >= 5 {
				wantAdminCode(t, r.ErrorCode, r.ErrorMessage, want[name])
			}
			wantGroupCode(t, r.ErrorCode, want[name])
			if v >= 6 && name == "a" && record.TopicID(r.TopicID) != a.ID {
				t.Fatalf("topic a has id %x, answered is %x", a.ID, r.TopicID)
			}
		}
		if im := d.image(); len(im.Topics) != 2 || im.Topic("keep") == nil || im.Topic("twice") == nil {
			t.Fatalf("left are %v", im.ByName)
		}
	})
}

func TestTopicsAreDeletedById(t *testing.T) {
	d := newAdminDoor(t)
	a, b, c := d.topic("a", 1), d.topic("b", 1), d.topic("c", 1)
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 5000
	add := func(name *string, id record.TopicID) {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic, t.TopicID = name, id
		req.Topics = append(req.Topics, t)
	}
	stranger := record.NewTopicID()
	add(nil, a.ID)
	add(nil, stranger)
	add(ptr("b"), b.ID)        // both
	add(nil, record.TopicID{}) // neither
	add(nil, c.ID)             // the same topic in two ways
	add(ptr("c"), record.TopicID{})
	got := askAdmin[*kmsg.DeleteTopicsResponse](d, 6, req).Topics
	for i, want := range []*kerr.Error{nil, kerr.UnknownTopicID, kerr.InvalidRequest, kerr.InvalidRequest, kerr.InvalidRequest} {
		wantAdminCode(t, got[i].ErrorCode, got[i].ErrorMessage, want)
	}
	if len(got) != 5 || text(got[0].Topic) != "a" || got[1].Topic != nil || record.TopicID(got[1].TopicID) != stranger {
		t.Fatalf("answers %+v", got)
	}
	if im := d.image(); len(im.Topics) != 2 || im.Topic("a") != nil {
		t.Fatalf("left are %v", im.ByName)
	}
}
