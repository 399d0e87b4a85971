package group

import "encoding/binary"

// ConsumerProtocol is the protocol type of ordinary consumers.
const ConsumerProtocol = "consumer"

// subscribedTopics reads the topic names out of a consumer's protocol metadata:
//
//	version int16 | count int32 | count × (length int16, name) | …
//
// The rest depends on the version and is not needed. ok is false if the bytes
// are not of this form.
func subscribedTopics(metadata []byte) (topics []string, ok bool) {
	if len(metadata) < 6 {
		return nil, false
	}
	count := int32(binary.BigEndian.Uint32(metadata[2:]))
	rest := metadata[6:]
	if count < 0 || int(count) > len(rest)/2 {
		return nil, false
	}
	topics = make([]string, 0, count)
	for range count {
		if len(rest) < 2 {
			return nil, false
		}
		n := int(int16(binary.BigEndian.Uint16(rest)))
		if n < 0 || n > len(rest)-2 {
			return nil, false
		}
		topics = append(topics, string(rest[2:2+n]))
		rest = rest[2+n:]
	}
	return topics, true
}
