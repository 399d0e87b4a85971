package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// moreOf asks for count partitions in all, the new ones on the nodes given.
func moreOf(topic string, count int32, nodes ...[]int32) kmsg.CreatePartitionsRequestTopic {
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = topic, count
	for _, n := range nodes {
		t.Assignment = append(t.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: n})
	}
	return t
}

func TestPartitionsAreAdded(t *testing.T) {
	eachGroupVersion(t, 37, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		for _, name := range []string{"auto", "hand", "keep", "twice"} {
			d.topic(name, 2)
		}
		cases := []struct {
			topic kmsg.CreatePartitionsRequestTopic
			want  *kerr.Error
			then  int // partitions
		}{
			{moreOf("auto", 5), nil, 5},
			{moreOf("hand", 4, []int32{2}, []int32{1}), nil, 4},
			{moreOf("none", 4), kerr.UnknownTopicOrPartition, 0},
			{moreOf("twice", 4), kerr.InvalidRequest, 2},
			{moreOf("keep", 2), kerr.InvalidPartitions, 2},
		}
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.TimeoutMillis = 5000
		for _, c := range cases {
			req.Topics = append(req.Topics, c.topic)
		}
		req.Topics = append(req.Topics, moreOf("twice", 5))
		codes := func(resp *kmsg.CreatePartitionsResponse) {
			t.Helper()
			if len(resp.Topics) != len(cases) {
				t.Fatalf("%d answers, want %d", len(resp.Topics), len(cases))
			}
			for i, c := range cases {
				if resp.Topics[i].Topic != c.topic.Topic {
					t.Fatalf("answer %d is about %s", i, resp.Topics[i].Topic)
				}
				wantAdminCode(t, resp.Topics[i].ErrorCode, resp.Topics[i].ErrorMessage, c.want)
			}
		}
		req.ValidateOnly = true
		d.unchanged(func() { codes(askAdmin[*kmsg.CreatePartitionsResponse](d, v, req)) })
		req.ValidateOnly = false
		codes(askAdmin[*kmsg.CreatePartitionsResponse](d, v, req))
		for _, c := range cases {
			if topic := d.image().Topic(c.topic.Topic); topic != nil && len(topic.Partitions) != c.then {
				t.Errorf("%s has %d partitions, want %d", topic.Name, len(topic.Partitions), c.then)
			}
		}
		if p := d.image().Topic("hand").Partitions; p[2].Replicas[0].Node != 2 || p[3].Replicas[0].Node != 1 {
			t.Fatalf("placed by hand: %+v", p)
		}
	})
}

func TestPartitionsThatCannotBeAreRefused(t *testing.T) {
	d := newAdminDoor(t)
	d.topic("t", 2)
	empty := moreOf("t", 3)
	empty.Assignment = []kmsg.CreatePartitionsRequestTopicAssignment{}
	for name, c := range map[string]struct {
		topic kmsg.CreatePartitionsRequestTopic
		want  *kerr.Error
	}{
		"fewer":           {moreOf("t", 1), kerr.InvalidPartitions},
		"negative":        {moreOf("t", -1), kerr.InvalidPartitions},
		"too many":        {moreOf("t", 10_001), kerr.InvalidPartitions},
		"most":            {moreOf("t", 1<<31-1), kerr.InvalidPartitions},
		"replicas of two": {moreOf("t", 3, []int32{1}, []int32{1}), kerr.InvalidReplicaAssignment},
		"replicas of no":  {empty, kerr.InvalidReplicaAssignment},
		"unknown node":    {moreOf("t", 3, []int32{7}), kerr.InvalidReplicaAssignment},
	} {
		t.Run(name, func(t *testing.T) {
			req := kmsg.NewPtrCreatePartitionsRequest()
			req.Topics = []kmsg.CreatePartitionsRequestTopic{c.topic}
			r := askAdmin[*kmsg.CreatePartitionsResponse](d, 3, req).Topics[0]
			wantAdminCode(t, r.ErrorCode, r.ErrorMessage, c.want)
		})
	}
	if n := len(d.image().Topic("t").Partitions); n != 2 {
		t.Fatalf("%d partitions", n)
	}
	d.topic("u", 1)
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.ValidateOnly = true
	req.Topics = []kmsg.CreatePartitionsRequestTopic{moreOf("t", 6000), moreOf("u", 6000)}
	r := askAdmin[*kmsg.CreatePartitionsResponse](d, 3, req).Topics
	wantAdminCode(t, r[0].ErrorCode, r[0].ErrorMessage, nil)
	wantAdminCode(t, r[1].ErrorCode, r[1].ErrorMessage, kerr.PolicyViolation)
}
