package test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// message is what a writer sends: anyone who knows writer and number can write
// it again, so stored bytes can be compared without keeping what was sent.
//
//	writer: uint32, number: uint64, filler: 0 to 2,000 bytes, CRC32 of all before
func message(writer uint32, number uint64) []byte {
	random := rand.New(rand.NewPCG(uint64(writer), number))
	b := binary.BigEndian.AppendUint32(nil, writer)
	b = binary.BigEndian.AppendUint64(b, number)
	for range random.IntN(251) {
		b = binary.BigEndian.AppendUint64(b, random.Uint64())
	}
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// parseMessage says who sent it, or what is wrong with its bytes.
func parseMessage(b []byte) (writer uint32, number uint64, err error) {
	if len(b) < 16 {
		return 0, 0, fmt.Errorf("%d bytes are too short for a message", len(b))
	}
	writer, number = binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[4:])
	if !bytes.Equal(b, message(writer, number)) {
		return 0, 0, fmt.Errorf("the bytes are not those of message %d of writer %d", number, writer)
	}
	return writer, number, nil
}

// place is where a record is.
type place struct {
	partition int32
	offset    int64
}

// sent names a message.
type sent struct {
	writer uint32
	number uint64
}

// ledger holds what was acknowledged, to be compared with what is stored.
type ledger struct {
	mu    sync.Mutex
	acked map[place]sent // guarded by mu
	wrong []string       // guarded by mu
}

func newLedger() *ledger { return &ledger{acked: map[place]sent{}} }

// ack notes an acknowledged record.
func (l *ledger) ack(r *kgo.Record, s sent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := place{r.Partition, r.Offset}
	if other, ok := l.acked[at]; ok {
		l.wrong = append(l.wrong, fmt.Sprintf("partition %d offset %d was given to message %v and to message %v", at.partition, at.offset, other, s))
	}
	l.acked[at] = s
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// ends returns, for each partition, the offset after the highest acknowledged one.
func (l *ledger) ends() map[int32]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	ends := map[int32]int64{}
	for at := range l.acked {
		ends[at.partition] = max(ends[at.partition], at.offset+1)
	}
	return ends
}

// check fails the test with what problems finds.
func (l *ledger) check(t *testing.T, stored map[int32][]*kgo.Record) {
	t.Helper()
	problems := l.problems(stored)
	for _, p := range problems[:min(len(problems), 20)] {
		t.Error(p)
	}
	if len(problems) > 20 {
		t.Errorf("and %d more", len(problems)-20)
	}
}

// problems compares with everything that is stored. Records that were sent but
// not acknowledged may be there, once and in order.
func (l *ledger) problems(stored map[int32][]*kgo.Record) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	problems := append([]string{}, l.wrong...)
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }

	firstAt := map[sent]*kgo.Record{}
	found := map[place]sent{}
	for partition, records := range stored {
		last := map[uint32]uint64{} // writer → last number
		for i, r := range records {
			at := place{partition, r.Offset}
			if r.Offset != int64(i) {
				problem("partition %d: record %d has offset %d: a hole or a repetition", partition, i, r.Offset)
			}
			writer, number, err := parseMessage(r.Value)
			if err != nil {
				problem("partition %d offset %d: %v", partition, r.Offset, err)
				continue
			}
			s := sent{writer, number}
			if r.ProducerID < 0 {
				problem("message %v has no producer id: the client found the node unable and fell back", s)
			}
			if before, ok := firstAt[s]; ok {
				problem("message %v is stored twice: at partition %d offset %d by producer %d epoch %d, and at partition %d offset %d by producer %d epoch %d",
					s, before.Partition, before.Offset, before.ProducerID, before.ProducerEpoch, partition, r.Offset, r.ProducerID, r.ProducerEpoch)
			}
			firstAt[s], found[at] = r, s
			if before, ok := last[writer]; ok && number <= before {
				problem("partition %d offset %d: writer %d's message %d comes after its message %d", partition, r.Offset, writer, number, before)
			}
			last[writer] = number
		}
	}
	for at, s := range l.acked {
		switch got, ok := found[at]; {
		case !ok:
			problem("lost: message %v was acknowledged at partition %d offset %d", s, at.partition, at.offset)
		case got != s:
			problem("partition %d offset %d: acknowledged for message %v, stored is %v", at.partition, at.offset, s, got)
		}
	}
	return problems
}

// A check that finds nothing proves nothing unless it finds what is there.
func TestTheLedgerFindsEveryKindOfDamage(t *testing.T) {
	record := func(offset int64, writer uint32, number uint64) *kgo.Record {
		return &kgo.Record{Offset: offset, Value: message(writer, number), ProducerID: int64(writer)}
	}
	whole := func() []*kgo.Record { return []*kgo.Record{record(0, 1, 0), record(1, 1, 1), record(2, 1, 2)} }
	for name, damage := range map[string]func([]*kgo.Record) []*kgo.Record{
		"lost at the end": func(r []*kgo.Record) []*kgo.Record { return r[:2] },
		"lost in between": func(r []*kgo.Record) []*kgo.Record { return append(r[:1], r[2]) },
		"doubled":         func(r []*kgo.Record) []*kgo.Record { return append(r, record(3, 1, 1)) },
		"out of order":    func(r []*kgo.Record) []*kgo.Record { return []*kgo.Record{r[0], record(1, 1, 2), record(2, 1, 1)} },
		"shifted": func(r []*kgo.Record) []*kgo.Record {
			return append([]*kgo.Record{record(0, 2, 7)}, record(1, 1, 0), record(2, 1, 1))
		},
		"no producer":   func(r []*kgo.Record) []*kgo.Record { r[1].ProducerID = -1; return r },
		"flipped bit":   func(r []*kgo.Record) []*kgo.Record { r[1].Value[13] ^= 4; return r },
		"nothing there": func([]*kgo.Record) []*kgo.Record { return nil },
	} {
		l := newLedger()
		for i, r := range whole() {
			l.ack(r, sent{1, uint64(i)})
		}
		if len(l.problems(map[int32][]*kgo.Record{0: damage(whole())})) == 0 {
			t.Errorf("%s: not found", name)
		}
		l.check(t, map[int32][]*kgo.Record{0: whole()})
	}
}
