package test

import (
	"encoding/binary"
	"hash/crc32"
	"time"
)

// oneRecordBatch is a good batch of one record, made by hand.
func oneRecordBatch() []byte {
	value := []byte("hello")
	record := []byte{0, 0, 0, 1 /* no key */, byte(len(value) << 1)}
	record = append(append(record, value...), 0)
	b := make([]byte, 61)
	be := binary.BigEndian
	b[16] = 2
	now := uint64(time.Now().UnixMilli())
	be.PutUint64(b[27:], now)
	be.PutUint64(b[35:], now)
	for i := 43; i < 57; i++ {
		b[i] = 0xff // no producer
	}
	be.PutUint32(b[57:], 1)
	b = append(b, byte(len(record)<<1))
	b = append(b, record...)
	be.PutUint32(b[8:], uint32(len(b)-12))
	return seal(b)
}

// seal gives a batch the checksum of what it now holds.
func seal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}
