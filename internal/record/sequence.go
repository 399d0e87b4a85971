package record

import "math"

// AddSequence is the sequence number n records after seq. Sequences run from 0
// to 2^31−1 and then begin again at 0. n must not be negative.
func AddSequence(seq, n int32) int32 {
	return int32((int64(seq) + int64(n)) & math.MaxInt32)
}

// SequenceBefore reports whether a was given before b, seen from a window of
// half the number space: with wrapping there is no other order.
func SequenceBefore(a, b int32) bool {
	d := (int64(b) - int64(a)) & math.MaxInt32
	return d != 0 && d <= math.MaxInt32/2
}

// LastSequence is the sequence of the batch's last record; −1 without one.
func (h Header) LastSequence() int32 {
	if h.BaseSequence < 0 {
		return -1
	}
	return AddSequence(h.BaseSequence, h.LastOffsetDelta)
}
