package kafka

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// operation is one change: op and a setting, with = and a value if it has one.
func operation(op kmsg.IncrementalAlterConfigOp, setting string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	name, value, ok := strings.Cut(setting, "=")
	if c.Name, c.Op = name, op; ok {
		c.Value = &value
	}
	return c
}

func changesOf(kind kmsg.ConfigResourceType, name string, ops ...kmsg.IncrementalAlterConfigsRequestResourceConfig) kmsg.IncrementalAlterConfigsRequestResource {
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.Configs = kind, name, ops
	return r
}

const (
	set      = kmsg.IncrementalAlterConfigOpSet
	unset    = kmsg.IncrementalAlterConfigOpDelete
	appendTo = kmsg.IncrementalAlterConfigOpAppend
	subtract = kmsg.IncrementalAlterConfigOpSubtract
)

func TestSettingsAreChangedOneByOne(t *testing.T) {
	eachGroupVersion(t, 44, func(t *testing.T, v int16) {
		old := map[string]string{"retention.ms": "1000", "segment.ms": "5000"}
		for name, c := range map[string]struct {
			ops  []kmsg.IncrementalAlterConfigsRequestResourceConfig
			want *kerr.Error
			then map[string]string
		}{
			"nothing":             {nil, nil, old},
			"set":                 {ops(operation(set, "retention.ms=7")), nil, map[string]string{"retention.ms": "7", "segment.ms": "5000"}},
			"delete":              {ops(operation(unset, "retention.ms")), nil, map[string]string{"segment.ms": "5000"}},
			"delete with value":   {ops(operation(unset, "retention.ms=9")), nil, map[string]string{"segment.ms": "5000"}},
			"delete what is not":  {ops(operation(unset, "segment.bytes")), nil, old},
			"both":                {ops(operation(unset, "retention.ms"), operation(set, "segment.ms=6")), nil, map[string]string{"segment.ms": "6"}},
			"append again":        {ops(operation(appendTo, "cleanup.policy= delete ,delete")), nil, map[string]string{"retention.ms": "1000", "segment.ms": "5000", "cleanup.policy": "delete"}},
			"append unknown word": {ops(operation(appendTo, "cleanup.policy=compact")), kerr.InvalidConfig, old},
			"subtract other":      {ops(operation(subtract, "cleanup.policy=compact")), nil, map[string]string{"retention.ms": "1000", "segment.ms": "5000", "cleanup.policy": "delete"}},
			"subtract the last":   {ops(operation(subtract, "cleanup.policy=delete")), kerr.InvalidConfig, old},
			"append to number":    {ops(operation(appendTo, "retention.ms=7")), kerr.InvalidConfig, old},
			"append to unknown":   {ops(operation(appendTo, "cleanup.polici=7")), kerr.InvalidConfig, old},
			"append no number":    {ops(operation(appendTo, "retention.ms=")), kerr.InvalidConfig, old},
			"subtract a lot":      {ops(operation(subtract, "cleanup.policy="+strings.Repeat("a,", 501))), kerr.InvalidConfig, old},
			"no value":            {ops(operation(set, "retention.ms")), kerr.InvalidConfig, old},
			"unknown":             {ops(operation(set, "retention.mss=1")), kerr.InvalidConfig, old},
			"bad":                 {ops(operation(set, "segment.ms=6"), operation(set, "retention.ms=soon")), kerr.InvalidConfig, old},
			"twice":               {ops(operation(set, "segment.ms=6"), operation(unset, "segment.ms")), kerr.InvalidRequest, old},
			"unknown operation":   {ops(operation(9, "segment.ms=6")), kerr.InvalidRequest, old},
			"storage":             {ops(operation(set, "tube.storage=memory")), kerr.InvalidConfig, old},
		} {
			t.Run(name, func(t *testing.T) {
				d := newAdminDoor(t)
				d.topic("t", 1, "retention.ms", "1000", "segment.ms", "5000")
				req := kmsg.NewPtrIncrementalAlterConfigsRequest()
				req.Resources = append(req.Resources, changesOf(topicKind, "t", c.ops...))
				ask := func() {
					t.Helper()
					r := askAdmin[*kmsg.IncrementalAlterConfigsResponse](d, v, req).Resources[0]
					wantAdminCode(t, r.ErrorCode, r.ErrorMessage, c.want)
				}
				req.ValidateOnly = true
				d.unchanged(ask)
				req.ValidateOnly = false
				ask()
				if got := d.image().Topic("t").Overrides; !maps.Equal(got, c.then) {
					t.Fatalf("settings %v, want %v", got, c.then)
				}
			})
		}
	})
}

func ops(o ...kmsg.IncrementalAlterConfigsRequestResourceConfig) []kmsg.IncrementalAlterConfigsRequestResourceConfig {
	return o
}

func TestEveryResourceIsChangedForItself(t *testing.T) {
	eachGroupVersion(t, 44, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		d.topic("t", 1)
		d.topic("twice", 1)
		cases := []struct {
			r    kmsg.IncrementalAlterConfigsRequestResource
			want *kerr.Error
		}{
			{changesOf(topicKind, "none", operation(set, "segment.ms=6")), kerr.UnknownTopicOrPartition},
			{changesOf(topicKind, "twice", operation(set, "segment.ms=6")), kerr.InvalidRequest},
			{changesOf(brokerKind, "", operation(set, "log.roll.ms=6"), operation(set, "tube.durability=none")), nil},
			{changesOf(brokerKind, "1", operation(set, "log.roll.ms=7")), kerr.InvalidRequest},
			{changesOf(brokerKind, "2", operation(set, "log.roll.ms=7")), kerr.InvalidRequest},
			{changesOf(99, "x", operation(set, "segment.ms=6")), kerr.InvalidRequest},
			{changesOf(topicKind, "t", operation(set, "segment.ms=6")), nil},
		}
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		for _, c := range append(cases, cases[1]) {
			req.Resources = append(req.Resources, c.r)
		}
		got := askAdmin[*kmsg.IncrementalAlterConfigsResponse](d, v, req).Resources
		if len(got) != len(cases) {
			t.Fatalf("%d answers, want %d", len(got), len(cases))
		}
		for i, c := range cases {
			wantAdminCode(t, got[i].ErrorCode, got[i].ErrorMessage, c.want)
		}
		im := d.image()
		if fmt.Sprint(im.Topic("t").Overrides, im.Topic("twice").Overrides, im.Defaults) != "map[segment.ms:6] map[] map[segment.ms:6 tube.durability:none]" {
			t.Fatal(im.Topic("t").Overrides, im.Topic("twice").Overrides, im.Defaults)
		}
	})
}
