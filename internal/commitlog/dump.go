package commitlog

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// DumpItem is one thing that Dump found: a sound batch, or damage.
type DumpItem struct {
	File   string // its path
	Offset int64  // in bytes, within the file
	Header record.Header
	Err    error // damage; the header counts for nothing then
}

// Dump reads a partition's folder as it lies there, without changing anything,
// and visits every batch in order, and all damage: batches that do not check
// out or do not follow one another, and index rows that do not fit. It goes on
// behind damage where it can. It fails only if the folder cannot be listed.
//
// In a folder that a node did not close cleanly, the last segment may end within
// a batch: the next start cuts that off.
func Dump(fsys vfs.FS, dir string, visit func(DumpItem) bool) error {
	names, err := fsys.List(dir)
	if err != nil {
		return fmt.Errorf("dump: %w", err)
	}
	d := dumper{fs: fsys, visit: visit, next: -1}
	for _, name := range names {
		if !strings.HasSuffix(name, logSuffix) || d.stopped {
			continue
		}
		base, err := parseSegmentName(name)
		if err != nil {
			d.damage(path.Join(dir, name), 0, err)
			continue
		}
		d.segment(&segment{base: base, path: path.Join(dir, name), fs: fsys})
	}
	return nil
}

type dumper struct {
	fs      vfs.FS
	visit   func(DumpItem) bool
	next    record.Offset // expected; −1 for whatever comes
	stopped bool
}

func (d *dumper) show(i DumpItem) bool {
	d.stopped = d.stopped || !d.visit(i)
	return !d.stopped
}

func (d *dumper) damage(file string, offset int64, err error) {
	d.show(DumpItem{File: file, Offset: offset, Err: err})
}

func (d *dumper) segment(s *segment) {
	if d.next >= 0 && d.next != s.base {
		d.damage(s.path, 0, fmt.Errorf("begins at offset %d, the segment before ends at %d", s.base, d.next))
	}
	f, err := d.fs.Open(s.path, vfs.Mode{})
	if err != nil {
		d.damage(s.path, 0, err)
		return
	}
	defer func() { _ = f.Close() }()
	sizeBytes, err := f.Size()
	if err != nil {
		d.damage(s.path, 0, err)
		return
	}
	pos, next := int64(0), s.base
	for pos < sizeBytes && !d.stopped {
		var err error
		pos, next, err = walk(f, s.path, pos, next, sizeBytes, true, func(h record.Header, pos int64) bool {
			return d.show(DumpItem{File: s.path, Offset: pos, Header: h})
		})
		var damage *CorruptError
		if !errors.As(err, &damage) || padding(f, pos, sizeBytes) {
			break
		}
		d.damage(damage.File, damage.Offset, damage.Cause)
		if pos, next = behindDamage(f, pos, sizeBytes); pos < 0 {
			break
		}
	}
	d.next = next
	if !d.stopped {
		d.index(s, f, sizeBytes)
	}
}

// padding reports whether all that is left is the rest of a page of zeroes, as
// the last segment of a running or killed node has (aligned.go).
func padding(f vfs.File, pos, sizeBytes int64) bool {
	if sizeBytes-pos >= pageBytes {
		return false
	}
	b := make([]byte, sizeBytes-pos)
	if n, _ := f.ReadAt(b, pos); n < len(b) {
		return false
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// behindDamage is where the next batch begins if the damaged one's length can
// be believed, because a sound batch follows it; −1 otherwise.
func behindDamage(f vfs.File, pos, sizeBytes int64) (int64, record.Offset) {
	w := window{f: f, sizeBytes: sizeBytes}
	defer w.close()
	b, err := w.at(pos, record.HeaderBytes)
	if err != nil {
		return -1, -1
	}
	size, _ := peek(b)
	if size < record.HeaderBytes || pos+int64(size) >= sizeBytes {
		return -1, -1
	}
	pos += int64(size)
	if b, err = w.at(pos, record.HeaderBytes); err != nil {
		return -1, -1
	}
	h, err := record.ParseHeader(b)
	if err != nil || pos+int64(h.SizeBytes()) > sizeBytes {
		return -1, -1
	}
	if b, err = w.at(pos, h.SizeBytes()); err != nil {
		return -1, -1
	}
	if _, err := record.Verify(b); err != nil {
		return -1, -1
	}
	return pos, h.BaseOffset
}

// index checks the rows of both index files against the batches. Missing rows
// are no damage: they are made anew when needed.
func (d *dumper) index(s *segment, f vfs.File, sizeBytes int64) {
	offsets, err1 := vfs.ReadFile(d.fs, s.indexPath(), maxIndexFileBytes)
	times, err2 := vfs.ReadFile(d.fs, s.timePath(), maxIndexFileBytes)
	if err1 != nil || err2 != nil {
		return
	}
	rows := parseRows(offsets, times, s.base, sizeBytes)
	for i, e := range rows {
		if int64(e.pos) == sizeBytes {
			continue // the row behind the last batch
		}
		var b [record.HeaderBytes]byte
		err := readFull(f, b[:], int64(e.pos))
		if err == nil {
			var h record.Header
			h, err = record.ParseHeader(b[:])
			if err == nil && (h.BaseOffset != s.base+record.Offset(e.rel) || h.LeaderEpoch != e.epoch) {
				err = fmt.Errorf("row says offset %d of epoch %d, the segment %d of %d", s.base+record.Offset(e.rel), e.epoch, h.BaseOffset, h.LeaderEpoch)
			}
		}
		if err != nil {
			d.damage(s.indexPath(), int64(i)*rowBytes, err)
		}
	}
	if n := min(len(offsets), len(times)) / rowBytes; n > len(rows) {
		d.damage(s.indexPath(), int64(len(rows))*rowBytes, fmt.Errorf("row %d of %d, here or in %s, is damaged", len(rows), n, path.Base(s.timePath())))
	}
}
