package bench

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// A load's consumer decodes of each message what it needs, the lease and the value,
// as parts of the frame, and makes no object of it, as the peer's client does not:
// it is the broker that is measured, on processors that both share.

// received is a message.
type received struct{ lease, value []byte }

// downFrame is a ConsumeResponse: messages, or else response.
type downFrame struct {
	messages []received
	response tubev1.ConsumeResponse
}

// upFrame is a ConsumeRequest: leases to acknowledge, or else request.
type upFrame struct {
	seq     uint64
	leases  [][]byte
	request *tubev1.ConsumeRequest
}

// frameCodec is protobuf, for connect.
type frameCodec struct{}

func (frameCodec) Name() string { return "proto" }

func (c frameCodec) Marshal(m any) ([]byte, error) { return c.MarshalAppend(nil, m) }

func (frameCodec) MarshalAppend(b []byte, m any) ([]byte, error) {
	f, ok := m.(*upFrame)
	switch {
	case !ok: // Connect's own
		return proto.MarshalOptions{}.MarshalAppend(b, m.(proto.Message))
	case f.request != nil:
		return proto.MarshalOptions{}.MarshalAppend(b, f.request)
	}
	size := 0
	for _, l := range f.leases {
		size += 1 + protowire.SizeBytes(len(l))
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), f.seq)
	b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.BytesType), uint64(size)) // acknowledge
	for _, l := range f.leases {
		b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), l) // lease_ids
	}
	return b, nil
}

var errFrame = errors.New("a frame from the server does not decode")

func (frameCodec) Unmarshal(b []byte, into any) error {
	f, ok := into.(*downFrame)
	if !ok { // Connect's own
		return proto.Unmarshal(b, into.(proto.Message))
	}
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || num != 2 || typ != protowire.BytesType { // messages
		return proto.Unmarshal(b, &f.response)
	}
	list, size := protowire.ConsumeBytes(b[n:])
	if size < 0 || n+size != len(b) {
		return errFrame
	}
	list = append([]byte(nil), list...) // connect uses b again
	f.messages = nil
	for len(list) > 0 {
		num, typ, n := protowire.ConsumeTag(list)
		if n < 0 || num != 1 || typ != protowire.BytesType {
			return errFrame
		}
		m, size := protowire.ConsumeBytes(list[n:])
		if size < 0 {
			return errFrame
		}
		r, ok := message(m)
		if !ok {
			return errFrame
		}
		if f.messages == nil { // the others are about as large
			f.messages = make([]received, 0, len(list)/(n+size)+1)
		}
		list = list[n+size:]
		f.messages = append(f.messages, r)
	}
	return nil
}

// message reads a QueueMessage.
func message(b []byte) (m received, ok bool) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return m, false
		}
		b = b[n:]
		if typ == protowire.BytesType && (num == 1 || num == 3) {
			var v []byte
			if v, n = protowire.ConsumeBytes(b); num == 1 {
				m.lease = v
			} else {
				m.value = v
			}
		} else {
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return m, false
		}
		b = b[n:]
	}
	return m, true
}
