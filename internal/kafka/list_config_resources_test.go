package kafka

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestResourcesAreListed(t *testing.T) {
	d := newAdminDoor(t)
	d.topic("b", 1)
	d.topic("a", 1)
	for _, c := range []struct {
		types []int8
		want  string
	}{
		{nil, "[2:a 2:b 4:1 4:2]"},
		{[]int8{2}, "[2:a 2:b]"},
		{[]int8{4, 4}, "[4:1 4:2]"},
		{[]int8{32, 16, 8}, "[]"},
		{[]int8{2, 32}, "[2:a 2:b]"},
	} {
		req := kmsg.NewPtrListConfigResourcesRequest()
		req.ResourceTypes = c.types
		r := askAdmin[*kmsg.ListConfigResourcesResponse](d, 1, req)
		wantGroupCode(t, r.ErrorCode, nil)
		got := []string{}
		for _, x := range r.ConfigResources {
			got = append(got, fmt.Sprintf("%d:%s", x.Type, x.Name))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("types %v: %v, want %s", c.types, got, c.want)
		}
	}
	req := kmsg.NewPtrListConfigResourcesRequest()
	req.ResourceTypes = []int8{2, 3}
	r := askAdmin[*kmsg.ListConfigResourcesResponse](d, 1, req)
	wantGroupCode(t, r.ErrorCode, kerr.UnsupportedVersion)
	// v0 is about client metrics alone.
	r = askAdmin[*kmsg.ListConfigResourcesResponse](d, 0, kmsg.NewPtrListConfigResourcesRequest())
	wantGroupCode(t, r.ErrorCode, nil)
	if len(r.ConfigResources) != 0 {
		t.Fatalf("%+v", r.ConfigResources)
	}
}
