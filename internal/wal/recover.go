package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// CorruptionError names damage to what was durable.
type CorruptionError struct {
	File   string
	Offset int64
	Group  record.Group // 0: not readable
	Check  uint32       // GroupCheck of the group if that is readable, else 0
	Cause  error

	at Position
}

func (e *CorruptionError) Error() string {
	whose := ""
	if e.Group != 0 {
		whose = fmt.Sprintf(" (group %d)", e.Group)
	}
	return fmt.Sprintf("write-ahead log %s is damaged at offset %d%s: %v", e.File, e.Offset, whose, e.Cause)
}

// Position is where the damage is.
func (e *CorruptionError) Position() Position { return e.at }

func (e *CorruptionError) Unwrap() error { return e.Cause }

// Recovery says what Open found.
type Recovery struct {
	Records int
	Damage  []*CorruptionError
	// Cut is where a torn tail was cut off; zero if there was none.
	Cut Position
}

// scan reads a folder's files and calls out what is in them. It writes nothing.
type scan struct {
	fs     vfs.FS
	dir    string
	seqs   []uint64
	replay func(Record) error
	// visit, if set, is told of every block.
	visit func(block)
	rec   Recovery
	end   Position
}

// scanDir lists a folder: live files, spares, leftovers.
func scanDir(fsys vfs.FS, dir string) (seqs []uint64, spares, leftovers []string, err error) {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil, nil
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("wal: %w", err)
	}
	for _, n := range names {
		base, isLog := strings.CutSuffix(n, ".wal")
		var seq uint64
		switch {
		case isLog && len(base) == 16:
			if _, err := fmt.Sscanf(base, "%x", &seq); err != nil || seq == 0 {
				return nil, nil, nil, fmt.Errorf("wal: %s is not a write-ahead log file's name", path.Join(dir, n))
			}
			seqs = append(seqs, seq)
		case strings.HasSuffix(n, ".spare"):
			spares = append(spares, n)
		case n == preparingName:
			leftovers = append(leftovers, n)
		}
	}
	slices.Sort(seqs)
	return seqs, spares, leftovers, nil
}

// Open recovers a folder's log: every record that was durable is replayed, in
// the order in which it was written. A torn tail, which nobody was told of, is
// cut; damage to what was durable is in Recovery, and the rest is replayed.
func Open(cfg Config, replay func(Record) error) (*Log, Recovery, error) {
	cfg.setDefaults()
	if err := cfg.FS.MkdirAll(cfg.Dir); err != nil {
		return nil, Recovery{}, fmt.Errorf("wal: %w", err)
	}
	if err := cfg.FS.SyncDir(path.Dir(cfg.Dir)); err != nil {
		return nil, Recovery{}, fmt.Errorf("wal: %w", err)
	}
	seqs, spares, leftovers, err := scanDir(cfg.FS, cfg.Dir)
	if err != nil {
		return nil, Recovery{}, err
	}
	s := &scan{fs: cfg.FS, dir: cfg.Dir, seqs: seqs, replay: replay}
	if err := s.run(); err != nil {
		return nil, s.rec, err
	}
	l := &Log{cfg: cfg, opened: time.Now(), reads: map[uint64]vfs.File{}, closing: make(chan struct{}), synced: s.end, wrote: s.end}
	for _, seq := range seqs {
		st, err := cfg.FS.Stat(path.Join(cfg.Dir, fileName(seq)))
		if err != nil {
			return nil, s.rec, fmt.Errorf("wal: %w", err)
		}
		l.files = append(l.files, walFile{seq, st.SizeBytes})
	}
	for _, n := range leftovers {
		if err := cfg.FS.Remove(path.Join(cfg.Dir, n)); err != nil {
			return nil, s.rec, fmt.Errorf("wal: %w", err)
		}
	}
	for _, n := range spares {
		st, err := cfg.FS.Stat(path.Join(cfg.Dir, n))
		if err != nil {
			return nil, s.rec, fmt.Errorf("wal: %w", err)
		}
		l.spares = append(l.spares, spare{n, st.SizeBytes})
	}
	// What the last run wrote may be in the page cache only: what is taken over
	// from here on counts as durable, so make it so.
	if err := s.syncFiles(); err != nil {
		return nil, s.rec, err
	}
	// A start never goes on in an old file: its first block's mark says where
	// the old one ends, so that what was cut can never come back.
	if err := l.beginWith(cfg.FirstFileBytes, 0); err != nil {
		return nil, s.rec, err
	}
	if len(seqs) > 0 {
		if err := l.append(nil, nil); err != nil {
			return nil, s.rec, err
		}
		if err := l.sync(); err != nil {
			return nil, s.rec, err
		}
		l.expose()
	}
	return l, s.rec, nil
}

func (s *scan) syncFiles() error {
	for _, seq := range s.seqs {
		f, err := s.fs.Open(path.Join(s.dir, fileName(seq)), vfs.Mode{Write: true})
		if err != nil {
			return fmt.Errorf("wal: %w", err)
		}
		err = f.SyncData()
		f.Close()
		if err != nil {
			return fmt.Errorf("wal: sync %s: %w", fileName(seq), err)
		}
	}
	return nil
}

// run scans all files. Where a file ends is said by the first block of the next
// one that has any; the last one ends where nothing valid follows that knew of
// what is missing.
func (s *scan) run() error {
	for i, seq := range s.seqs {
		if i > 0 && seq != s.seqs[i-1]+1 {
			s.damage(Position{seq, 0}, nil, fmt.Errorf("files %s to %s are missing", fileName(s.seqs[i-1]+1), fileName(seq-1)))
		}
		limit, last, err := s.limit(i)
		if err != nil {
			return err
		}
		if err := s.file(seq, limit, last); err != nil {
			return err
		}
	}
	return nil
}

// damage notes that something durable is not there; b is what stands in its place.
func (s *scan) damage(at Position, b []byte, cause error) {
	g, check := damagedGroup(b)
	s.rec.Damage = append(s.rec.Damage, &CorruptionError{fileName(at.File), at.Offset, g, check, cause, at})
}

// limit says how far file i was written, if a later file tells; last reports
// that none does.
func (s *scan) limit(i int) (limit int64, last bool, err error) {
	for _, later := range s.seqs[i+1:] {
		mark, ok, err := s.firstMark(later)
		if err != nil {
			return 0, false, err
		}
		if !ok {
			continue
		}
		switch {
		case mark.File == s.seqs[i]:
			return mark.Offset, false, nil
		case mark.File < s.seqs[i]:
			return 0, false, nil // nothing in it was ever acknowledged
		default:
			return -1, false, nil // a file between is damaged at its start
		}
	}
	return -1, true, nil
}

// firstMark finds a file's first valid block and its mark.
func (s *scan) firstMark(seq uint64) (Position, bool, error) {
	f, err := s.fs.Open(path.Join(s.dir, fileName(seq)), vfs.Mode{})
	if err != nil {
		return Position{}, false, fmt.Errorf("wal: %w", err)
	}
	defer f.Close()
	var b [blockHeaderBytes]byte
	if n, _ := f.ReadAt(b[:], 0); n < len(b) {
		return Position{}, false, nil
	}
	h, err := parseBlock(b[:], Position{seq, 0})
	switch {
	case errors.Is(err, ErrVersion):
		return Position{}, false, fmt.Errorf("wal: %s: %w", fileName(seq), err)
	case err != nil:
		return Position{}, false, nil
	}
	return h.mark, true, nil
}

// file replays one file.
func (s *scan) file(seq uint64, limit int64, last bool) error {
	f, err := openReader(s.fs, s.dir, seq)
	if err != nil {
		return err
	}
	defer f.close()
	stop := f.size
	if limit >= 0 {
		stop = limit
	}
	for at := int64(0); at < stop; {
		pos := Position{seq, at}
		h, b, err := readBlock(f, pos)
		var header *block // of a block whose records alone are damaged
		if err == nil {
			if s.visit != nil {
				s.visit(h)
			}
			if err = firstBad(h, b); err == nil {
				if err := s.records(h.at, b, h.records); err != nil {
					return err
				}
				at = h.end()
				s.end = Position{seq, at}
				continue
			}
			header = &h
		}
		if errors.Is(err, ErrVersion) {
			return fmt.Errorf("wal: %s at offset %d: %w", fileName(seq), at, err)
		}
		next, found, err2 := s.next(f, pos)
		if err2 != nil {
			return err2
		}
		// Below what a later file or a later block knew to be durable?
		durable := limit >= 0 || found && pos.Before(next.mark)
		if !durable {
			// Torn, or the end: nobody was told of it. Nothing of the block is taken.
			if last && !blank(f, at) {
				s.rec.Cut = Position{seq, at}
			}
			break
		}
		to := stop
		switch {
		case header != nil:
			to = min(stop, header.end())
		case found && next.at.Offset < stop:
			to = next.at.Offset
		}
		if err := s.salvage(f, pos, to, header, err); err != nil {
			return err
		}
		at = to
		s.end = Position{seq, at}
	}
	if limit >= 0 {
		s.end = Position{seq, limit}
	} else if s.end.File < seq {
		s.end = Position{seq, 0}
	}
	return nil
}

// blank reports whether nothing was ever written at a place.
func blank(f *reader, at int64) bool {
	b, err := f.at(at, int(min(alignBytes, f.size-at)))
	return err == nil && zeros(b)
}

// next looks for a valid block behind a place where there is none: one whose
// mark lies behind the place if there is one, else any.
func (s *scan) next(f *reader, after Position) (block, bool, error) {
	var any block
	found := false
	for at := after.Offset + alignBytes; at+blockHeaderBytes <= f.size; at += alignBytes {
		b, err := f.at(at, blockHeaderBytes)
		if err != nil {
			return block{}, false, fmt.Errorf("wal: read %s at %d: %w", fileName(after.File), at, err)
		}
		h, err := parseBlock(b, Position{after.File, at})
		if errors.Is(err, ErrVersion) {
			return block{}, false, fmt.Errorf("wal: %s at offset %d: %w", fileName(after.File), at, err)
		}
		if err != nil {
			continue
		}
		if !found {
			any, found = h, true
		}
		if after.Before(h.mark) {
			// The first valid block is where to go on; that a later one knew of the
			// missing place is what makes it damage.
			any.mark = h.mark
			return any, true, nil
		}
	}
	return any, found, nil
}

// readBlock reads a whole block; its bytes are good until f is read again.
func readBlock(f *reader, at Position) (block, []byte, error) {
	head, err := f.at(at.Offset, blockHeaderBytes)
	if err != nil {
		return block{}, nil, fmt.Errorf("%w: read %d of %d bytes: %v", errNoBlock, len(head), blockHeaderBytes, err)
	}
	h, err := parseBlock(head, at)
	if err != nil {
		return block{}, nil, err
	}
	if int64(h.length) > f.size-at.Offset {
		return block{}, nil, fmt.Errorf("%w: %d bytes at offset %d of a file of %d", errNoBlock, h.length, at.Offset, f.size)
	}
	b, err := f.at(at.Offset, h.length)
	if err != nil {
		return block{}, nil, fmt.Errorf("%w: read %d of %d bytes: %v", errNoBlock, len(b), h.length, err)
	}
	return h, b, nil
}

// firstBad says what is wrong with the first record of a block that is not as
// it was written; nil: none.
func firstBad(h block, b []byte) error {
	off := blockHeaderBytes
	for range h.records {
		_, size, err := parseRecord(b[off:], Position{h.at.File, h.at.Offset + int64(off)})
		if err != nil {
			return fmt.Errorf("at offset %d: %w", h.at.Offset+int64(off), err)
		}
		off += size
	}
	return nil
}

// records replays the records of a block that firstBad found sound.
func (s *scan) records(start Position, b []byte, n int) error {
	off := blockHeaderBytes
	for range n {
		r, size, err := decodeRecord(b[off:], Position{start.File, start.Offset + int64(off)})
		if err != nil {
			return err
		}
		off += size
		s.rec.Records++
		if err := s.replay(r); err != nil {
			return err
		}
	}
	return nil
}
