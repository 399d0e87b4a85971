package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
)

// incrementalAlterConfigs changes the settings that the request names and leaves
// the others as they are. All changes of one resource are made, or none.
func (d *Door) incrementalAlterConfigs(ctx context.Context, c *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.IncrementalAlterConfigsRequest)
	if d.absurd(c, "IncrementalAlterConfigs", len(req.Resources)) {
		return nil
	}
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
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
			err = d.changeConfig(ctx, at, rr.Configs, brokers, req.ValidateOnly)
		}
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = rr.ResourceType, rr.ResourceName
		out.ErrorCode, out.ErrorMessage = d.adminError(err, "IncrementalAlterConfigs", rr.ResourceName)
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func (d *Door) changeConfig(ctx context.Context, at resource, configs []kmsg.IncrementalAlterConfigsRequestResourceConfig, brokers []master.BrokerSetting, validateOnly bool) error {
	others, err := withoutThrottles(at, configs)
	if err != nil {
		return err
	}
	if len(others) == 0 && len(configs) > 0 {
		_, err := d.findResource(d.image(), at)
		return err
	}
	c, err := d.findChanging(at)
	if err != nil {
		return err
	}
	given := map[string]bool{}
	ch := master.ConfigChange{Set: map[string]string{}}
	for _, s := range others {
		name, err := c.setting(s.Name, brokers)
		if err != nil {
			return err
		}
		if err := giveOnce(given, name); err != nil {
			return err
		}
		if err := c.operate(&ch, name, s.Op, s.Value); err != nil {
			return err
		}
	}
	return d.alter(ctx, &c, ch, validateOnly)
}

// operate adds one operation to a change.
func (c *changing) operate(ch *master.ConfigChange, name string, op kmsg.IncrementalAlterConfigOp, v *string) error {
	if op == kmsg.IncrementalAlterConfigOpDelete {
		ch.Remove = append(ch.Remove, name)
		return nil
	}
	if v == nil {
		return refuse(kerr.InvalidConfig, "a setting has no value; delete it for its default")
	}
	switch op {
	case kmsg.IncrementalAlterConfigOpSet:
		ch.Set[name] = *v
	case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
		s, ok := meta.FindTopicSetting(name)
		switch {
		case c.isGroup():
			return refuse(kerr.InvalidConfig, "%s is not a list; set it", name)
		case !ok:
			ch.Set[name] = *v // refused, with the nearest name
		case s.Kind != meta.KindList:
			return refuse(kerr.InvalidConfig, "%s is not a list; set it", name)
		case len(*v) > maxListBytes:
			return refuse(kerr.InvalidConfig, "a list of more than %d bytes", maxListBytes)
		case op == kmsg.IncrementalAlterConfigOpAppend:
			ch.Set[name] = addTo(c.value(s), *v)
		default:
			ch.Set[name] = takeFrom(c.value(s), *v)
		}
	default:
		return refuse(kerr.InvalidRequest, "unknown operation %d; there are set (0), delete (1), append (2) and subtract (3)", int8(op))
	}
	return nil
}
