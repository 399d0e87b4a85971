package kafka

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// listConfigResources names what can have settings. v0 asks for client metrics
// only, which there are none of; nor are there settings of loggers. Groups are named
// that have settings of their own.
func (d *Door) listConfigResources(_ context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.ListConfigResourcesRequest)
	resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	if req.Version < 1 {
		return resp
	}
	for _, t := range req.ResourceTypes {
		switch kmsg.ConfigResourceType(t) {
		case kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger,
			kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeGroupConfig:
		default:
			resp.ErrorCode = kerr.UnsupportedVersion.Code // what Kafka answers to a type it does not know
			return resp
		}
	}
	asked := func(k kmsg.ConfigResourceType) bool {
		return len(req.ResourceTypes) == 0 || slices.Contains(req.ResourceTypes, int8(k))
	}
	add := func(k kmsg.ConfigResourceType, name string) {
		c := kmsg.NewListConfigResourcesResponseConfigResource()
		c.Type, c.Name = int8(k), name
		resp.ConfigResources = append(resp.ConfigResources, c)
	}
	im := d.image()
	if asked(kmsg.ConfigResourceTypeTopic) {
		for _, t := range topicsByName(im) {
			add(kmsg.ConfigResourceTypeTopic, t.Name)
		}
	}
	if asked(kmsg.ConfigResourceTypeBroker) {
		for _, e := range allEndpoints(im) {
			add(kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(e.node)))
		}
	}
	if asked(kmsg.ConfigResourceTypeGroupConfig) {
		for _, name := range slices.Sorted(maps.Keys(im.GroupConfigs)) {
			add(kmsg.ConfigResourceTypeGroupConfig, name)
		}
	}
	return resp
}
