package queue

import (
	"fmt"
	"math"

	"github.com/tube-mq/tube/internal/record"
)

// OpKind says what an Op does to the state.
type OpKind uint8

// The kinds, with the fields of Op that count besides Group.
const (
	// OpOpen begins a group at Offset; −1: only its members have cursors. With a
	// Member: that member's cursor begins at Offset, or is seen again.
	OpOpen OpKind = iota + 1
	// OpDrop forgets a group, or a Member's cursor.
	OpDrop
	// OpAck: Offsets are done.
	OpAck
	// OpSuspect: Offsets were lost together; not counted, from now on each is handed out alone.
	OpSuspect
	// OpFail: Offset failed, counted, with Attempt; again at DueMillis, or, if Final, never.
	OpFail
	// OpDead: Offsets are in the dead-letter topic, or dropped as there is none: done.
	OpDead
	// OpRetry: Offset's failures are forgotten.
	OpRetry
	// OpSeek: the group, or a Member's cursor, goes on at Offset, with nothing done behind it.
	OpSeek
	// OpCancel: Offsets, which wait for their time, are done for every group. No Group.
	OpCancel
	// OpMove: Offset, which waits for its time, is due at DueMillis. No Group.
	OpMove
	// OpTrim: the log begins at Offset. No Group.
	OpTrim
	// OpTick changes nothing by itself: what is due by the command's clock is fired,
	// as with any other. No Group.
	OpTick
	// OpIntend: Data is to be carried out, by the name of Member. No Group.
	OpIntend
	// OpIntended: what was to be by the name of Member is done. No Group.
	OpIntended
)

// Op is one change of a State. Many go into one command.
type Op struct {
	Kind   OpKind
	Group  GroupID
	Member string // of a broadcast group: whose cursor
	// Generation of the cursor that the op is about: if there was a seek since it
	// changes nothing. 0: whichever it is.
	Generation uint32
	Offset     record.Offset
	Offsets    []record.Offset
	DueMillis  int64
	Final      bool
	Attempt    Attempt
	Data       []byte
}

// Attempt is the record of a delivery that failed.
type Attempt struct {
	Millis  int64  // when it failed, by the leader's queue clock
	Member  string // the consumer's id
	Address string // of the consumer
	Reason  string // what it said, or that its lease ran out
}

// Limits on the strings of an Attempt and on names.
const (
	MaxAddressBytes = 256
	MaxMemberBytes  = 256
)

const commandVersion = 2

// AppendCommand writes ops as one command for State.Apply, with the leader's queue clock.
//
//	u8 version, clock ms, then per op: u8 kind, group, member, generation and what counts for the kind
func AppendCommand(b []byte, clockMillis int64, ops []Op) []byte {
	b = append(b, commandVersion)
	b = appendUint(b, uint64(clockMillis))
	for i := range ops {
		o := &ops[i]
		b = append(b, byte(o.Kind))
		b = appendUint(b, uint64(o.Group))
		b = appendString(b, o.Member)
		b = appendUint(b, uint64(o.Generation))
		switch o.Kind {
		case OpOpen, OpRetry, OpSeek, OpTrim:
			b = appendInt(b, int64(o.Offset))
		case OpAck, OpSuspect, OpDead, OpCancel:
			b = appendOffsets(b, o.Offsets)
		case OpMove:
			b = appendInt(b, int64(o.Offset))
			b = appendInt(b, o.DueMillis)
		case OpFail:
			b = appendInt(b, int64(o.Offset))
			b = appendInt(b, o.DueMillis)
			b = append(b, bit(o.Final))
			b = o.Attempt.append(b)
		case OpIntend:
			b = appendBytes(b, o.Data)
		case OpDrop, OpTick, OpIntended:
		default:
			panic(fmt.Sprintf("queue: op of kind %d", o.Kind))
		}
	}
	return b
}

func bit(v bool) byte {
	if v {
		return 1
	}
	return 0
}

func (a *Attempt) append(b []byte) []byte {
	b = appendUint(b, uint64(a.Millis))
	b = appendString(b, clip(a.Member, MaxMemberBytes))
	b = appendString(b, clip(a.Address, MaxAddressBytes))
	return appendString(b, clip(a.Reason, MaxReasonBytes))
}

func (r *reader) attempt() Attempt {
	return Attempt{int64(r.uint()), r.string(MaxMemberBytes), r.string(MaxAddressBytes), r.string(MaxReasonBytes)}
}

// clip cuts a string to a number of bytes, not within a character.
func clip(s string, atMost int) string {
	if len(s) <= atMost {
		return s
	}
	for atMost > 0 && s[atMost]&0xc0 == 0x80 {
		atMost--
	}
	return s[:atMost]
}

// ParseCommand reads what AppendCommand wrote.
func ParseCommand(b []byte) (clockMillis int64, ops []Op, err error) {
	r := &reader{b: b}
	if v := r.byte(); r.err == nil && v != commandVersion {
		return 0, nil, fmt.Errorf("queue command of version %d, this program knows %d", v, commandVersion)
	}
	clockMillis = int64(r.uint())
	for r.err == nil && len(r.b) > 0 {
		o := Op{Kind: OpKind(r.byte()), Group: GroupID(r.uint()), Member: r.string(MaxMemberBytes), Generation: r.uint32()}
		switch o.Kind {
		case OpOpen, OpRetry, OpSeek, OpTrim:
			o.Offset = record.Offset(r.int())
		case OpAck, OpSuspect, OpDead, OpCancel:
			o.Offsets = r.offsets()
		case OpMove:
			o.Offset, o.DueMillis = record.Offset(r.int()), r.int()
		case OpFail:
			o.Offset, o.DueMillis = record.Offset(r.int()), r.int()
			o.Final = r.byte() != 0
			o.Attempt = r.attempt()
		case OpIntend:
			o.Data = r.bytes(MaxIntentBytes)
		case OpDrop, OpTick, OpIntended:
		default:
			r.fail("op of unknown kind %d: written by a newer version", o.Kind)
		}
		ops = append(ops, o)
	}
	if clockMillis < 0 || clockMillis > math.MaxInt64/2 {
		r.fail("clock %d", clockMillis)
	}
	return clockMillis, ops, r.err
}
