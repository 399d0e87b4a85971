// Package kafka is the door for Kafka clients: it reads frames, decodes them
// with kmsg, authorises, calls a narrow backend and writes the answer. One file
// holds one API. It keeps no state that matters.
package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// api is one row of what this door speaks (apis.go has the table).
type api struct {
	key      int16
	min, max int16
	// handle answers one request. It may block until ctx ends (the connection
	// was closed or the node stops). A nil response closes the connection.
	handle func(d *Door, ctx context.Context, c *client, req kmsg.Request) kmsg.Response
}
