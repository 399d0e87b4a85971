package rpc

import (
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/queue"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// The two frames of a stream that every message costs a part of, messages and
// acknowledgements, are written and read here without an object for each message:
// that was a third of what a message cost the node. In JSON they are what they are
// elsewhere, and all other frames are in either encoding.

// downFrame is a ConsumeResponse: messages, or else response.
type downFrame struct {
	messages []queue.Delivery
	response *tubev1.ConsumeResponse
}

// upFrame is a ConsumeRequest: leases to acknowledge, or else request; or what did
// not decode.
type upFrame struct {
	acks    *settleFrame
	request *tubev1.ConsumeRequest
}

// message is the frame as one of protobuf's.
func (f *downFrame) message() *tubev1.ConsumeResponse {
	if f.response != nil {
		return f.response
	}
	return &tubev1.ConsumeResponse{Down: &tubev1.ConsumeResponse_Messages{Messages: &tubev1.ConsumeMessages{Messages: toMessages(f.messages)}}}
}

func (f *downFrame) append(b []byte) ([]byte, error) {
	if f.response != nil {
		return proto.MarshalOptions{}.MarshalAppend(b, f.response)
	}
	return appendMessages(b, f.messages), nil
}

func (f *upFrame) unmarshal(b []byte) error {
	if f.acks = acknowledged(b); f.acks != nil {
		return nil
	}
	f.request = &tubev1.ConsumeRequest{}
	return proto.Unmarshal(b, f.request)
}

// Numbers of the fields that are written here; see queue.proto.
const (
	fieldDownMessages  = 2 // of ConsumeResponse
	fieldListMessages  = 1 // of ConsumeMessages
	fieldUpSeq         = 1 // of ConsumeRequest
	fieldUpAcknowledge = 4
	fieldListLeases    = 1 // of ConsumeLeases

	fieldLeaseID    = 1 // of QueueMessage
	fieldID         = 2
	fieldValue      = 3
	fieldKey        = 4
	fieldHeaders    = 5
	fieldRawHeaders = 6
	fieldTopic      = 7
	fieldPartition  = 8
	fieldOffset     = 9
	fieldAttempt    = 10
	fieldLeaseUntil = 11
	fieldTime       = 12
)

// metas are what messages have besides their values, one behind the other.
type metas struct {
	b    []byte
	ends []int // of each
}

var metaPool = sync.Pool{New: func() any { return new(metas) }}

// appendMessages writes a ConsumeResponse with messages. Lengths stand before what
// they are of, so all but the values is written aside first.
func appendMessages(b []byte, ds []queue.Delivery) []byte {
	m := metaPool.Get().(*metas)
	defer metaPool.Put(m)
	m.b, m.ends = m.b[:0], m.ends[:0]
	size := 0
	for i := range ds {
		before := len(m.b)
		m.b = appendMeta(m.b, &ds[i])
		m.ends = append(m.ends, len(m.b))
		n := len(m.b) - before + sizeOfValue(ds[i].Value)
		size += 1 + protowire.SizeBytes(n)
	}
	b = slices.Grow(b, size+protowire.SizeVarint(uint64(size))+1)
	b = protowire.AppendTag(b, fieldDownMessages, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	start := 0
	for i := range ds {
		value, meta := ds[i].Value, m.b[start:m.ends[i]]
		start = m.ends[i]
		b = protowire.AppendTag(b, fieldListMessages, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(len(meta)+sizeOfValue(value)))
		b = append(b, meta...)
		if len(value) > 0 {
			b = appendField(b, fieldValue, value)
		}
	}
	return b
}

func sizeOfValue(value []byte) int {
	if len(value) == 0 {
		return 0
	}
	return 1 + protowire.SizeBytes(len(value))
}

// appendMeta writes a QueueMessage without its value; compare toMessage.
func appendMeta(b []byte, d *queue.Delivery) []byte {
	if d.UntilMillis != 0 {
		b = append(b, fieldLeaseID<<3|byte(protowire.BytesType), 0)
		at := len(b)
		b = d.Lease.Append(b)
		b[at-1] = byte(len(b) - at) // less than 128
		b = appendTime(b, fieldLeaseUntil, d.UntilMillis)
	}
	at := queue.Place{Partition: d.Lease.Partition, Offset: d.Lease.Offset}
	if d.ID != "" || at.Offset < 0 {
		b = appendText(b, fieldID, validText(d.ID))
	} else {
		b = append(b, fieldID<<3|byte(protowire.BytesType), 0)
		from := len(b)
		b = at.Append(b)
		b[from-1] = byte(len(b) - from)
	}
	if !d.KeyNull {
		b = appendField(b, fieldKey, d.Key)
	}
	if len(d.Headers) > 0 {
		b = appendHeaders(b, d.Headers)
	}
	b = appendText(b, fieldTopic, d.Topic)
	b = appendNumber(b, fieldPartition, int64(int32(d.Lease.Partition)))
	b = appendNumber(b, fieldOffset, int64(d.Lease.Offset))
	b = appendNumber(b, fieldAttempt, int64(int32(d.Lease.Attempt)))
	return appendTime(b, fieldTime, d.TimestampMillis)
}

func appendHeaders(b []byte, hs []queue.Header) []byte {
	plain, raw := toHeaders(hs)
	for name, text := range plain {
		n := 2 + protowire.SizeBytes(len(name)) + protowire.SizeBytes(len(text))
		b = protowire.AppendTag(b, fieldHeaders, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(n))
		b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), name)
		b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), text)
	}
	for _, h := range raw {
		b = protowire.AppendTag(b, fieldRawHeaders, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(proto.Size(h)))
		b, _ = proto.MarshalOptions{}.MarshalAppend(b, h) // its name is valid: see toHeaders
	}
	return b
}

func appendField(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

// Fields that are empty or 0 are left out.

func appendText(b []byte, n protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}

func appendNumber(b []byte, n protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
}

// appendTime writes a google.protobuf.Timestamp.
func appendTime(b []byte, n protowire.Number, millis int64) []byte {
	t := time.UnixMilli(millis)
	b = append(protowire.AppendTag(b, n, protowire.BytesType), 0)
	at := len(b)
	b = appendNumber(b, 1, t.Unix())
	b = appendNumber(b, 2, int64(t.Nanosecond()))
	b[at-1] = byte(len(b) - at) // at most 22
	return b
}

// acknowledged reads a frame that acknowledges leases and has nothing else in it; nil:
// it is another one, or does not decode. Their ids are parts of one string.
func acknowledged(b []byte) *settleFrame {
	f, list := &settleFrame{same: queue.Settlement{Verdict: queue.Acknowledge}}, []byte(nil)
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		b = b[n:]
		switch {
		case num == fieldUpSeq && typ == protowire.VarintType:
			f.seq, n = protowire.ConsumeVarint(b)
		case num == fieldUpAcknowledge && typ == protowire.BytesType && list == nil:
			list, n = protowire.ConsumeBytes(b)
		default:
			return nil
		}
		if n < 0 {
			return nil
		}
		b = b[n:]
	}
	if len(list) == 0 || !utf8.Valid(list) { // lengths of 128 and more, too: no lease id is so long
		return nil
	}
	text := string(list)
	f.ids = make([]string, 0, 1+len(list)/32)
	for at := 0; at < len(text); {
		if text[at] != fieldListLeases<<3|byte(protowire.BytesType) || at+1 == len(text) {
			return nil
		}
		from := at + 2
		if at = from + int(text[from-1]); text[from-1] >= 0x80 || at > len(text) {
			return nil
		}
		f.ids = append(f.ids, text[from:at])
	}
	return f
}
