package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/master"
)

// alterConfigs gives resources the settings of the request and no others: what
// is left out, or has no value, goes back to its default.
func (d *Door) alterConfigs(ctx context.Context, c *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.AlterConfigsRequest)
	if d.absurd(c, "AlterConfigs", len(req.Resources)) {
		return nil
	}
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	ctx, cancel := adminContext(ctx, 0)
	defer cancel()
	_ = d.newest(ctx) // what cannot be decided now is told when it is tried
	brokers := d.topics.BrokerSettings()
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
		var err error
		if twice {
			err = refuse(kerr.InvalidRequest, "the resource stands in the request more than once")
		} else {
			err = d.replaceConfig(ctx, at, rr.Configs, brokers, req.ValidateOnly)
		}
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = rr.ResourceType, rr.ResourceName
		out.ErrorCode, out.ErrorMessage = d.adminError(err, "AlterConfigs", rr.ResourceName)
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func (d *Door) replaceConfig(ctx context.Context, at resource, configs []kmsg.AlterConfigsRequestResourceConfig, brokers []master.BrokerSetting, validateOnly bool) error {
	c, err := d.findChanging(at)
	if err != nil {
		return err
	}
	given := map[string]bool{}
	ch := master.ConfigChange{Replace: true, Set: map[string]string{}}
	for _, s := range configs {
		name, err := c.setting(s.Name, brokers)
		if err != nil {
			return err
		}
		if err := giveOnce(given, name); err != nil {
			return err
		}
		if s.Value != nil {
			ch.Set[name] = *s.Value
		}
	}
	return d.alter(ctx, &c, ch, validateOnly)
}
