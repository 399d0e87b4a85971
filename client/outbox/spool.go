package outbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	tube "github.com/tube-mq/tube/client"
)

// What Put may answer. Nothing was kept then, but after ErrBroken it may have been.
var (
	// ErrFull: the spool has its MaxBytes of messages that are not confirmed yet.
	ErrFull = errors.New("outbox: the spool is full")
	// ErrBroken: writing failed. It is not tried again, as the system may have dropped
	// what was not written; open the spool anew.
	ErrBroken = errors.New("outbox: the spool could not be written and takes no more")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("outbox: the spool is closed")
)

// SpoolConfig of a Spool. The zero value is good.
type SpoolConfig struct {
	MaxBytes  int64 // on disk; default 1 GiB. Whole files are given back, so up to an eighth may be confirmed
	FileBytes int64 // size at which a new file is begun; default 8 MiB, at most an eighth of MaxBytes
	// Refused is told of what Tube refused for good, once it is in refused.jsonl.
	Refused func(m *tube.Outgoing, why error)
}

// Spool keeps messages in a folder until they are confirmed. One process at a time has
// it open. Safe for use by several goroutines.
type Spool struct {
	dir  string
	cfg  SpoolConfig
	lock *os.File
	sync func(*os.File) error // (*os.File).Sync; tests make it fail

	mu      sync.Mutex
	cond    sync.Cond // syncing or durable changed
	files   []file    // oldest first, the last one is written to; guarded by mu, as all that follows
	active  *os.File
	durable int64 // of active
	syncing bool
	broken  error
	closed  bool
	more    chan struct{} // closed when durable grew
	relayed bool          // a Relay has it
}

// file of a spool.
type file struct {
	number uint32
	size   int64 // written
}

func (f file) path(dir string) string {
	return filepath.Join(dir, fmt.Sprintf("%010d.spool", f.number))
}

// OpenSpool opens the spool in a folder, or makes one. What a crash left unfinished is
// cut off; what was durable and is damaged is a *CorruptError.
func OpenSpool(dir string, cfg SpoolConfig) (*Spool, error) {
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 1 << 30
	}
	if cfg.FileBytes == 0 {
		cfg.FileBytes = 8 << 20
	}
	// Only whole files are given back.
	cfg.FileBytes = min(cfg.FileBytes, max(cfg.MaxBytes/8, 1))
	s := &Spool{dir: dir, cfg: cfg, sync: (*os.File).Sync, more: make(chan struct{})}
	s.cond.L = &s.mu
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	var err error
	if s.lock, err = lockFolder(dir); err != nil {
		return nil, fmt.Errorf("outbox: %s: %w", dir, err)
	}
	if err := s.recover(); err != nil {
		_ = s.lock.Close()
		return nil, err
	}
	return s, nil
}

// recover finds the files, cuts the last one's torn end, and begins a new one.
func (s *Spool) recover() error {
	names, err := filepath.Glob(filepath.Join(s.dir, "*.spool"))
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	slices.Sort(names)
	last := uint32(0)
	for i, name := range names {
		n, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(name), ".spool"), 10, 32)
		if err != nil {
			return fmt.Errorf("outbox: %s is no file of a spool", name)
		}
		size, err := check(name, uint32(n), i == len(names)-1)
		if err != nil {
			return err
		}
		s.files = append(s.files, file{uint32(n), size})
		last = uint32(n)
	}
	return s.begin(last + 1)
}

// check reads a file and returns how much of it is valid. Only the last one was written
// to when a crash came.
func check(name string, number uint32, last bool) (int64, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, fmt.Errorf("outbox: %w", err)
	}
	end, _, torn := scan(b, number)
	if end == int64(len(b)) {
		return end, nil
	}
	if !last || !torn {
		return 0, &CorruptError{name, end}
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return 0, fmt.Errorf("outbox: %w", err)
	}
	err = errors.Join(f.Truncate(end), f.Sync(), f.Close())
	if err != nil {
		return 0, fmt.Errorf("outbox: cut the torn end of %s: %w", name, err)
	}
	return end, nil
}

// begin makes a new file the one that is written to.
func (s *Spool) begin(number uint32) error {
	f := file{number: number}
	w, err := os.OpenFile(f.path(s.dir), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	if err := syncFolder(s.dir); err != nil {
		_ = w.Close()
		return fmt.Errorf("outbox: %s: %w", s.dir, err)
	}
	s.files, s.active, s.durable = append(s.files, f), w, 0
	return nil
}

// Put keeps messages, and returns when they are durable on this machine. A message
// without an ID is given one, into m. What several goroutines put at the same time
// shares an fsync. Errors: ErrFull, ErrBroken, ErrClosed.
func (s *Spool) Put(ms ...*tube.Outgoing) error {
	payloads := make([][]byte, len(ms))
	size := int64(0)
	for i, m := range ms {
		var err error
		if payloads[i], err = encode(m, time.Now()); err != nil {
			return err
		}
		size += headerSize + int64(len(payloads[i]))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.room(size); err != nil {
		return err
	}
	f := &s.files[len(s.files)-1]
	var b []byte
	for _, p := range payloads {
		b = appendRecord(b, f.number, s.durable, p)
	}
	if _, err := s.active.Write(b); err != nil {
		return s.breaks(err)
	}
	f.size += size
	return s.waitDurable(s.active, f.number, f.size)
}

// room sees that size more bytes may be written. The caller holds mu.
func (s *Spool) room(size int64) error {
	for {
		switch {
		case s.closed:
			return ErrClosed
		case s.broken != nil:
			return s.broken
		case s.files[len(s.files)-1].size >= s.cfg.FileBytes:
			if s.syncing {
				s.cond.Wait()
			} else if err := s.next(); err != nil {
				return err
			}
			continue
		case s.bytes() > 0 && s.bytes()+size > s.cfg.MaxBytes:
			return fmt.Errorf("%w: %d bytes wait, %d can", ErrFull, s.bytes(), s.cfg.MaxBytes)
		}
		return nil
	}
}

// next finishes the active file and begins another. The caller holds mu, and nobody
// syncs.
func (s *Spool) next() error {
	if err := s.sync(s.active); err != nil {
		return s.breaks(err)
	}
	s.durable = s.files[len(s.files)-1].size
	s.told()
	if err := s.active.Close(); err != nil {
		return s.breaks(err)
	}
	if err := s.begin(s.files[len(s.files)-1].number + 1); err != nil {
		return s.breaks(err)
	}
	return nil
}

// waitDurable waits until a file is durable up to size. One of those who wait does the
// fsync for all. The caller holds mu.
func (s *Spool) waitDurable(w *os.File, number uint32, size int64) error {
	for {
		f := s.files[len(s.files)-1]
		switch {
		case f.number != number || s.durable >= size: // the file before is durable as a whole
			return nil
		case s.broken != nil:
			return s.broken
		case s.syncing:
			s.cond.Wait()
			continue
		}
		s.syncing = true
		s.mu.Unlock()
		err := s.sync(w)
		s.mu.Lock()
		s.syncing = false
		if err != nil {
			return s.breaks(err)
		}
		s.durable = max(s.durable, f.size)
		s.told()
	}
}

// told wakes who waits for more that is durable. The caller holds mu.
func (s *Spool) told() {
	s.cond.Broadcast()
	close(s.more)
	s.more = make(chan struct{})
}

func (s *Spool) breaks(err error) error {
	s.broken = fmt.Errorf("%w: %w", ErrBroken, err)
	s.cond.Broadcast()
	return s.broken
}

func (s *Spool) bytes() (n int64) {
	for _, f := range s.files {
		n += f.size
	}
	return n
}

// Bytes is how much is on disk: all that is not confirmed, and up to a file more.
func (s *Spool) Bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes()
}

// Close ends the spool, after what was put is durable. A Relay must have ended before.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for s.syncing {
		s.cond.Wait()
	}
	var err error
	if s.broken == nil {
		err = s.sync(s.active)
	}
	return errors.Join(err, s.active.Close(), s.lock.Close())
}
