package rpc

import (
	"bytes"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// A call of Send costs the node for each message what reading it costs. Here all
// messages of a call are made at once, and keys and values are parts of one copy of its
// body, instead of four objects for each. What a message has besides is read by protobuf.

const (
	fieldSendTopic    = 1 // of SendRequest
	fieldSendMessages = 2

	fieldOutgoingValue = 1 // of OutgoingMessage
	fieldOutgoingKey   = 2
	fieldOutgoingID    = 3
)

// unmarshalSend reads a SendRequest; b stays the caller's.
func unmarshalSend(b []byte, into *tubev1.SendRequest) error {
	body := bytes.Clone(b)
	n, ok := countMessages(body)
	if !ok {
		return proto.Unmarshal(b, into)
	}
	proto.Reset(into)
	all := make([]tubev1.OutgoingMessage, n)
	into.Messages = make([]*tubev1.OutgoingMessage, n)
	for i := range all {
		into.Messages[i] = &all[i]
	}
	i := 0
	for len(body) > 0 {
		num, _, size := protowire.ConsumeTag(body)
		v, more := protowire.ConsumeBytes(body[size:])
		body = body[size+more:]
		if num == fieldSendTopic {
			into.Topic = string(v)
			continue
		}
		if !readOutgoing(v, &all[i]) {
			// A part of the body, which is ours: what it says is wrong, too.
			if err := proto.Unmarshal(v, &all[i]); err != nil {
				return err
			}
		}
		i++
	}
	return nil
}

// countMessages counts the messages of a SendRequest; ok is false if there is anything
// in it besides and a topic.
func countMessages(b []byte) (n int, ok bool) {
	for len(b) > 0 {
		num, typ, size := protowire.ConsumeTag(b)
		if size < 0 || typ != protowire.BytesType || num != fieldSendTopic && num != fieldSendMessages {
			return 0, false
		}
		v, more := protowire.ConsumeBytes(b[size:])
		if more < 0 || num == fieldSendTopic && !utf8.Valid(v) {
			return 0, false
		}
		if num == fieldSendMessages {
			n++
		}
		b = b[size+more:]
	}
	return n, true
}

// readOutgoing reads a message that has nothing but a value, a key and an id, parts of b;
// false: it is another one, or does not decode.
func readOutgoing(b []byte, m *tubev1.OutgoingMessage) bool {
	for len(b) > 0 {
		num, typ, size := protowire.ConsumeTag(b)
		if size < 0 || typ != protowire.BytesType {
			return false
		}
		v, more := protowire.ConsumeBytes(b[size:])
		if more < 0 {
			return false
		}
		v = v[:len(v):len(v)]
		switch {
		case num == fieldOutgoingValue:
			m.Value = v
		case num == fieldOutgoingKey:
			m.Key = v
		case num == fieldOutgoingID && utf8.Valid(v):
			m.Id = string(v)
		default:
			return false
		}
		b = b[size+more:]
	}
	return true
}
