package kafka

import (
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Response frame: length (4), correlation id (4), tagged fields (1, none) if the
// response is flexible and not ApiVersions, body.

// responseBufs hold encoded responses. Large ones are left to the collector.
var responseBufs = sync.Pool{New: func() any { return new(responseBuf) }}

type responseBuf struct{ b []byte }

const maxPooledResponseBytes = 64 << 10

func (r *responseBuf) put() {
	if cap(r.b) <= maxPooledResponseBytes {
		r.b = r.b[:0]
		responseBufs.Put(r)
	}
}

// chunked is a response whose bytes lie in many places.
type chunked interface {
	// chunks returns the encoded body.
	chunks() (body net.Buffers, sizeBytes int)
	// release is called once, when the body was written or could not be.
	release()
}

// appendHeader begins a response frame; the length is filled in by the caller.
func appendHeader(b []byte, correlation int32, resp kmsg.Response) []byte {
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	if resp.IsFlexible() && resp.Key() != keyApiVersions {
		b = append(b, 0)
	}
	return b
}

func appendResponse(b []byte, correlation int32, resp kmsg.Response) []byte {
	at := len(b)
	b = appendHeader(b, correlation, resp)
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// respond writes one response; false: the connection is over.
func (c *conn) respond(correlation int32, resp kmsg.Response) bool {
	buf := responseBufs.Get().(*responseBuf)
	defer buf.put()
	if r, ok := resp.(chunked); ok {
		defer r.release()
		body, sizeBytes := r.chunks()
		buf.b = appendHeader(buf.b[:0], correlation, resp)
		binary.BigEndian.PutUint32(buf.b, uint32(len(buf.b)-4+sizeBytes))
		return c.write(append(net.Buffers{buf.b}, body...))
	}
	buf.b = appendResponse(buf.b[:0], correlation, resp)
	return c.write(net.Buffers{buf.b})
}

// writeStepBytes is what a client must take within the write timeout.
const writeStepBytes = 1 << 20

// write sends everything, a step at a time, so that a slow reader of a large
// response is not taken for one that does not read.
func (c *conn) write(all net.Buffers) bool {
	c.mu.Lock()
	broken := c.broken
	c.mu.Unlock()
	if broken {
		return false
	}
	var step net.Buffers
	for len(all) > 0 {
		step, all = takeStep(step[:0], all)
		_ = c.nc.SetWriteDeadline(time.Now().Add(c.door.cfg.WriteTimeout))
		out := step // WriteTo consumes it
		n, err := c.writeStep(out)
		c.door.cfg.Traffic.Sent(int(n))
		if err != nil {
			c.broke(err)
			return false
		}
	}
	return true
}

func (c *conn) writeStep(step net.Buffers) (int64, error) {
	if len(step) == 1 {
		n, err := c.nc.Write(step[0])
		return int64(n), err
	}
	return step.WriteTo(c.nc)
}

// takeStep moves up to writeStepBytes from all to step.
func takeStep(step, all net.Buffers) (net.Buffers, net.Buffers) {
	for room := writeStepBytes; room > 0 && len(all) > 0; {
		b := all[0]
		if len(b) > room {
			step = append(step, b[:room])
			all[0] = b[room:]
			break
		}
		step = append(step, b)
		room -= len(b)
		all = all[1:]
	}
	return step, all
}
