package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Compression is how a batch's records are compressed.
type Compression int8

// The codecs of the Kafka protocol.
const (
	None Compression = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// Compression of the batch's records.
func (h Header) Compression() Compression { return Compression(h.Attributes & CompressionMask) }

// String is the codec's name in Kafka's settings.
func (c Compression) String() string {
	if c < None || c > Zstd {
		return fmt.Sprintf("compression(%d)", int8(c))
	}
	return [...]string{"none", "gzip", "snappy", "lz4", "zstd"}[c]
}

// maxWindowBytes bounds what a zstd frame may ask a decoder to keep.
const maxWindowBytes = 32 << 20

var zstdDecoders = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindowBytes))
	if err != nil {
		panic("record: zstd decoder options: " + err.Error())
	}
	return d
}}

// decompress calls read with the decompressed records. Reading more than
// maxBytes fails with ErrTooLarge; bytes that the codec refuses with ErrInvalid.
func decompress(c Compression, b []byte, maxBytes int64, read func(io.Reader) error) error {
	capped := func(r io.Reader) error {
		return read(&cappedReader{r: r, left: maxBytes, codec: c})
	}
	switch c {
	case None:
		return capped(bytes.NewReader(b))
	case Gzip:
		r, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return fmt.Errorf("%w: gzip: %w", ErrInvalid, err)
		}
		return capped(r)
	case Snappy:
		return capped(&snappyReader{src: b, maxBytes: maxBytes})
	case LZ4:
		return capped(lz4.NewReader(bytes.NewReader(b)))
	case Zstd:
		d := zstdDecoders.Get().(*zstd.Decoder)
		defer zstdDecoders.Put(d)
		if err := d.Reset(bytes.NewReader(b)); err != nil {
			return fmt.Errorf("%w: zstd: %w", ErrInvalid, err)
		}
		defer func() { _ = d.Reset(nil) }() // lets go of b
		return capped(d)
	}
	return fmt.Errorf("%w: unknown compression %d", ErrInvalid, c)
}

// cappedReader fails when more than left bytes come.
type cappedReader struct {
	r     io.Reader
	left  int64
	codec Compression
}

func (c *cappedReader) Read(p []byte) (int, error) {
	// One byte more than allowed is asked for, to see whether it is there.
	if int64(len(p)) > c.left+1 {
		p = p[:c.left+1]
	}
	n, err := c.r.Read(p)
	c.left -= int64(n)
	if c.left < 0 {
		return 0, fmt.Errorf("%w: %s: decompresses to more than the limit", ErrTooLarge, c.codec)
	}
	if err == nil || err == io.EOF || errors.Is(err, ErrTooLarge) {
		return n, err
	}
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return n, fmt.Errorf("%w: %s: %w", ErrTooLarge, c.codec, err)
	}
	return n, fmt.Errorf("%w: %s: %w", ErrInvalid, c.codec, err)
}

// xerialMagic begins what snappy-java writes: this, two u32 versions, then
// blocks of a big-endian u32 length and a raw snappy block. Other clients write
// one raw block.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeaderBytes = 16

// snappyMaxRatio is more than any snappy block can reach (64 bytes out of 3),
// so a block that claims more lies and is not given the memory.
const snappyMaxRatio = 32

// snappyReader decodes raw and xerial framed snappy block by block.
type snappyReader struct {
	src      []byte
	maxBytes int64
	begun    bool
	framed   bool
	block    []byte // what is decoded and not read
	scratch  []byte
}

func (s *snappyReader) Read(p []byte) (int, error) {
	for len(s.block) == 0 {
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.block)
	s.block = s.block[n:]
	return n, nil
}

func (s *snappyReader) next() error {
	if !s.begun {
		s.begun = true
		if s.framed = bytes.HasPrefix(s.src, xerialMagic); s.framed {
			if len(s.src) < xerialHeaderBytes {
				return io.ErrUnexpectedEOF
			}
			s.src = s.src[xerialHeaderBytes:]
		}
	}
	if len(s.src) == 0 {
		return io.EOF
	}
	raw := s.src
	if s.framed {
		if len(s.src) < 4 {
			return io.ErrUnexpectedEOF
		}
		n := int64(binary.BigEndian.Uint32(s.src))
		if n > int64(len(s.src)-4) {
			return io.ErrUnexpectedEOF
		}
		raw = s.src[4 : 4+n]
	}
	s.src = s.src[len(raw):]
	if s.framed {
		s.src = s.src[4:]
	}
	return s.decode(raw)
}

func (s *snappyReader) decode(raw []byte) error {
	n, err := snappy.DecodedLen(raw)
	if err != nil {
		return err
	}
	if int64(n) > s.maxBytes {
		return fmt.Errorf("%w: snappy: a block of %d bytes, the limit is %d", ErrTooLarge, n, s.maxBytes)
	}
	if n > snappyMaxRatio*len(raw) {
		return errors.New("block claims more than it can hold")
	}
	if s.block, err = snappy.Decode(s.scratch, raw); err == nil && cap(s.block) > cap(s.scratch) {
		s.scratch = s.block[:cap(s.block)]
	}
	return err
}

// compress is the other way, for Encode.
func compress(c Compression, b []byte) ([]byte, error) {
	var out bytes.Buffer
	var w io.WriteCloser
	switch c {
	case None:
		return b, nil
	case Gzip:
		w = gzip.NewWriter(&out)
	case Snappy:
		return snappy.Encode(nil, b), nil
	case LZ4:
		w = lz4.NewWriter(&out)
	case Zstd:
		e, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		w = e
	default:
		return nil, fmt.Errorf("%w: unknown compression %d", ErrInvalid, c)
	}
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	err := w.Close()
	return out.Bytes(), err
}
