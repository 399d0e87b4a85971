package broker

import (
	"errors"
	"fmt"
	"time"

	"github.com/tube-mq/tube/internal/commitlog"
	"github.com/tube-mq/tube/internal/record"
)

// commitLog is what a partition needs of its log, on disk or in memory.
type commitLog interface {
	logWriter
	logReader
}

type logWriter interface {
	Append(batch []byte, h record.Header, buf *record.Buffer) error
	Flush() error
	Sync() error
	TailBytes() int64
	SetLogStart(record.Offset) error
	Sweep() error
	Close() error
}

type logReader interface {
	Read(offset record.Offset, maxBytes int, minOne bool, limit record.Offset) (commitlog.Chunk, error)
	ReadOn(offset record.Offset, maxBytes int, limit record.Offset) ([]byte, error)
	OffsetForTime(timeMillis int64) (record.Offset, int64, record.Epoch, error)
	OffsetForMaxTime() (record.Offset, int64, record.Epoch, error)
	RetentionCandidate(now time.Time, retention time.Duration, retentionBytes int64) record.Offset
	SizeBytes() int64
	Bounds() (start, end record.Offset)
}

// readError is what a reader is told when the log cannot be read; the details
// are for the operator.
func (p *Partition) readError(err error) error {
	if errors.Is(err, commitlog.ErrOutOfRange) {
		return fmt.Errorf("%w: %w", ErrOutOfRange, err) // the log start moved meanwhile
	}
	p.logger.Error("cannot read", "partition", p.id.String(), "err", err)
	p.giveUp(err)
	return fmt.Errorf("%w: %w", ErrStorage, err)
}
