package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
)

const (
	topicKind  = kmsg.ConfigResourceTypeTopic
	brokerKind = kmsg.ConfigResourceTypeBroker
)

func describeReq(kind kmsg.ConfigResourceType, name string, asked ...string) *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, asked
	req.Resources = append(req.Resources, r)
	return req
}

// described are a resource's settings by name.
func (d *adminDoor) described(v int16, req *kmsg.DescribeConfigsRequest) map[string]kmsg.DescribeConfigsResponseResourceConfig {
	d.t.Helper()
	rs := askAdmin[*kmsg.DescribeConfigsResponse](d, v, req).Resources
	if len(rs) != 1 || rs[0].ResourceName != req.Resources[0].ResourceName || rs[0].ResourceType != req.Resources[0].ResourceType {
		d.t.Fatalf("resources %+v", rs)
	}
	wantAdminCode(d.t, rs[0].ErrorCode, rs[0].ErrorMessage, nil)
	out := map[string]kmsg.DescribeConfigsResponseResourceConfig{}
	for _, c := range rs[0].Configs {
		if _, twice := out[c.Name]; twice {
			d.t.Fatalf("%s is described twice", c.Name)
		}
		out[c.Name] = c
	}
	return out
}

// defaults sets the cluster's defaults for topics.
func (d *adminDoor) defaults(set map[string]string) {
	d.t.Helper()
	if err := d.topics.AlterConfig(d.t.Context(), master.ConfigChange{Set: set}); err != nil {
		d.t.Fatal(err)
	}
}

func TestTopicSettingsAreDescribed(t *testing.T) {
	eachGroupVersion(t, 32, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		d.topic("t", 1, "retention.ms", "1000")
		d.defaults(map[string]string{"retention.ms": "2000", "segment.ms": "3000"})
		req := describeReq(topicKind, "t")
		req.IncludeSynonyms, req.IncludeDocumentation = v >= 1, v >= 3
		got := d.described(v, req)
		if len(got) != len(meta.TopicSettings()) {
			t.Fatalf("%d settings, want %d", len(got), len(meta.TopicSettings()))
		}
		for _, c := range []struct {
			name, value string
			source      kmsg.ConfigSource
			kind        kmsg.ConfigType
			synonyms    string
		}{
			{"retention.ms", "1000", kmsg.ConfigSourceDynamicTopicConfig, kmsg.ConfigTypeLong, "retention.ms=1000(1) log.retention.ms=2000(3) log.retention.ms=604800000(5)"},
			{"segment.ms", "3000", kmsg.ConfigSourceDynamicDefaultBrokerConfig, kmsg.ConfigTypeLong, "log.roll.ms=3000(3) log.roll.ms=604800000(5)"},
			{"cleanup.policy", "delete", kmsg.ConfigSourceDefaultConfig, kmsg.ConfigTypeList, "log.cleanup.policy=delete(5)"},
			{"max.message.bytes", "1048588", kmsg.ConfigSourceDefaultConfig, kmsg.ConfigTypeInt, "message.max.bytes=1048588(5)"},
			{"preallocate", "false", kmsg.ConfigSourceDefaultConfig, kmsg.ConfigTypeBoolean, "preallocate=false(5)"},
			{"min.cleanable.dirty.ratio", "0.5", kmsg.ConfigSourceDefaultConfig, kmsg.ConfigTypeDouble, "min.cleanable.dirty.ratio=0.5(5)"},
			{"tube.durability", "quorum-fsync", kmsg.ConfigSourceDefaultConfig, kmsg.ConfigTypeString, "tube.durability=quorum-fsync(5)"},
		} {
			e := got[c.name]
			if text(e.Value) != c.value || e.ReadOnly || e.IsSensitive {
				t.Errorf("%s: %+v", c.name, e)
			}
			if v == 0 && e.IsDefault != (c.source == kmsg.ConfigSourceDefaultConfig) {
				t.Errorf("%s: default %v", c.name, e.IsDefault)
			}
			if v >= 1 {
				var all []string
				for _, s := range e.ConfigSynonyms {
					all = append(all, fmt.Sprintf("%s=%s(%d)", s.Name, text(s.Value), s.Source))
				}
				if e.Source != c.source || strings.Join(all, " ") != c.synonyms {
					t.Errorf("%s: source %v, synonyms %v, want %v, %s", c.name, e.Source, all, c.source, c.synonyms)
				}
			}
			if v >= 3 && (e.ConfigType != c.kind || e.Documentation == nil) {
				t.Errorf("%s: type %v, documentation %s", c.name, e.ConfigType, text(e.Documentation))
			}
		}
		if v >= 3 && !strings.Contains(text(got["flush.ms"].Documentation), "without effect") {
			t.Errorf("flush.ms is documented as %s", text(got["flush.ms"].Documentation))
		}
		if v >= 3 && strings.Contains(text(got["retention.ms"].Documentation), "without effect") {
			t.Errorf("retention.ms is documented as %s", text(got["retention.ms"].Documentation))
		}
		plain := d.described(v, describeReq(topicKind, "t"))["retention.ms"]
		if len(plain.ConfigSynonyms) != 0 || plain.Documentation != nil {
			t.Errorf("more than was asked for: %+v", plain)
		}
	})
}

// Kafka takes an empty list of names for all; clients send one.
func TestSettingsAreFilteredByName(t *testing.T) {
	eachGroupVersion(t, 32, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		d.topic("t", 1)
		if got := d.described(v, describeReq(topicKind, "t", "retention.ms", "no.such.setting", "segment.ms")); len(got) != 2 {
			t.Fatalf("%d settings: %v", len(got), got)
		}
		empty := describeReq(topicKind, "t")
		empty.Resources[0].ConfigNames = []string{}
		if got := d.described(v, empty); len(got) != len(meta.TopicSettings()) {
			t.Fatalf("an empty list of names gives %d settings", len(got))
		}
	})
}

func TestBrokerSettingsAreDescribed(t *testing.T) {
	eachGroupVersion(t, 32, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		if got := d.described(v, describeReq(brokerKind, "")); len(got) != 0 {
			t.Fatalf("defaults that somebody changed: %+v", got)
		}
		d.defaults(map[string]string{"retention.ms": "2000", "tube.durability": "none"})
		got := d.described(v, describeReq(brokerKind, "1"))
		for _, c := range []struct {
			name, value string
			readOnly    bool
			source      kmsg.ConfigSource
		}{
			{"broker.id", "1", true, kmsg.ConfigSourceStaticBrokerConfig},
			{"num.partitions", "4", true, kmsg.ConfigSourceStaticBrokerConfig},
			{"default.replication.factor", "2", true, kmsg.ConfigSourceStaticBrokerConfig},
			{"auto.create.topics.enable", "true", true, kmsg.ConfigSourceStaticBrokerConfig},
			{"log.retention.ms", "2000", false, kmsg.ConfigSourceDynamicDefaultBrokerConfig},
			{"tube.durability", "none", false, kmsg.ConfigSourceDynamicDefaultBrokerConfig},
			{"message.max.bytes", "1048588", false, kmsg.ConfigSourceDefaultConfig},
		} {
			e, ok := got[c.name]
			if !ok || text(e.Value) != c.value || e.ReadOnly != c.readOnly || v >= 1 && e.Source != c.source {
				t.Errorf("%s: %+v", c.name, e)
			}
		}
		changed := d.described(v, describeReq(brokerKind, ""))
		if len(changed) != 2 || text(changed["log.retention.ms"].Value) != "2000" || text(changed["tube.durability"].Value) != "none" {
			t.Fatalf("defaults that somebody changed: %+v", changed)
		}
	})
}

func TestResourcesWithoutSettingsAreRefusedOneByOne(t *testing.T) {
	eachGroupVersion(t, 32, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		d.topic("t", 1)
		d.topic("twice", 1)
		req := kmsg.NewPtrDescribeConfigsRequest()
		cases := []struct {
			at   resource
			want *kerr.Error
		}{
			{resource{topicKind, "none"}, kerr.UnknownTopicOrPartition},
			{resource{topicKind, ""}, kerr.InvalidTopicException},
			{resource{topicKind, "a/b"}, kerr.InvalidTopicException},
			{resource{topicKind, "twice"}, kerr.InvalidRequest},
			{resource{brokerKind, "2"}, kerr.InvalidRequest},
			{resource{brokerKind, "one"}, kerr.InvalidRequest},
			{resource{brokerKind, "4294967297"}, kerr.InvalidRequest},
			{resource{kmsg.ConfigResourceTypeBrokerLogger, "1"}, kerr.InvalidRequest},
			{resource{kmsg.ConfigResourceTypeGroupConfig, ""}, kerr.InvalidRequest},
			{resource{99, "x"}, kerr.InvalidRequest},
			{resource{topicKind, "t"}, nil},
		}
		for _, c := range append(cases, cases[3]) {
			r := kmsg.NewDescribeConfigsRequestResource()
			r.ResourceType, r.ResourceName = c.at.kind, c.at.name
			req.Resources = append(req.Resources, r)
		}
		got := askAdmin[*kmsg.DescribeConfigsResponse](d, v, req).Resources
		if len(got) != len(cases) {
			t.Fatalf("%d answers, want %d", len(got), len(cases))
		}
		for i, c := range cases {
			if got[i].ResourceName != c.at.name {
				t.Fatalf("answer %d is about %q", i, got[i].ResourceName)
			}
			wantAdminCode(t, got[i].ErrorCode, got[i].ErrorMessage, c.want)
		}
	})
}

func TestAnswersOfSettingsAreBounded(t *testing.T) {
	d := newAdminDoor(t)
	im := *d.image()
	im.ByName = map[string]*meta.Topic{}
	req := kmsg.NewPtrDescribeConfigsRequest()
	for i := range maxDescribed + 1 {
		name := fmt.Sprint("t", i)
		im.ByName[name] = &meta.Topic{Name: name}
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = topicKind, name, []string{"retention.ms"}
		req.Resources = append(req.Resources, r)
	}
	d.Door.image = func() *meta.Image { return &im }
	got := askAdmin[*kmsg.DescribeConfigsResponse](d, 4, req).Resources
	wantAdminCode(t, got[maxDescribed-1].ErrorCode, got[maxDescribed-1].ErrorMessage, nil)
	wantAdminCode(t, got[maxDescribed].ErrorCode, got[maxDescribed].ErrorMessage, kerr.InvalidRequest)
}

// Another node may have acknowledged a change that has not come here yet: settings
// are told, and topics looked for, when this node has caught up.
func TestAdministrationCatchesUpFirst(t *testing.T) {
	cl := newFakeCluster()
	d := newTestDoor(t, cl, Config{})
	caught := 0
	d.catchUp = func(context.Context) error {
		if caught++; caught == 1 {
			cl.addTopic("late", 1)
		}
		return nil
	}
	if r := askDoor[*kmsg.DescribeConfigsResponse](t, d, newClient(d), 4, describeReq(topicKind, "late")).Resources[0]; r.ErrorCode != 0 {
		t.Errorf("a topic that came while catching up: error %d", r.ErrorCode)
	}
	for _, req := range []kmsg.Request{kmsg.NewPtrAlterConfigsRequest(), kmsg.NewPtrIncrementalAlterConfigsRequest(), kmsg.NewPtrDeleteTopicsRequest(), kmsg.NewPtrCreatePartitionsRequest()} {
		before := caught
		row := d.table[req.Key()]
		req.SetVersion(row.max)
		row.handle(d, t.Context(), newClient(d), req)
		if caught != before+1 {
			t.Errorf("%s does not catch up", kmsg.NameForKey(req.Key()))
		}
	}
	d.catchUp = func(context.Context) error { return errors.New("no active master") }
	if r := askDoor[*kmsg.DescribeConfigsResponse](t, d, newClient(d), 4, describeReq(topicKind, "late")).Resources[0]; r.ErrorCode != kerr.NotController.Code {
		t.Errorf("settings that may be old: error %d", r.ErrorCode)
	}
	before := caught
	if r := askDoor[*kmsg.DescribeConfigsResponse](t, d, newClient(d), 4, describeReq(brokerKind, "1")).Resources[0]; r.ErrorCode != 0 || caught != before {
		t.Errorf("a node's own settings: error %d", r.ErrorCode)
	}
}
