package kafka

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/record"
)

const (
	keyProduce     = 0
	keyApiVersions = 18
)

// maxSoftwareBytes is how much of a client's name for itself is kept.
const maxSoftwareBytes = 64

// apiVersions tells what the door speaks. No features are there yet that a
// cluster could be asked to finalize.
func (d *Door) apiVersions(_ context.Context, c *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.ApiVersionsRequest)
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if req.Version >= 3 {
		c.software = clip(req.ClientSoftwareName, maxSoftwareBytes)
		c.version = clip(req.ClientSoftwareVersion, maxSoftwareBytes)
	}
	resp.ApiKeys = d.advertised
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

// refuseVersion answers a version that the door does not speak. Clients take a
// closed connection for a dead broker, so it stays open wherever an answer can be
// made that they can decode.
func (c *conn) refuseVersion(row *api, h head, frame *record.Buffer) bool {
	c.door.cfg.Calls.Error(kmsg.NameForKey(h.key), kerr.UnsupportedVersion.Message)
	if h.key == keyApiVersions {
		// The one answer that every client can read: v0, with our range.
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		resp.ApiKeys = c.door.advertised
		return c.respond(h.correlation, resp)
	}
	_ = frame
	return false
}
