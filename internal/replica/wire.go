package replica

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/record"
)

// Message is a Raft message between two replicas of a group. Its entries carry
// their payloads, which raft itself does not see (doc.go).
type Message struct {
	group    record.Group
	everyone uint64 // an index that all replicas have durably; 0: not said
	raft     *raftpb.Message
	buf      *record.Buffer // holds the entries' payloads
	size     int            // bytes on the wire
}

// On the wire, all integers little endian:
//
//	u64 group, u64 everyone
//	u32 bytes of the raft message, the raft message (protobuf) without its entries
//	u32 entries, per entry: u64 term, u8 type, u32 bytes, payload
//
// The entries' indexes follow the message's. The transport's frame has a CRC.
const (
	wireHeadBytes  = 8 + 8 + 4
	wireEntryBytes = 8 + 1 + 4
	contextBytes   = 8
	// maxWireBytes of payload in one message, unless one entry alone has more.
	maxWireBytes = 1 << 20
)

var errWire = errors.New("replica: message does not decode")

// encodeHead encodes everything but the entries' payloads: parts of it stand
// between them.
func encodeHead(group record.Group, everyone uint64, m *raftpb.Message, entries int) ([]byte, error) {
	bare := m
	if len(m.GetEntries()) > 0 {
		bare = &raftpb.Message{
			Type: m.Type, To: m.To, From: m.From, Term: m.Term, LogTerm: m.LogTerm, Index: m.Index,
			Commit: m.Commit, Vote: m.Vote, Reject: m.Reject, RejectHint: m.RejectHint, Context: m.Context,
		}
	}
	le := binary.LittleEndian
	b := make([]byte, 0, wireHeadBytes+4+proto.Size(bare)+entries*wireEntryBytes)
	b = le.AppendUint64(b, uint64(group))
	b = le.AppendUint64(b, everyone)
	b = le.AppendUint32(b, 0)
	b, err := proto.MarshalOptions{}.MarshalAppend(b, bare)
	if err != nil {
		return nil, fmt.Errorf("encode a message of group %d: %w", group, err)
	}
	le.PutUint32(b[16:], uint32(len(b)-wireHeadBytes))
	return le.AppendUint32(b, uint32(entries)), nil
}

func appendEntryHead(b []byte, term uint64, kind raftpb.EntryType, sizeBytes int) []byte {
	b = binary.LittleEndian.AppendUint64(b, term)
	b = append(b, byte(kind))
	return binary.LittleEndian.AppendUint32(b, uint32(sizeBytes))
}

// decodeMessage reads a message whose payloads lie in body, which buf holds. It
// allocates no more than a small multiple of body's size. Error: errWire.
func decodeMessage(body []byte, buf *record.Buffer) (Message, error) {
	le := binary.LittleEndian
	if len(body) < wireHeadBytes+4 {
		return Message{}, fmt.Errorf("%w: %d bytes", errWire, len(body))
	}
	m := Message{group: record.Group(le.Uint64(body)), everyone: le.Uint64(body[8:]), raft: &raftpb.Message{}, buf: buf, size: len(body)}
	n := uint64(le.Uint32(body[16:]))
	rest := body[wireHeadBytes:]
	if n+4 > uint64(len(rest)) {
		return Message{}, fmt.Errorf("%w: %d bytes of raft message in %d", errWire, n, len(rest))
	}
	if err := proto.Unmarshal(rest[:n], m.raft); err != nil {
		return Message{}, fmt.Errorf("%w: %w", errWire, err)
	}
	entries := uint64(le.Uint32(rest[n:]))
	rest = rest[n+4:]
	if entries*wireEntryBytes > uint64(len(rest)) {
		return Message{}, fmt.Errorf("%w: %d entries in %d bytes", errWire, entries, len(rest))
	}
	beat := m.raft.GetType() == raftpb.MsgHeartbeat || m.raft.GetType() == raftpb.MsgHeartbeatResp
	if c := len(m.raft.GetContext()); beat && c != 0 && c != contextBytes {
		// Raft reads it as a number, and does not look how long it is.
		return Message{}, fmt.Errorf("%w: a context of %d bytes", errWire, c)
	}
	if len(m.raft.GetEntries()) > 0 || len(m.raft.GetResponses()) > 0 {
		return Message{}, fmt.Errorf("%w: entries inside of the raft message", errWire)
	}
	m.raft.Entries = make([]*raftpb.Entry, 0, entries)
	for i := range entries {
		if len(rest) < wireEntryBytes {
			return Message{}, fmt.Errorf("%w: entry %d of %d is cut off", errWire, i, entries)
		}
		size := uint64(le.Uint32(rest[9:]))
		if size > uint64(len(rest)-wireEntryBytes) {
			return Message{}, fmt.Errorf("%w: entry %d has %d bytes, %d are left", errWire, i, size, len(rest)-wireEntryBytes)
		}
		e := &raftpb.Entry{Term: new(le.Uint64(rest)), Index: new(m.raft.GetIndex() + 1 + i), Type: raftpb.EntryType(rest[8]).Enum()}
		if size > 0 {
			e.Data = rest[wireEntryBytes : wireEntryBytes+size : wireEntryBytes+size]
		}
		m.raft.Entries = append(m.raft.Entries, e)
		rest = rest[wireEntryBytes+size:]
	}
	if len(rest) > 0 {
		return Message{}, fmt.Errorf("%w: %d bytes behind the last entry", errWire, len(rest))
	}
	return m, nil
}
