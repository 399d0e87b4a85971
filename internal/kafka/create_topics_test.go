package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/record"
)

// newTopic asks for a topic with the defaults.
func newTopic(name string, edit ...func(*kmsg.CreateTopicsRequestTopic)) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
	for _, e := range edit {
		e(&t)
	}
	return t
}

func createReq(topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics, req.TimeoutMillis = topics, 5000
	return req
}

// created sends the request and returns its answers by name.
func (d *adminDoor) created(v int16, req *kmsg.CreateTopicsRequest) map[string]kmsg.CreateTopicsResponseTopic {
	d.t.Helper()
	out := map[string]kmsg.CreateTopicsResponseTopic{}
	for _, r := range askAdmin[*kmsg.CreateTopicsResponse](d, v, req).Topics {
		if _, twice := out[r.Topic]; twice {
			d.t.Fatalf("topic %s is answered twice", r.Topic)
		}
		out[r.Topic] = r
	}
	return out
}

func counts(partitions int32, factor int16) func(*kmsg.CreateTopicsRequestTopic) {
	return func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions, t.ReplicationFactor = partitions, factor }
}

func with(name string, value *string) func(*kmsg.CreateTopicsRequestTopic) {
	return func(t *kmsg.CreateTopicsRequestTopic) {
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: name, Value: value})
	}
}

// placedOn gives replicas by hand: of partition numbers[i] on nodes[i].
func placedOn(numbers []int32, nodes ...[]int32) func(*kmsg.CreateTopicsRequestTopic) {
	return func(t *kmsg.CreateTopicsRequestTopic) {
		for i, n := range numbers {
			t.ReplicaAssignment = append(t.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: n, Replicas: nodes[i]})
		}
	}
}

func TestTopicsAreCreated(t *testing.T) {
	eachGroupVersion(t, 19, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		got := d.created(v, createReq(
			newTopic("defaults"),
			newTopic("asked", counts(3, 1), with("retention.ms", ptr("1000"))),
			newTopic("placed", placedOn([]int32{1, 0}, []int32{2, 1}, []int32{1, 2})),
		))
		im := d.image()
		for name, want := range map[string]struct{ partitions, factor int }{"defaults": {4, 2}, "asked": {3, 1}, "placed": {2, 2}} {
			r, topic := got[name], im.Topic(name)
			wantAdminCode(t, r.ErrorCode, r.ErrorMessage, nil)
			if topic == nil || len(topic.Partitions) != want.partitions || len(topic.Partitions[0].Replicas) != want.factor {
				t.Fatalf("topic %s is %+v", name, topic)
			}
			if v >= 5 && (int(r.NumPartitions) != want.partitions || int(r.ReplicationFactor) != want.factor) {
				t.Fatalf("%s is answered with %d partitions, factor %d", name, r.NumPartitions, r.ReplicationFactor)
			}
			if v >= 7 && record.TopicID(r.TopicID) != topic.ID {
				t.Fatalf("%s has id %x, answered is %x", name, topic.ID, r.TopicID)
			}
		}
		if p := im.Topic("placed").Partitions; p[0].Replicas[0].Node != 1 || p[1].Replicas[0].Node != 2 {
			t.Fatalf("placed by hand: %+v", p)
		}
		if im.Topic("asked").Config.Retention != time.Second {
			t.Fatalf("settings: %+v", im.Topic("asked").Config)
		}
		if v < 5 {
			return
		}
		found := false
		for _, c := range got["asked"].Configs {
			switch c.Name {
			case "retention.ms":
				found = true
				if text(c.Value) != "1000" || c.Source != int8(kmsg.ConfigSourceDynamicTopicConfig) {
					t.Fatalf("%+v", c)
				}
			case "segment.bytes":
				if text(c.Value) != "1073741824" || c.Source != int8(kmsg.ConfigSourceDefaultConfig) {
					t.Fatalf("%+v", c)
				}
			}
		}
		if !found {
			t.Fatalf("settings answered: %+v", got["asked"].Configs)
		}
	})
}

func TestTopicsAreRefusedOneByOne(t *testing.T) {
	eachGroupVersion(t, 19, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		d.topic("there", 1)
		d.topic("a.b", 1)
		cases := map[string]struct {
			topic kmsg.CreateTopicsRequestTopic
			want  *kerr.Error
		}{
			"exists":            {newTopic("there"), kerr.TopicAlreadyExists},
			"collides":          {newTopic("a_b"), kerr.InvalidTopicException},
			"no name":           {newTopic(""), kerr.InvalidTopicException},
			"parent folder":     {newTopic(".."), kerr.InvalidTopicException},
			"path":              {newTopic("a/b"), kerr.InvalidTopicException},
			"long name":         {newTopic(strings.Repeat("n", 250)), kerr.InvalidTopicException},
			"no partitions":     {newTopic("c1", counts(0, 1)), kerr.InvalidPartitions},
			"negative":          {newTopic("c2", counts(-2, 1)), kerr.InvalidPartitions},
			"too many":          {newTopic("c3", counts(10_001, 1)), kerr.InvalidPartitions},
			"most":              {newTopic("c4", counts(1<<31-1, 1)), kerr.InvalidPartitions},
			"factor 0":          {newTopic("c5", counts(1, 0)), kerr.InvalidReplicationFactor},
			"factor −2":         {newTopic("c6", counts(1, -2)), kerr.InvalidReplicationFactor},
			"factor over nodes": {newTopic("c7", counts(1, 3)), kerr.InvalidReplicationFactor},
			"unknown setting":   {newTopic("c8", with("retention.mss", ptr("1"))), kerr.InvalidConfig},
			"bad value":         {newTopic("c9", with("retention.ms", ptr("soon"))), kerr.InvalidConfig},
			"no value":          {newTopic("d1", with("retention.ms", nil)), kerr.InvalidConfig},
			"setting twice":     {newTopic("d2", with("retention.ms", ptr("1")), with("retention.ms", ptr("1"))), kerr.InvalidRequest},
			"by hand and count": {newTopic("d3", counts(1, -1), placedOn([]int32{0}, []int32{1})), kerr.InvalidRequest},
			"gap":               {newTopic("d4", placedOn([]int32{0, 2}, []int32{1}, []int32{1})), kerr.InvalidReplicaAssignment},
			"partition −1":      {newTopic("d5", placedOn([]int32{-1}, []int32{1})), kerr.InvalidReplicaAssignment},
			"partition twice":   {newTopic("d6", placedOn([]int32{0, 0}, []int32{1}, []int32{1})), kerr.InvalidReplicaAssignment},
			"unknown node":      {newTopic("d7", placedOn([]int32{0}, []int32{9})), kerr.InvalidReplicaAssignment},
			"node twice":        {newTopic("d8", placedOn([]int32{0}, []int32{1, 1})), kerr.InvalidReplicaAssignment},
			"no replicas":       {newTopic("d9", placedOn([]int32{0}, nil)), kerr.InvalidReplicaAssignment},
			"uneven":            {newTopic("e1", placedOn([]int32{0, 1}, []int32{1}, []int32{1, 2})), kerr.InvalidReplicaAssignment},
			"fine":              {newTopic("fine", counts(1, 1)), nil},
		}
		req := createReq()
		for _, c := range cases {
			req.Topics = append(req.Topics, c.topic)
		}
		for _, validate := range []bool{true, false} {
			if validate && v < 1 {
				continue
			}
			req.ValidateOnly = validate
			got := d.created(v, req)
			for name, c := range cases {
				r, ok := got[c.topic.Topic]
				if !ok || len(got) != len(cases) {
					t.Fatalf("%s is not answered", name)
				}
				if kerr.ErrorForCode(r.ErrorCode) != error(nil) && c.want == nil || c.want != nil && r.ErrorCode != c.want.Code {
					t.Errorf("%s (validate %v): %v, want %v", name, validate, kerr.ErrorForCode(r.ErrorCode), c.want)
				}
				if v >= 1 && (c.want == nil) != (r.ErrorMessage == nil) {
					t.Errorf("%s: message %s", name, text(r.ErrorMessage))
				}
			}
		}
		if im := d.image(); len(im.Topics) != 3 || im.Topic("fine") == nil {
			t.Fatalf("%d topics", len(im.Topics))
		}
	})
}

func TestTopicNamedTwiceIsNotCreated(t *testing.T) {
	eachGroupVersion(t, 19, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		got := d.created(v, createReq(newTopic("twice"), newTopic("once"), newTopic("twice"), newTopic("twice")))
		if len(got) != 2 {
			t.Fatalf("%d answers", len(got))
		}
		wantGroupCode(t, got["twice"].ErrorCode, kerr.InvalidRequest)
		wantGroupCode(t, got["once"].ErrorCode, nil)
		if d.image().Topic("twice") != nil || d.image().Topic("once") == nil {
			t.Fatal("the topic that stands twice was made, or the other was not")
		}
	})
}

func TestValidateOnlyTellsWhatWouldBeMade(t *testing.T) {
	for v := int16(1); v <= 7; v++ {
		d := newAdminDoor(t)
		d.unchanged(func() {
			req := createReq(newTopic("t", with("segment.ms", ptr("7"))))
			req.ValidateOnly = true
			r := d.created(v, req)["t"]
			wantAdminCode(t, r.ErrorCode, r.ErrorMessage, nil)
			if v >= 5 && (r.NumPartitions != 4 || r.ReplicationFactor != 2 || len(r.Configs) == 0) {
				t.Fatalf("v%d: %+v", v, r)
			}
			if r.TopicID != [16]byte{} {
				t.Fatalf("a topic that is not there has the id %x", r.TopicID)
			}
		})
		if d.image().Topic("t") != nil {
			t.Fatal("it was made")
		}
	}
}

func TestOneRequestMakesALimitedNumberOfPartitions(t *testing.T) {
	d := newAdminDoor(t)
	req := createReq(newTopic("a", counts(6000, 1)), newTopic("b", counts(6000, 1)), newTopic("c", counts(4000, 1)), newTopic("d"))
	req.ValidateOnly = true
	got := d.created(7, req)
	for name, want := range map[string]*kerr.Error{"a": nil, "b": kerr.PolicyViolation, "c": nil, "d": kerr.PolicyViolation} {
		wantAdminCode(t, got[name].ErrorCode, got[name].ErrorMessage, want)
	}
	// Defaults count for what they are.
	req = createReq()
	req.ValidateOnly = true
	for i := range maxPartitionsPerRequest/4 + 1 {
		req.Topics = append(req.Topics, newTopic(fmt.Sprint("t", i)))
	}
	refused := 0
	for _, r := range d.created(7, req) {
		if r.ErrorCode == kerr.PolicyViolation.Code {
			refused++
		}
	}
	if refused != 1 {
		t.Fatalf("%d topics were refused, want the last one", refused)
	}
}

func TestCreateTopicsKeepsItsTime(t *testing.T) {
	for name, c := range map[string]struct {
		timeoutMillis int32
		want          time.Duration
	}{"asked": {1500, 1500 * time.Millisecond}, "too long": {1 << 30, maxAdminWait}, "none": {0, maxAdminWait}, "negative": {-1, maxAdminWait}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newAdminDoor(t)
				d.meta.wait = true
				req := createReq(newTopic("t"))
				req.TimeoutMillis = c.timeoutMillis
				began := time.Now()
				r := d.created(7, req)["t"]
				if r.ErrorCode != kerr.RequestTimedOut.Code || time.Since(began) != c.want {
					t.Fatalf("%v after %v, want it after %v", kerr.ErrorForCode(r.ErrorCode), time.Since(began), c.want)
				}
			})
		})
	}
}

func TestClientsLookForAMasterThatDecides(t *testing.T) {
	d := newAdminDoor(t)
	d.meta.err = errors.New("no leader")
	r := d.created(7, createReq(newTopic("t")))["t"]
	if code := kerr.TypedErrorForCode(r.ErrorCode); code != kerr.NotController || !code.Retriable || strings.Contains(text(r.ErrorMessage), "no leader") {
		t.Fatalf("%v: %s", code, text(r.ErrorMessage))
	}
}

func TestTopicHasALimitedNumberOfSettings(t *testing.T) {
	d := newAdminDoor(t)
	topic := newTopic("t")
	for i := range maxSettings + 1 {
		with(fmt.Sprint("no.such.setting.", i), ptr("1"))(&topic)
	}
	for n, want := range map[int]*kerr.Error{maxSettings: kerr.InvalidConfig, maxSettings + 1: kerr.InvalidRequest} {
		cut := topic
		cut.Configs = topic.Configs[:n]
		r := d.created(7, createReq(cut))["t"]
		wantAdminCode(t, r.ErrorCode, r.ErrorMessage, want)
	}
}

func TestReplicasByHandSayWhichPartitionIsWrong(t *testing.T) {
	d := newAdminDoor(t)
	for want, edit := range map[string]func(*kmsg.CreateTopicsRequestTopic){
		"twice for partition 0":    placedOn([]int32{0, 0}, []int32{1}, []int32{2}),
		"for partition 2 of 2":     placedOn([]int32{0, 2}, []int32{1}, []int32{2}),
		"there is no node 9":       placedOn([]int32{0}, []int32{9}),
		"two replicas on node 1":   placedOn([]int32{0}, []int32{1, 1}),
		"partition 1 has 2 replic": placedOn([]int32{0, 1}, []int32{1}, []int32{1, 2}),
	} {
		r := d.created(7, createReq(newTopic("t", edit)))["t"]
		if !strings.Contains(text(r.ErrorMessage), want) {
			t.Errorf("answered %q, want it to say %q", text(r.ErrorMessage), want)
		}
	}
}
