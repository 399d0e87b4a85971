package kafka

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	keyProduce     = 0
	keyFetch       = 1
	keyApiVersions = 18
)

// Features by which clients know that there are groups whose partitions the
// coordinator assigns, and share groups.
const (
	featureGroups = "group.version"
	featureShares = "share.version"
)

// maxSoftwareBytes is how much of a client's name for itself is kept.
const maxSoftwareBytes = 64

// apiVersions tells what the door speaks, and that groups may be of the consumer
// protocol (KIP-848) and share groups (KIP-932): clients ask for the feature, not for
// the API alone.
func (d *Door) apiVersions(_ context.Context, c *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.ApiVersionsRequest)
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if req.Version >= 3 {
		c.software = clip(req.ClientSoftwareName, maxSoftwareBytes)
		c.version = clip(req.ClientSoftwareVersion, maxSoftwareBytes)
	}
	resp.ApiKeys = d.advertised
	for _, name := range []string{featureGroups, featureShares} {
		supported, finalized := kmsg.NewApiVersionsResponseSupportedFeature(), kmsg.NewApiVersionsResponseFinalizedFeature()
		supported.Name, supported.MinVersion, supported.MaxVersion = name, 0, 1
		finalized.Name, finalized.MinVersionLevel, finalized.MaxVersionLevel = name, 1, 1
		resp.SupportedFeatures = append(resp.SupportedFeatures, supported)
		resp.FinalizedFeatures, resp.FinalizedFeaturesEpoch = append(resp.FinalizedFeatures, finalized), 0
	}
	return resp
}

// advertise lists a table of APIs, in its order.
func advertise(table []api) []kmsg.ApiVersionsResponseApiKey {
	keys := make([]kmsg.ApiVersionsResponseApiKey, 0, len(table))
	for _, a := range table {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.key, a.min, a.max
		keys = append(keys, k)
	}
	return keys
}

func clip(s string, maxBytes int) string {
	return strings.ToValidUTF8(strings.Clone(s[:min(len(s), maxBytes)]), "")
}
