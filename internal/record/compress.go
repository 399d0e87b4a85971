package record

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// decompress undoes a batch's compression. It stops as soon as the limits are
// passed: nothing is allocated because a header says so.
func decompress(b []byte, codec int16, lim Limits) ([]byte, error) {
	maxBytes := min(lim.maxBytes(), max(1<<20, len(b)*lim.maxRatio()))
	switch codec {
	case 0:
		return b, nil
	case 1:
		r, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("%w: gzip: %w", ErrCorrupt, err)
		}
		return readCapped(r, maxBytes, "gzip")
	case 2:
		return unsnappy(b, maxBytes)
	case 3:
		return readCapped(lz4.NewReader(bytes.NewReader(b)), maxBytes, "lz4")
	case 4:
		return unzstd(b, maxBytes)
	}
	return nil, fmt.Errorf("%w: unknown compression %d", ErrInvalid, codec)
}

func readCapped(r io.Reader, maxBytes int, codec string) ([]byte, error) {
	var out bytes.Buffer
	n, err := io.Copy(&out, io.LimitReader(r, int64(maxBytes)+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, codec, err)
	}
	if n > int64(maxBytes) {
		return nil, fmt.Errorf("%w: more than %d bytes decompressed", ErrTooLarge, maxBytes)
	}
	return out.Bytes(), nil
}

// xerialMagic begins the framing that Java's snappy clients use: sixteen bytes,
// then blocks each with a u32 length.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeaderBytes = 16

func unsnappy(b []byte, maxBytes int) ([]byte, error) {
	if !bytes.HasPrefix(b, xerialMagic) {
		return unsnappyBlock(nil, b, maxBytes)
	}
	if len(b) < xerialHeaderBytes {
		return nil, fmt.Errorf("%w: snappy: %d bytes of framing", ErrCorrupt, len(b))
	}
	var out []byte
	for b = b[xerialHeaderBytes:]; len(b) > 0; {
		if len(b) < 4 {
			return nil, fmt.Errorf("%w: snappy: %d bytes behind the last block", ErrCorrupt, len(b))
		}
		n := int64(binary.BigEndian.Uint32(b))
		if n > int64(len(b)-4) {
			return nil, fmt.Errorf("%w: snappy: block of %d bytes, %d left", ErrCorrupt, n, len(b)-4)
		}
		var err error
		if out, err = unsnappyBlock(out, b[4:4+n], maxBytes); err != nil {
			return nil, err
		}
		b = b[4+n:]
	}
	return out, nil
}

func unsnappyBlock(out, b []byte, maxBytes int) ([]byte, error) {
	n, err := s2.DecodedLen(b)
	if err != nil {
		return nil, fmt.Errorf("%w: snappy: %w", ErrCorrupt, err)
	}
	if n > maxBytes-len(out) {
		return nil, fmt.Errorf("%w: more than %d bytes decompressed", ErrTooLarge, maxBytes)
	}
	block, err := s2.Decode(nil, b)
	if err != nil {
		return nil, fmt.Errorf("%w: snappy: %w", ErrCorrupt, err)
	}
	return append(out, block...), nil
}

// zstdDecoders are reused: making one costs more than most batches.
var zstdDecoders sync.Pool

func unzstd(b []byte, maxBytes int) ([]byte, error) {
	d, _ := zstdDecoders.Get().(*zstd.Decoder)
	if d == nil {
		var err error
		if d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(32<<20)); err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
	}
	defer zstdDecoders.Put(d)
	if err := d.Reset(bytes.NewReader(b)); err != nil {
		return nil, fmt.Errorf("%w: zstd: %w", ErrCorrupt, err)
	}
	out, err := readCapped(d, maxBytes, "zstd")
	if err != nil && !errors.Is(err, ErrTooLarge) {
		return nil, err
	}
	return out, err
}
