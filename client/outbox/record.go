package outbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

const (
	magic      = "TSP1"
	headerSize = 24
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errNoRecord: these bytes are no whole, valid record.
var errNoRecord = errors.New("no valid record")

// CorruptError: a spool's file has lost what was durable. Nothing was changed.
type CorruptError struct {
	File   string
	Offset int64 // of the first record that cannot be read
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("outbox: %s is damaged at offset %d: a record that was durable cannot be read; restore the file, or move it away to give up what is in it", e.File, e.Offset)
}

// appendRecord frames a payload.
func appendRecord(b []byte, file uint32, durable int64, payload []byte) []byte {
	at := len(b)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, file)
	b = binary.LittleEndian.AppendUint64(b, uint64(durable))
	b = append(b, payload...)
	binary.LittleEndian.PutUint32(b[at+4:], crc32.Checksum(b[at+8:], castagnoli))
	return b
}

// readRecord reads the record that b begins with.
func readRecord(b []byte, file uint32) (payload []byte, durable int64, err error) {
	if len(b) < headerSize || string(b[:4]) != magic {
		return nil, 0, errNoRecord
	}
	n := binary.LittleEndian.Uint32(b[8:])
	if n > maxPayload || int64(len(b)) < headerSize+int64(n) || binary.LittleEndian.Uint32(b[12:]) != file {
		return nil, 0, errNoRecord
	}
	if crc32.Checksum(b[8:headerSize+n], castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return nil, 0, errNoRecord
	}
	return b[headerSize : headerSize+n], int64(binary.LittleEndian.Uint64(b[16:])), nil
}

// scan finds where a file's valid records end. torn: what follows was never durable, and
// may be cut off; else it is damage.
func scan(b []byte, file uint32) (end int64, records int, torn bool) {
	for {
		payload, _, err := readRecord(b[end:], file)
		if err != nil {
			break
		}
		end += headerSize + int64(len(payload))
		records++
	}
	// A later record that is whole knows what was durable before it.
	for at := end; ; at++ {
		i := bytes.Index(b[at:], []byte(magic))
		if i < 0 {
			return end, records, true
		}
		at += int64(i)
		if _, durable, err := readRecord(b[at:], file); err == nil && durable > end {
			return end, records, false
		}
	}
}
