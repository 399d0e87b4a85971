package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A group's settings are stored, told, and hold for what it reads through.
func TestSettingsOfShareGroups(t *testing.T) {
	d := newShareDoor(t)
	d.mustAlter("g", "share.record.lock.duration.ms", "15000", "share.delivery.count.limit", "2")
	for _, c := range []struct {
		settings []string
		want     *kerr.Error
	}{
		{[]string{"share.record.lock.duration.ms", "soon"}, kerr.InvalidConfig},
		{[]string{"share.record.lock.duration.ms", "1"}, kerr.InvalidConfig},
		{[]string{"share.auto.offset.reset", "never"}, kerr.InvalidConfig},
		{[]string{"share.sesion.timeout.ms", "50000"}, kerr.InvalidConfig},
		{[]string{"share.session.timeout.ms", "5000"}, kerr.InvalidConfig}, // the interval is as long
	} {
		wantGroupCode(t, d.alter("g", c.settings...), c.want)
	}
	if g := d.f.image().ShareQueue("g", d.topic.ID); g.Settings.MaxAttempts != 2 || g.Settings.Lease.Seconds() != 15 {
		t.Errorf("the queue group has %+v", g.Settings)
	}
	if r := d.client("a", 2).fetch(0, nil); r.AcquisitionLockTimeoutMillis != 15_000 {
		t.Errorf("lock of %d ms", r.AcquisitionLockTimeoutMillis)
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range []string{"g", "unknown"} {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeGroupConfig, name, []string{"share.record.lock.duration.ms"}
		req.Resources = append(req.Resources, r)
	}
	got := askDoor[*kmsg.DescribeConfigsResponse](t, d.Door, newClient(d.Door), 4, req).Resources
	if c := got[0].Configs; len(c) != 1 || *c[0].Value != "15000" || c[0].Source != kmsg.ConfigSourceGroupConfig {
		t.Errorf("%+v", c)
	}
	if c := got[1].Configs; len(c) != 1 || *c[0].Value != "30000" || c[0].Source != kmsg.ConfigSourceDefaultConfig {
		t.Errorf("%+v", c)
	}
	list := kmsg.NewPtrListConfigResourcesRequest()
	list.ResourceTypes = []int8{int8(kmsg.ConfigResourceTypeGroupConfig)}
	if r := askDoor[*kmsg.ListConfigResourcesResponse](t, d.Door, newClient(d.Door), 1, list); len(r.ConfigResources) != 1 || r.ConfigResources[0].Name != "g" {
		t.Errorf("%+v", r)
	}
}
