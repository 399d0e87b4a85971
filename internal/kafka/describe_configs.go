package kafka

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/meta"
)

// maxDescribed bounds the resources that one request describes: an answer of
// all settings is a hundred times as large as the question.
const maxDescribed = 10_000

// configTypes are the kinds of setting as the protocol numbers them.
var configTypes = map[meta.Kind]kmsg.ConfigType{
	meta.KindBool: kmsg.ConfigTypeBoolean, meta.KindString: kmsg.ConfigTypeString, meta.KindInt: kmsg.ConfigTypeInt,
	meta.KindLong: kmsg.ConfigTypeLong, meta.KindDouble: kmsg.ConfigTypeDouble, meta.KindList: kmsg.ConfigTypeList,
}

// describeConfigs tells settings with where each value comes from. Nothing of a
// node is told that is secret, so no entry is marked as such.
func (d *Door) describeConfigs(ctx context.Context, c *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.DescribeConfigsRequest)
	if d.absurd(c, "DescribeConfigs", len(req.Resources)) {
		return nil
	}
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	var stale error // why the settings of topics and groups may not be the newest
	if slices.ContainsFunc(req.Resources, func(r kmsg.DescribeConfigsRequestResource) bool {
		return r.ResourceType != kmsg.ConfigResourceTypeBroker
	}) {
		stale = d.newest(ctx)
	}
	im := d.image()
	settings := d.topics.BrokerSettings()
	names := namesOfBroker(settings)
	seen := tally[resource]{}
	for i := range req.Resources {
		seen[resource{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	for i := range req.Resources {
		rr := &req.Resources[i]
		at := resource{rr.ResourceType, rr.ResourceName}
		first, twice := seen.first(at)
		if !first {
			continue
		}
		t, err := d.findResource(im, at)
		switch {
		case stale != nil && rr.ResourceType != kmsg.ConfigResourceTypeBroker:
			err = stale
		case twice:
			err = refuse(kerr.InvalidRequest, "the resource stands in the request more than once")
		case len(resp.Resources) >= maxDescribed:
			err = refuse(kerr.InvalidRequest, "one request may ask for %d resources; ask for the rest in another", maxDescribed)
		}
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = rr.ResourceType, rr.ResourceName
		if out.ErrorCode, out.ErrorMessage = d.adminError(err, "DescribeConfigs", rr.ResourceName); err == nil {
			var entries []entry
			switch {
			case t != nil:
				entries = topicEntries(im, t, names)
			case rr.ResourceType == kmsg.ConfigResourceTypeGroupConfig:
				entries = groupEntries(im, rr.ResourceName)
			case rr.ResourceName == "":
				entries = clusterEntries(im, names)
			default:
				entries = brokerEntries(im, settings)
			}
			out.Configs = describeEntries(req, rr.ConfigNames, entries)
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

// describeEntries tells the entries that are asked for by name; without a name
// all are. A name that there is no setting of is left out, as Kafka does.
func describeEntries(req *kmsg.DescribeConfigsRequest, asked []string, entries []entry) []kmsg.DescribeConfigsResponseResourceConfig {
	out := make([]kmsg.DescribeConfigsResponseResourceConfig, 0, len(entries))
	for i := range entries {
		e := &entries[i]
		if len(asked) > 0 && !slices.Contains(asked, e.name) {
			continue
		}
		c := kmsg.NewDescribeConfigsResponseResourceConfig()
		c.Name, c.Value, c.ReadOnly, c.Source, c.ConfigType = e.name, &e.value, e.readOnly, e.source, configTypes[e.kind]
		c.IsDefault = e.source == kmsg.ConfigSourceDefaultConfig
		if req.IncludeDocumentation {
			c.Documentation = &e.doc
		}
		if req.IncludeSynonyms {
			for j := range e.synonyms {
				s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
				s.Name, s.Value, s.Source = e.synonyms[j].name, &e.synonyms[j].value, e.synonyms[j].source
				c.ConfigSynonyms = append(c.ConfigSynonyms, s)
			}
		}
		out = append(out, c)
	}
	return out
}
