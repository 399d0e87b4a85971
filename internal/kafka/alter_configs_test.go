package kafka

import (
	"maps"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// replaceReq asks for settings, given as name, value, name, value.
func replaceReq(kind kmsg.ConfigResourceType, name string, settings ...string) kmsg.AlterConfigsRequestResource {
	r := kmsg.NewAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	for i := 0; i < len(settings); i += 2 {
		r.Configs = append(r.Configs, kmsg.AlterConfigsRequestResourceConfig{Name: settings[i], Value: &settings[i+1]})
	}
	return r
}

func TestSettingsAreReplaced(t *testing.T) {
	eachGroupVersion(t, 33, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		for _, name := range []string{"t", "twice", "null", "none", "keep"} {
			d.topic(name, 1, "retention.ms", "1000", "segment.ms", "5000")
		}
		d.topic("mem", 1, "tube.storage", "memory")
		d.defaults(map[string]string{"retention.bytes": "7"})
		null := replaceReq(topicKind, "null", "segment.ms", "6000")
		null.Configs = append(null.Configs, kmsg.AlterConfigsRequestResourceConfig{Name: "retention.ms"})
		old := map[string]string{"retention.ms": "1000", "segment.ms": "5000"}
		cases := []struct {
			r    kmsg.AlterConfigsRequestResource
			want *kerr.Error
			then map[string]string // of the topic
		}{
			{replaceReq(topicKind, "t", "segment.ms", "6000"), nil, map[string]string{"segment.ms": "6000"}},
			{null, nil, map[string]string{"segment.ms": "6000"}},
			{replaceReq(topicKind, "none"), nil, map[string]string{}},
			{replaceReq(topicKind, "twice", "segment.ms", "1"), kerr.InvalidRequest, old},
			{replaceReq(topicKind, "keep", "segment.ms", "9", "retention.ms", "soon"), kerr.InvalidConfig, old},
			{replaceReq(topicKind, "mem", "segment.ms", "9"), kerr.InvalidConfig, map[string]string{"tube.storage": "memory"}},
			{replaceReq(topicKind, "nobody"), kerr.UnknownTopicOrPartition, nil},
			{replaceReq(topicKind, "a/b"), kerr.InvalidTopicException, nil},
			{replaceReq(brokerKind, "", "log.retention.ms", "2000"), nil, nil},
			{replaceReq(brokerKind, "1", "log.retention.ms", "3000"), kerr.InvalidRequest, nil},
			{replaceReq(kmsg.ConfigResourceTypeGroupConfig, ""), kerr.InvalidRequest, nil},
		}
		req := kmsg.NewPtrAlterConfigsRequest()
		for _, c := range append(cases, cases[3]) {
			req.Resources = append(req.Resources, c.r)
		}
		codes := func() {
			t.Helper()
			got := askAdmin[*kmsg.AlterConfigsResponse](d, v, req).Resources
			if len(got) != len(cases) {
				t.Fatalf("%d answers, want %d", len(got), len(cases))
			}
			for i, c := range cases {
				if got[i].ResourceName != c.r.ResourceName || got[i].ResourceType != c.r.ResourceType {
					t.Fatalf("answer %d is about %q", i, got[i].ResourceName)
				}
				wantAdminCode(t, got[i].ErrorCode, got[i].ErrorMessage, c.want)
			}
		}
		req.ValidateOnly = true
		d.unchanged(codes)
		req.ValidateOnly = false
		codes()
		for _, c := range cases {
			if topic := d.image().Topic(c.r.ResourceName); topic != nil && !maps.Equal(topic.Overrides, c.then) {
				t.Errorf("%s has %v, want %v", topic.Name, topic.Overrides, c.then)
			}
		}
		if got := d.image().Defaults; !maps.Equal(got, map[string]string{"retention.ms": "2000"}) {
			t.Errorf("defaults are %v", got)
		}
	})
}

func TestSettingsOfANodeAreReadOnly(t *testing.T) {
	d := newAdminDoor(t)
	for name, want := range map[string]*kerr.Error{"num.partitions": kerr.InvalidConfig, "broker.id": kerr.InvalidConfig, "no.such.setting": kerr.InvalidConfig, "segment.ms": nil} {
		req := kmsg.NewPtrAlterConfigsRequest()
		req.Resources = append(req.Resources, replaceReq(brokerKind, "", name, "8"))
		r := askAdmin[*kmsg.AlterConfigsResponse](d, 2, req).Resources[0]
		wantAdminCode(t, r.ErrorCode, r.ErrorMessage, want)
		if says := "set it in the node's configuration"; strings.Contains(text(r.ErrorMessage), says) != (name == "num.partitions" || name == "broker.id") {
			t.Errorf("%s is answered with %q", name, text(r.ErrorMessage))
		}
	}
	// Two names of one setting contradict each other.
	req := kmsg.NewPtrAlterConfigsRequest()
	req.Resources = append(req.Resources, replaceReq(brokerKind, "", "log.retention.ms", "1", "retention.ms", "2"))
	r := askAdmin[*kmsg.AlterConfigsResponse](d, 2, req).Resources[0]
	wantAdminCode(t, r.ErrorCode, r.ErrorMessage, kerr.InvalidRequest)
}
