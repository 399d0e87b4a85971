package broker

import (
	"encoding/binary"

	"github.com/tube-mq/tube/internal/record"
)

// A partition's log entry begins with eight bytes:
//
//	0     u8   kind
//	1     u8   version, 1
//	2–7   u48  the proposer's wall clock, ms since 1970 (big endian)
//
// A produced batch is an entry without being copied: these bytes lie where its
// base offset does, which has no meaning until the entry is applied.
const (
	commandBytes   = 8
	commandVersion = 1
)

type commandKind byte

const (
	commandProduce     commandKind = 1 // the rest is a batch from its ninth byte
	commandLogStart    commandKind = 2 // the rest is a u64, the new log start
	commandHeaderOnly  commandKind = 3 // as 1, cut after the header: what a memory topic leaves on disk
	commandKindInvalid commandKind = 0
)

func putCommand(b []byte, kind commandKind, nowMillis int64) {
	binary.BigEndian.PutUint64(b, uint64(kind)<<56|uint64(commandVersion)<<48|uint64(nowMillis)&(1<<48-1))
}

func parseCommand(b []byte) (kind commandKind, timeMillis int64) {
	if len(b) < commandBytes {
		return commandKindInvalid, 0
	}
	v := binary.BigEndian.Uint64(b)
	if byte(v>>48) != commandVersion {
		return commandKindInvalid, 0
	}
	return commandKind(v >> 56), int64(v & (1<<48 - 1))
}

func logStartCommand(o record.Offset, nowMillis int64) []byte {
	b := make([]byte, commandBytes, commandBytes+8)
	putCommand(b, commandLogStart, nowMillis)
	return binary.BigEndian.AppendUint64(b, uint64(o))
}

// headerOnly is what the write-ahead log keeps of a memory topic's entry:
// enough to give the same offsets and sequences after a restart.
func headerOnly(data []byte) []byte {
	if kind, now := parseCommand(data); kind == commandProduce {
		b := make([]byte, record.HeaderBytes)
		copy(b, data)
		putCommand(b, commandHeaderOnly, now)
		return b
	}
	return data
}
