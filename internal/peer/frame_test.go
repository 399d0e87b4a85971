package peer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// sink is a connection that keeps what is written.
type sink struct {
	net.Conn
	bytes.Buffer
	largest int
}

func (s *sink) Write(b []byte) (int, error) {
	s.largest = max(s.largest, len(b))
	return s.Buffer.Write(b)
}
func (s *sink) Read(b []byte) (int, error)         { return s.Buffer.Read(b) }
func (s *sink) SetWriteDeadline(_ time.Time) error { return nil }

func TestFramesOfAllSizesComeThrough(t *testing.T) {
	record.PoisonReleased(true)
	defer record.PoisonReleased(false)
	rng, noise := rand.New(rand.NewPCG(1, 2)), rand.NewChaCha8([32]byte{3})
	sizes := []int{0, 1, copyBytes, copyBytes + 1, shareBytes - headerBytes, shareBytes - headerBytes + 1, readBytes, growBytes, growBytes + 1, 5 << 20}
	for range 200 {
		sizes = append(sizes, rng.IntN(3000), rng.IntN(100<<10))
	}
	rng.Shuffle(len(sizes), func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
	var out sink
	w := newFrameWriter(&out)
	var bodies [][]byte
	for i, size := range sizes {
		body := make([]byte, size)
		_, _ = noise.Read(body)
		bodies = append(bodies, body)
		cut := rng.IntN(size + 1)
		if err := w.add(byte(i), [][]byte{body[:cut], nil, body[cut:]}); err != nil {
			t.Fatal(err)
		}
		if w.full() || i%50 == 0 {
			if err := w.flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.flush(); err != nil {
		t.Fatal(err)
	}
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "halves": iotest.HalfReader, "data with EOF": iotest.DataErrReader,
	} {
		r := newFrameReader(wrap(bytes.NewReader(out.Bytes())), 64<<20)
		var held []*record.Buffer
		var kept [][]byte
		for i := range bodies {
			kind, buf, body, err := r.next()
			if err != nil {
				t.Fatalf("%s: frame %d: %v", name, i, err)
			}
			if kind != byte(i) {
				t.Fatalf("%s: frame %d has kind %d", name, i, kind)
			}
			held, kept = append(held, buf.Retain()), append(kept, body)
		}
		if _, _, _, err := r.next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: at the end: %v", name, err)
		}
		r.close()
		for i := range bodies {
			if !bytes.Equal(kept[i], bodies[i]) {
				t.Fatalf("%s: frame %d of %d bytes changed", name, i, len(bodies[i]))
			}
			held[i].Release()
		}
	}
}

func TestBadFramesAreRefused(t *testing.T) {
	good := frameBytes(5, "body")
	change := func(at int, b byte) string {
		f := bytes.Clone(good)
		f[at] ^= b
		return string(f)
	}
	length := func(n uint32) string {
		f := bytes.Clone(good)
		binary.LittleEndian.PutUint32(f, n)
		return string(f)
	}
	large := frameBytes(5, strings.Repeat("l", 300<<10))
	damaged := bytes.Clone(large)
	damaged[len(damaged)-1]++
	for _, c := range []struct {
		name, in string
		want     error
	}{
		{"nothing", "", io.EOF},
		{"part of a header", string(good[:5]), io.ErrUnexpectedEOF},
		{"a header", string(good[:9]), io.ErrUnexpectedEOF},
		{"part of a body", string(good[:12]), io.ErrUnexpectedEOF},
		{"part of a large body", string(large[:len(large)-1]), io.ErrUnexpectedEOF},
		{"kind changed", change(4, 1), errDamaged},
		{"sum changed", change(5, 1), errDamaged},
		{"body changed", change(12, 128), errDamaged},
		{"large body changed", string(damaged), errDamaged},
		{"length too small", length(4), errMalformed},
		{"length zero", length(0), errMalformed},
		{"length too large", length(1<<20 + 6), errMalformed},
		{"length enormous", length(1<<32 - 1), errMalformed},
		{"length larger than what comes", length(1<<20 + 5), io.ErrUnexpectedEOF},
	} {
		r := newFrameReader(strings.NewReader(c.in), 1<<20)
		if _, _, _, err := r.next(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		r.close()
	}
}

// A length is only a claim: memory follows the bytes.
func TestMemoryFollowsTheBytesThatCame(t *testing.T) {
	head := make([]byte, headerBytes)
	binary.LittleEndian.PutUint32(head, 64<<20)
	r := newFrameReader(io.MultiReader(bytes.NewReader(head), bytes.NewReader(make([]byte, 1<<20-1))), 64<<20)
	defer r.close()
	if _, _, _, err := r.next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if got := cap(r.large.B); got > growBytes {
		t.Errorf("%d bytes were taken for %d", got, 1<<20-1)
	}
}

func FuzzFrameReader(f *testing.F) {
	f.Add([]byte{}, uint8(1))
	f.Add(frameBytes(5, "body"), uint8(3))
	f.Add(append(frameBytes(0, strings.Repeat("h", heartbeatBytes)), frameBytes(1, strings.Repeat("b", 70<<10))...), uint8(200))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0}, uint8(9))
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		// Whatever the pieces it comes in, what is accepted is the input, and
		// reading it in one piece accepts the same.
		whole, errWhole := readAll(bytes.NewReader(in))
		pieces, errPieces := readAll(&stepReader{in, int(step) + 1})
		if !bytes.Equal(whole, pieces) || errWhole.Error() != errPieces.Error() {
			t.Fatalf("%d bytes, %v; in pieces %d bytes, %v", len(whole), errWhole, len(pieces), errPieces)
		}
		if !bytes.HasPrefix(in, whole) {
			t.Fatal("frames do not make the input again")
		}
		if errors.Is(errWhole, io.EOF) && !errors.Is(errWhole, io.ErrUnexpectedEOF) && len(whole) != len(in) {
			t.Fatalf("%d of %d bytes read", len(whole), len(in))
		}
	})
}

// readAll reads frames and writes them again.
func readAll(src io.Reader) ([]byte, error) {
	r := newFrameReader(src, 1<<20)
	defer r.close()
	var out []byte
	for {
		kind, _, body, err := r.next()
		if err != nil {
			return out, err
		}
		out = append(out, frameBytes(kind, string(body))...)
	}
}

type stepReader struct {
	rest []byte
	step int
}

func (s *stepReader) Read(b []byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), s.step)], s.rest)
	s.rest = s.rest[n:]
	return n, nil
}
