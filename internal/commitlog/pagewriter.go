package commitlog

import "github.com/tube-mq/tube/internal/vfs"

// inPlaceBytes is from how many bytes on whole pages of memory that lie as in the
// file are written from where they are.
const inPlaceBytes = 2 * pageBytes

// pageWriter writes bytes one behind the other in whole pages, chunkBytes to three times
// that at a time. Those that lie in memory as they will in the file, as many bytes behind
// the beginning of a page, are written from where they are; others, and what of those
// shares a page with others, are copied into an aligned chunk.
type pageWriter struct {
	f     vfs.File
	off   int64 // where the first part goes; a multiple of pageBytes
	parts [][]byte
	// sizeBytes of parts, in whole pages.
	sizeBytes int
	chunk     []byte // aligned
	// begun to n is what of the chunk is filled and not in parts yet.
	begun, n int
}

// add puts b behind what was added; it must stay as it is until finish.
func (w *pageWriter) add(b []byte) error {
	if vfs.Misalignment(b) == (w.n-w.begun)%pageBytes {
		if from, to := vfs.WholePages(b); to-from >= inPlaceBytes {
			if err := w.copy(b[:from]); err != nil {
				return err
			}
			if err := w.place(b[from:to]); err != nil {
				return err
			}
			b = b[to:]
		}
	}
	return w.copy(b)
}

func (w *pageWriter) copy(b []byte) error {
	for len(b) > 0 {
		n := copy(w.chunk[w.n:], b)
		w.n += n
		b = b[n:]
		if w.n == len(w.chunk) {
			if err := w.write(); err != nil {
				return err
			}
		}
	}
	return nil
}

// place adds whole pages, at a page's beginning, as they are.
func (w *pageWriter) place(pages []byte) error {
	w.endPart()
	for len(pages) > 0 {
		n := min(len(pages), chunkBytes)
		w.parts = append(w.parts, pages[:n])
		pages = pages[n:]
		if w.sizeBytes += n; w.sizeBytes >= chunkBytes {
			if err := w.write(); err != nil {
				return err
			}
		}
	}
	return nil
}

// endPart makes a part of what was copied since the last one, which are whole pages.
func (w *pageWriter) endPart() {
	if w.begun < w.n {
		w.parts = append(w.parts, w.chunk[w.begun:w.n])
		w.sizeBytes += w.n - w.begun
		w.begun = w.n
	}
}

// write writes all there is, which are whole pages.
func (w *pageWriter) write() (err error) {
	w.endPart()
	switch len(w.parts) {
	case 0:
		return nil
	case 1:
		_, err = w.f.WriteAt(w.parts[0], w.off)
	default:
		err = w.f.WriteVec(w.parts, w.off)
	}
	w.off += int64(w.sizeBytes)
	clear(w.parts)
	w.parts, w.sizeBytes, w.begun, w.n = w.parts[:0], 0, 0, 0
	return err
}

// finish pads and writes what is left, and returns the bytes of the last page
// that are not padding.
func (w *pageWriter) finish() ([]byte, error) {
	whole, end := w.n&^(pageBytes-1), (w.n+pageBytes-1)&^(pageBytes-1)
	last := append([]byte(nil), w.chunk[whole:w.n]...)
	clear(w.chunk[w.n:end])
	w.n = end
	return last, w.write()
}
