package broker

import (
	"encoding/binary"

	"github.com/tube-mq/tube/internal/queue"
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
	commandQueue       commandKind = 4 // the rest is a command for the queue groups; see queue.AppendCommand
	commandAnnexed     commandKind = 5 // as 1, and behind the batch what it brings along for queues; see queue.Annexe
	commandHeaderAnnex commandKind = 6 // as 5, without the batch's records: what a memory topic leaves on disk
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

func queueCommand(nowMillis, clockMillis int64, ops []queue.Op) []byte {
	b := make([]byte, commandBytes, commandBytes+64)
	putCommand(b, commandQueue, nowMillis)
	return queue.AppendCommand(b, clockMillis, ops)
}

// annexed puts a batch and what it brings along into one entry.
func annexed(batch []byte, a *queue.Annexe, nowMillis int64) []byte {
	b := make([]byte, 0, len(batch)+32+12*len(a.Delays)+20*len(a.IDs))
	b = a.Append(append(b, batch...))
	putCommand(b, commandAnnexed, nowMillis)
	return b
}

// headerOnly is what the write-ahead log keeps of a memory topic's entry:
// enough to give the same offsets and sequences after a restart, and to know the
// same message ids.
func headerOnly(data []byte) []byte {
	switch kind, now := parseCommand(data); kind {
	case commandProduce:
		b := make([]byte, record.HeaderBytes)
		copy(b, data)
		putCommand(b, commandHeaderOnly, now)
		return b
	case commandAnnexed:
		h, err := record.ParseHeader(data)
		if err != nil || h.SizeBytes() > len(data) {
			return data // Apply will say what is wrong
		}
		b := append(data[:record.HeaderBytes:record.HeaderBytes], data[h.SizeBytes():]...)
		putCommand(b, commandHeaderAnnex, now)
		return b
	}
	return data
}
