package commitlog

import (
	"errors"
	"fmt"
)

// ErrOutOfRange: the offset lies below what the log still has.
var ErrOutOfRange = errors.New("offset outside the log")

// ErrFull: the disk is full. What could not be written stays in memory and
// readable; Flush may be called again.
var ErrFull = errors.New("disk is full")

// CorruptError names the place of data that is not as it was written, or that
// cannot be read. It is never served and never taken for the log's end.
type CorruptError struct {
	File   string // its path; the folder's when a whole file is missing
	Offset int64  // in bytes, within the file
	Cause  error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d: %v", e.File, e.Offset, e.Cause)
}

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Cause }
