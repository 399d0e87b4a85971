package rpc

import (
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// Connect itself answers what does not decode, without a detail that a program could
// read. So these codecs never fail to decode: they leave the reason in the message, as
// a field that no message has, and undecoded finds it there. Who sends that field
// himself is refused with his own words.
const reasonField = protowire.Number(1<<29 - 1) // the highest there can be

type jsonCodec struct{ name string }

// Zero is written too: a script finds offset 0 and a list of none where it looks.
var toJSON = protojson.MarshalOptions{EmitDefaultValues: true}

func (c jsonCodec) Name() string { return c.name }

func (c jsonCodec) Marshal(m any) ([]byte, error) { return c.MarshalAppend(nil, m) }

func (jsonCodec) MarshalAppend(dst []byte, m any) ([]byte, error) {
	if f, ok := m.(*downFrame); ok {
		m = f.message()
	}
	return toJSON.MarshalAppend(dst, m.(proto.Message))
}

func (jsonCodec) Unmarshal(b []byte, into any) error {
	if f, ok := into.(*upFrame); ok {
		f.request = &tubev1.ConsumeRequest{}
		into = f.request
	}
	m := into.(proto.Message)
	if len(b) == 0 {
		return leave(m, fmt.Errorf("the body is empty; for no fields it is {}"))
	}
	return leave(m, protojson.UnmarshalOptions{}.Unmarshal(b, m))
}

type protoCodec struct{}

func (protoCodec) Name() string { return "proto" }

func (c protoCodec) Marshal(m any) ([]byte, error) { return c.MarshalAppend(nil, m) }

func (protoCodec) MarshalAppend(dst []byte, m any) ([]byte, error) {
	if f, ok := m.(*downFrame); ok {
		return f.append(dst)
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, m.(proto.Message))
}

func (protoCodec) Unmarshal(b []byte, into any) error {
	if f, ok := into.(*upFrame); ok {
		err := f.unmarshal(b)
		if err == nil {
			return nil
		}
		return leave(f.request, err)
	}
	if r, ok := into.(*tubev1.SendRequest); ok {
		return leave(r, unmarshalSend(b, r))
	}
	m := into.(proto.Message)
	return leave(m, proto.Unmarshal(b, m))
}

// leave puts err into the message, which is otherwise empty then.
func leave(m proto.Message, err error) error {
	if err != nil {
		proto.Reset(m)
		b := protowire.AppendTag(nil, reasonField, protowire.BytesType)
		m.ProtoReflect().SetUnknown(protowire.AppendString(b, err.Error()))
	}
	return nil
}

// undecoded says why a request did not decode; nil if it did.
func undecoded(req any) error {
	m, ok := req.(proto.Message)
	if !ok {
		return nil
	}
	for b := m.ProtoReflect().GetUnknown(); len(b) > 0; {
		n, t, size := protowire.ConsumeField(b)
		if size < 0 {
			return nil
		}
		if n == reasonField && t == protowire.BytesType {
			_, _, head := protowire.ConsumeTag(b)
			text, _ := protowire.ConsumeBytes(b[head:])
			d := &tubev1.QueueErrorDetail{Reason: tubev1.QueueErrorDetail_INVALID_FIELD}
			return queueError(connect.CodeInvalidArgument, d, fmt.Errorf("the request does not decode: %.500s", text))
		}
		b = b[size:]
	}
	return nil
}
