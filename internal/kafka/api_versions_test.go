package kafka

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestApiVersionsListsTheTable(t *testing.T) {
	d := newTestDoor(t, newFakeCluster(), Config{})
	eachVersion(t, 18, func(t *testing.T, v int16) {
		c := newClient(d)
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "kgo"+strings.Repeat("x", 1000), "1"
		r := askDoor[*kmsg.ApiVersionsResponse](t, d, c, v, req)
		if r.ErrorCode != 0 || len(r.ApiKeys) != len(apis) || v >= 3 && (len(r.SupportedFeatures) != 2 || len(r.FinalizedFeatures) != 2 || r.FinalizedFeatures[0].Name != "group.version" || r.FinalizedFeatures[1].Name != "share.version" || r.FinalizedFeatures[1].MaxVersionLevel != 1) {
			t.Fatalf("%+v", r)
		}
		for i, k := range r.ApiKeys {
			if k.ApiKey != apis[i].key || k.MinVersion != apis[i].min || k.MaxVersion != apis[i].max {
				t.Fatalf("%+v, want %+v", k, apis[i])
			}
		}
		if v >= 3 && (len(c.software) != maxSoftwareBytes || c.version != "1") {
			t.Fatalf("software %q %q", c.software, c.version)
		}
	})
}

func TestTheTableIsSound(t *testing.T) {
	if !slices.IsSortedFunc(apis, func(a, b api) int { return int(a.key) - int(b.key) }) {
		t.Error("rows are not in the order of their keys")
	}
	for _, a := range apis {
		req := kmsg.RequestForKey(a.key)
		if req == nil || a.min < 0 || a.min > a.max || a.max > req.MaxVersion() {
			t.Errorf("%s: v%d–%d", kmsg.NameForKey(a.key), a.min, a.max)
		}
		if (a.handle == nil) == (a.start == nil) {
			t.Errorf("%s: one of handle and start", kmsg.NameForKey(a.key))
		}
	}
}
