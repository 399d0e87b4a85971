package kafka

import (
	"reflect"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// refuseVersion answers a version that the door does not speak. Clients take a
// closed connection for a dead broker, so it stays open.
//
// ApiVersions has an answer that every client can read: v0, with our range.
// Others get the response of the version they asked for, or of the nearest that
// has a definition, with the error where that response has one for the whole, and
// else empty.
func (c *conn) refuseVersion(h head) bool {
	c.door.cfg.Calls.Error(kmsg.NameForKey(h.key), kerr.UnsupportedVersion.Message)
	if h.key == keyApiVersions {
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.ErrorCode, resp.ApiKeys = kerr.UnsupportedVersion.Code, c.door.advertised
		return c.respond(h.correlation, resp)
	}
	resp := kmsg.ResponseForKey(h.key)
	resp.SetVersion(min(max(h.version, 0), resp.MaxVersion()))
	if code := reflect.ValueOf(resp).Elem().FieldByName("ErrorCode"); code.IsValid() && code.CanInt() {
		code.SetInt(int64(kerr.UnsupportedVersion.Code))
	}
	return c.respond(h.correlation, resp)
}
