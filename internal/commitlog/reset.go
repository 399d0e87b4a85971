package commitlog

import (
	"fmt"

	"github.com/tube-mq/tube/internal/record"
)

// Reset empties the log and has it begin at an offset, which is not before its
// end: everything below was deleted on the replica that this one copies. Files go
// with the next Sweep; a crash before the owner has made its new state durable
// leaves the log as Cut describes it.
func (l *Log) Reset(to record.Offset) error {
	l.io.Lock()
	defer l.io.Unlock()
	l.mu.Lock()
	if l.failed != nil || !l.ready || to < l.end {
		defer l.mu.Unlock()
		if l.failed != nil {
			return l.failed
		}
		return fmt.Errorf("commit log %s: cannot begin at %d, it ends at %d", l.dir, to, l.end)
	}
	for _, p := range l.tail.drop(len(l.tail.pieces)) {
		p.release()
	}
	for _, s := range l.segments {
		s.dropped = true
	}
	l.dropped = append(l.dropped, l.segments...)
	l.segments = nil
	l.start, l.end = to, to
	s := l.addSegment()
	l.mu.Unlock()
	// Says to the next Open that this is no folder that lost its files.
	if err := l.makeFile(s); err != nil {
		return l.fail("begin anew", err)
	}
	return nil
}
