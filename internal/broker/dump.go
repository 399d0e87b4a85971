package broker

import "github.com/tube-mq/tube/internal/record"

// SavedBounds reads from a partition's saved state where its log starts and ends.
func SavedBounds(state []byte) (start, end record.Offset, err error) {
	r := &reader{b: state}
	if v := r.u8(); r.err == nil && (v < 1 || v > stateVersion) {
		r.fail("version %d, this program knows up to %d", v, stateVersion)
	}
	start, end = record.Offset(r.u64()), record.Offset(r.u64())
	return start, end, r.err
}
