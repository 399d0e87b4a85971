package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// A checkpoint file says where every group of the node stood when it was made.
// It is written beside the old one, synced, renamed, and its folder synced;
// only then may the WAL forget what it covers.
//
//	table     magic "TUBECKP1", u32 bytes of what follows up to the CRC,
//	          u64 checkpoint seq, u32 sections,
//	          per section: u64 group, u64 file offset, u32 bytes, u32 CRC32C of its bytes
//	          u32 CRC32C of everything before
//	sections  one after the other
//	table     once more, the same bytes
//	u32       bytes of the table, so that it can be found from the end
//
// All integers are little endian. The table stands twice because without it
// nothing can be said of any group; damage to a section concerns its group only.
const (
	checkpointMagic  = "TUBECKP1"
	checkpointSuffix = ".ckpt"
	sectionRowBytes  = 24
	tableFixedBytes  = 8 + 4 + 8 + 4 + 4
	// maxCheckpointBytes is more than any node's machines have.
	maxCheckpointBytes = 16 << 30
)

// section is one group's part of a checkpoint.
type section struct {
	group   record.Group
	replica record.ReplicaID
	applied uint64
	term    uint64 // of the entry at applied
	hard    *raftpb.HardState
	conf    *raftpb.ConfState
	relaxed bool   // entries are answered for before they are synced
	until   uint64 // entries up to this term may be forgotten (lapse.go); 0: none is
	state   []byte // the machine's
	damaged error  // set when read: the section's bytes are not what was written
}

// Of a sound group:
// u64 replica, u64 applied, u64 its term, u64 hard term, u64 vote, u64 commit,
// if bit 63 of the replica is set: u64 term of the lapse,
// u32 bytes of the ConfState, ConfState (protobuf), machine state to the end
func (s *section) encode() ([]byte, error) {
	conf, err := proto.MarshalOptions{Deterministic: true}.Marshal(s.conf)
	if err != nil {
		return nil, fmt.Errorf("encode membership of group %d: %w", s.group, err)
	}
	le := binary.LittleEndian
	b := make([]byte, 0, 7*8+4+len(conf)+len(s.state))
	replica := uint64(s.replica)
	if s.relaxed {
		replica |= relaxedBit
	}
	if s.until > 0 {
		replica |= lapsedBit
	}
	for _, v := range []uint64{replica, s.applied, s.term, s.hard.GetTerm(), s.hard.GetVote(), s.hard.GetCommit()} {
		b = le.AppendUint64(b, v)
	}
	if s.until > 0 {
		b = le.AppendUint64(b, s.until)
	}
	b = le.AppendUint32(b, uint32(len(conf)))
	return append(append(b, conf...), s.state...), nil
}

// The highest bits of the replica's id, which is never that large.
const (
	lapsedBit  = 1 << 63
	relaxedBit = 1 << 62
)

// damagedMark stands at the beginning of a section in the place of the replica,
// which is never that large, if the group was found damaged; why follows. The
// group stays damaged until it is removed: what it had is not whole any more.
const damagedMark = "DAMAGED:"

func encodeDamage(cause error) []byte {
	text := cause.Error()
	if at := strings.LastIndex(text, foundBefore); at >= 0 {
		text = text[at+len(foundBefore):]
	}
	return append([]byte(damagedMark), text[:min(len(text), 1000)]...)
}

const foundBefore = "found at an earlier start: "

func decodeSection(group record.Group, b []byte) (*section, error) {
	fixed := 6*8 + 4
	if text, ok := strings.CutPrefix(string(b[:min(len(b), 1100)]), damagedMark); ok {
		return nil, errors.New(foundBefore + text)
	}
	if len(b) < fixed {
		return nil, fmt.Errorf("section of group %d has %d bytes, at least %d expected", group, len(b), fixed)
	}
	le := binary.LittleEndian
	word := func(i int) uint64 { return le.Uint64(b[i*8:]) }
	id := word(0)
	s := &section{group: group, replica: record.ReplicaID(id &^ (lapsedBit | relaxedBit)), applied: word(1), term: word(2), conf: &raftpb.ConfState{}, relaxed: id&relaxedBit != 0}
	if id&lapsedBit != 0 {
		if fixed += 8; len(b) < fixed {
			return nil, fmt.Errorf("section of group %d has %d bytes, at least %d expected", group, len(b), fixed)
		}
		s.until = word(6)
	}
	n := int(le.Uint32(b[fixed-4:]))
	if n > len(b)-fixed {
		return nil, fmt.Errorf("section of group %d: membership of %d bytes does not fit", group, n)
	}
	s.hard = &raftpb.HardState{Term: new(word(3)), Vote: new(word(4)), Commit: new(word(5))}
	if err := proto.Unmarshal(b[fixed:fixed+n], s.conf); err != nil {
		return nil, fmt.Errorf("section of group %d: membership: %w", group, err)
	}
	s.state = b[fixed+n:]
	return s, nil
}

// encodedSection is a section ready to be written again while its group is idle.
type encodedSection struct {
	group record.Group
	bytes []byte
}

func checkpointName(seq uint64) string { return fmt.Sprintf("%016x%s", seq, checkpointSuffix) }

// writeCheckpoint writes one checkpoint file and removes older ones. It puts the sections in
// the order of groups, and says where in the file each is; with an error too, if older
// files could not be removed.
func writeCheckpoint(fsys vfs.FS, dir string, seq uint64, sections []encodedSection) ([]sectionRow, error) {
	slices.SortFunc(sections, func(a, b encodedSection) int {
		switch {
		case a.group < b.group:
			return -1
		case a.group > b.group:
			return 1
		}
		return 0
	})
	table := encodeTable(seq, sections)
	parts := make([][]byte, 0, len(sections)+3)
	parts = append(parts, table)
	for _, s := range sections {
		parts = append(parts, s.bytes)
	}
	parts = append(parts, table, binary.LittleEndian.AppendUint32(nil, uint32(len(table))))

	if err := vfs.ReplaceFile(fsys, dir, checkpointName(seq), parts...); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	rows, err := decodeTable(table, seq)
	if err != nil {
		panic(fmt.Sprintf("replica: a checkpoint's table that was just made: %v", err))
	}
	return rows, removeCheckpointsBefore(fsys, dir, seq)
}

// readSection reads one section of a checkpoint file as it was written.
func readSection(fsys vfs.FS, dir string, seq uint64, r sectionRow) ([]byte, error) {
	name := path.Join(dir, checkpointName(seq))
	f, err := fsys.Open(name, vfs.Mode{})
	if err != nil {
		return nil, &CheckpointError{name, err}
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, r.size)
	if _, err := f.ReadAt(b, int64(r.at)); err != nil {
		return nil, &CheckpointError{name, fmt.Errorf("section of group %d: %w", r.group, err)}
	}
	if got := crc32.Checksum(b, record.Castagnoli); got != r.crc {
		return nil, &CheckpointError{name, fmt.Errorf("section of group %d at offset %d: CRC %08x, want %08x", r.group, r.at, got, r.crc)}
	}
	return b, nil
}

func encodeTable(seq uint64, sections []encodedSection) []byte {
	le := binary.LittleEndian
	size := tableFixedBytes + sectionRowBytes*len(sections)
	b := make([]byte, 0, size)
	b = append(b, checkpointMagic...)
	b = le.AppendUint32(b, uint32(size-16))
	b = le.AppendUint64(b, seq)
	b = le.AppendUint32(b, uint32(len(sections)))
	at := uint64(size)
	for _, s := range sections {
		b = le.AppendUint64(b, uint64(s.group))
		b = le.AppendUint64(b, at)
		b = le.AppendUint32(b, uint32(len(s.bytes)))
		b = le.AppendUint32(b, crc32.Checksum(s.bytes, record.Castagnoli))
		at += uint64(len(s.bytes))
	}
	return le.AppendUint32(b, crc32.Checksum(b, record.Castagnoli))
}

// CheckpointError says that a checkpoint file is damaged.
type CheckpointError struct {
	File  string
	Cause error
}

func (e *CheckpointError) Error() string { return fmt.Sprintf("checkpoint %s: %v", e.File, e.Cause) }
func (e *CheckpointError) Unwrap() error { return e.Cause }

// readCheckpoint loads the newest checkpoint; seq 0 if there is none. A damaged
// table is an error: an older file, if there is one, would lack what the WAL
// has forgotten since. A damaged section is returned with damaged set.
func readCheckpoint(fsys vfs.FS, dir string) (seq uint64, sections map[record.Group]*section, err error) {
	seqs, err := listCheckpoints(fsys, dir)
	if err != nil || len(seqs) == 0 {
		return 0, map[record.Group]*section{}, err
	}
	seq = seqs[len(seqs)-1]
	name := path.Join(dir, checkpointName(seq))
	b, err := vfs.ReadFile(fsys, name, maxCheckpointBytes)
	if err != nil {
		return 0, nil, &CheckpointError{name, err}
	}
	sections, err = decodeCheckpoint(b, seq)
	if err != nil {
		return 0, nil, &CheckpointError{name, err}
	}
	for _, s := range sections {
		if s.damaged != nil {
			s.damaged = &CheckpointError{name, s.damaged}
		}
	}
	return seq, sections, nil
}

func decodeCheckpoint(b []byte, seq uint64) (map[record.Group]*section, error) {
	rows, err := decodeTable(b, seq)
	if err != nil {
		if rows, err = decodeTable(lastTable(b), seq); err != nil {
			return nil, err
		}
	}
	sections := make(map[record.Group]*section, len(rows))
	for _, r := range rows {
		sections[r.group] = r.section(b)
	}
	return sections, nil
}

// section decodes the row's section of the file b.
func (r sectionRow) section(b []byte) *section {
	if r.at > uint64(len(b)) || uint64(r.size) > uint64(len(b))-r.at {
		return &section{group: r.group, damaged: fmt.Errorf("section of group %d ends beyond the file", r.group)}
	}
	body := b[r.at : r.at+uint64(r.size)]
	if got := crc32.Checksum(body, record.Castagnoli); got != r.crc {
		return &section{group: r.group, damaged: fmt.Errorf("section of group %d at offset %d: CRC %08x, table says %08x", r.group, r.at, got, r.crc)}
	}
	s, err := decodeSection(r.group, body)
	if err != nil {
		s = &section{group: r.group, damaged: err}
	}
	return s
}

type sectionRow struct {
	group record.Group
	at    uint64
	size  uint32
	crc   uint32
}

func decodeTable(b []byte, seq uint64) ([]sectionRow, error) {
	le := binary.LittleEndian
	if len(b) < tableFixedBytes || string(b[:8]) != checkpointMagic {
		return nil, errors.New("no checkpoint table at offset 0")
	}
	size := uint64(le.Uint32(b[8:])) + 16
	if size < tableFixedBytes || size > uint64(len(b)) || (size-tableFixedBytes)%sectionRowBytes != 0 {
		return nil, fmt.Errorf("table of %d bytes in a file of %d", size, len(b))
	}
	if got, want := crc32.Checksum(b[:size-4], record.Castagnoli), le.Uint32(b[size-4:]); got != want {
		return nil, fmt.Errorf("table at offset 0: CRC %08x, says %08x", got, want)
	}
	if got := le.Uint64(b[12:]); got != seq {
		return nil, fmt.Errorf("table is of checkpoint %d, the file's name says %d", got, seq)
	}
	n := int(le.Uint32(b[20:]))
	if uint64(n)*sectionRowBytes != size-tableFixedBytes {
		return nil, fmt.Errorf("table names %d sections but has room for %d", n, (size-tableFixedBytes)/sectionRowBytes)
	}
	rows := make([]sectionRow, n)
	for i := range rows {
		r := b[24+i*sectionRowBytes:]
		rows[i] = sectionRow{record.Group(le.Uint64(r)), le.Uint64(r[8:]), le.Uint32(r[16:]), le.Uint32(r[20:])}
	}
	return rows, nil
}

// lastTable returns the bytes from where the second table should begin.
func lastTable(b []byte) []byte {
	if len(b) < 4 {
		return nil
	}
	size := uint64(binary.LittleEndian.Uint32(b[len(b)-4:]))
	if size+4 > uint64(len(b)) {
		return nil
	}
	return b[uint64(len(b))-4-size : len(b)-4]
}

// listCheckpoints returns the seqs of finished checkpoint files, oldest first.
func listCheckpoints(fsys vfs.FS, dir string) ([]uint64, error) {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: list %s: %w", dir, err)
	}
	var seqs []uint64
	for _, n := range names {
		var seq uint64
		if base, ok := strings.CutSuffix(n, checkpointSuffix); ok && len(base) == 16 {
			if _, err := fmt.Sscanf(base, "%x", &seq); err == nil {
				seqs = append(seqs, seq)
			}
		}
	}
	slices.Sort(seqs)
	return seqs, nil
}

// removeCheckpointsBefore removes older files, and what an interrupted write left.
func removeCheckpointsBefore(fsys vfs.FS, dir string, seq uint64) error {
	names, err := fsys.List(dir)
	if err != nil {
		return fmt.Errorf("checkpoint: list %s: %w", dir, err)
	}
	keep := checkpointName(seq)
	for _, n := range names {
		if n == keep || !(strings.HasSuffix(n, checkpointSuffix) || strings.HasSuffix(n, ".tmp")) {
			continue
		}
		if err := fsys.Remove(path.Join(dir, n)); err != nil {
			return fmt.Errorf("checkpoint: remove %s: %w", n, err)
		}
	}
	return nil
}
