package outbox

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	tube "github.com/tube-mq/tube/client"
)

// cursor is a place in a spool.
type cursor struct {
	File   uint32 `json:"file"`
	Offset int64  `json:"offset"`
}

// readBytes of records are read at a time, or one record.
const readBytes = 1 << 20

// read reads up to most records from a place on. It returns the place again, moved to
// the next file if one ends there, and a channel that is closed when more is durable.
func (s *Spool) read(at cursor, most int) ([]*item, cursor, <-chan struct{}, error) {
	s.mu.Lock()
	at, limit := s.bound(at)
	more := s.more
	s.mu.Unlock()
	if at.Offset >= limit {
		return nil, at, more, nil
	}
	name := file{number: at.File}.path(s.dir)
	f, err := os.Open(name)
	if err != nil {
		return nil, at, nil, fmt.Errorf("outbox: %w", err)
	}
	defer f.Close()
	in := bufio.NewReaderSize(io.NewSectionReader(f, at.Offset, limit-at.Offset), 64<<10)
	var out []*item
	for pos := at.Offset; pos < limit && len(out) < most && pos-at.Offset < readBytes; {
		payload, err := nextRecord(in, at.File)
		if errors.Is(err, errNoRecord) {
			return nil, at, nil, &CorruptError{name, pos}
		} else if err != nil {
			return nil, at, nil, fmt.Errorf("outbox: read %s at %d: %w", name, pos, err)
		}
		m, err := decode(payload, time.Now())
		if err != nil {
			return nil, at, nil, fmt.Errorf("outbox: %s at %d: %w", name, pos, err)
		}
		size := headerSize + len(payload)
		pos += int64(size)
		out = append(out, &item{m: m, size: size, next: cursor{at.File, pos}})
	}
	return out, at, more, nil
}

// bound moves a place to where there is something, and says up to where its file is
// durable. The caller holds mu.
func (s *Spool) bound(at cursor) (cursor, int64) {
	for i, f := range s.files {
		last := i == len(s.files)-1
		limit := f.size
		if last {
			limit = s.durable
		}
		if f.number < at.File {
			continue
		}
		if f.number > at.File {
			at = cursor{f.number, 0}
		}
		if at.Offset < limit || last {
			return at, limit
		}
		at = cursor{s.files[i+1].number, 0}
	}
	last := s.files[len(s.files)-1] // the place is behind all files, as they were removed by hand
	return cursor{last.number, 0}, s.durable
}

// nextRecord reads a record of a file.
func nextRecord(in *bufio.Reader, number uint32) ([]byte, error) {
	head, err := in.Peek(headerSize)
	if err != nil {
		return nil, short(err)
	}
	n := binary.LittleEndian.Uint32(head[8:])
	if string(head[:4]) != magic || n > maxPayload {
		return nil, errNoRecord
	}
	b := make([]byte, headerSize+int(n))
	if _, err := io.ReadFull(in, b); err != nil {
		return nil, short(err)
	}
	payload, _, err := readRecord(b, number)
	return payload, err
}

// short: the file ends within what was durable.
func short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errNoRecord
	}
	return err
}

func (s *Spool) cursorFile() string { return filepath.Join(s.dir, "confirmed.json") }

// loadCursor is up to where messages were confirmed. If that cannot be read all that is
// there is sent again, with the same ids.
func (s *Spool) loadCursor() (at cursor) {
	b, err := os.ReadFile(s.cursorFile())
	if err != nil || json.Unmarshal(b, &at) != nil || at.Offset < 0 {
		return cursor{}
	}
	return at
}

// saveCursor is not synced: what it may lose is sent again.
func (s *Spool) saveCursor(at cursor) error {
	b, err := json.Marshal(at)
	if err == nil {
		err = os.WriteFile(s.cursorFile()+".new", b, 0o644)
	}
	if err == nil {
		err = os.Rename(s.cursorFile()+".new", s.cursorFile())
	}
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	return nil
}

// removeBefore removes the files before one: all that is in them is confirmed.
func (s *Spool) removeBefore(number uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.files) > 1 && s.files[0].number < number {
		if err := os.Remove(s.files[0].path(s.dir)); err != nil {
			return fmt.Errorf("outbox: %w", err)
		}
		s.files = s.files[1:]
	}
	return nil
}

// refuse sets a message aside for good, durably, and tells of it.
func (s *Spool) refuse(m *tube.Outgoing, why error) error {
	payload, err := encode(m, time.Now())
	if err != nil {
		return err
	}
	line, err := json.Marshal(struct {
		Time    time.Time `json:"time"`
		Topic   string    `json:"topic"`
		ID      string    `json:"id"`
		Why     string    `json:"why"`
		Request []byte    `json:"send_request"`
	}{time.Now(), m.Topic, m.ID, why.Error(), payload})
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(s.dir, "refused.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	if err = errors.Join(err, s.sync(f), f.Close()); err != nil {
		return fmt.Errorf("outbox: set message %s aside: %w", m.ID, err)
	}
	if s.cfg.Refused != nil {
		s.cfg.Refused(m, why)
	}
	return nil
}
