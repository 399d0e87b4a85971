package broker

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// sent is a batch of count records of producer 7 from a sequence.
func sent(epoch int16, sequence, count int32) record.Header {
	return record.Header{ProducerID: 7, ProducerEpoch: epoch, BaseSequence: sequence, LastOffsetDelta: count - 1, Count: count}
}

func TestProducerSequences(t *testing.T) {
	type step struct {
		batch  record.Header
		repeat record.Offset // −1: new
		err    error
	}
	const fresh = record.Offset(-1)
	for name, steps := range map[string][]step{
		"in order": {
			{sent(0, 0, 3), fresh, nil}, {sent(0, 3, 1), fresh, nil}, {sent(0, 4, 2), fresh, nil},
		},
		"a repeat gets its first offset": {
			{sent(0, 0, 3), fresh, nil}, {sent(0, 3, 2), fresh, nil}, {sent(0, 0, 3), 0, nil}, {sent(0, 3, 2), 3, nil}, {sent(0, 5, 1), fresh, nil},
		},
		"a gap is refused": {
			{sent(0, 0, 3), fresh, nil}, {sent(0, 4, 1), fresh, ErrOutOfOrderSequence}, {sent(0, 3, 1), fresh, nil},
		},
		"a repeat that was cut differently is no repeat": {
			{sent(0, 0, 3), fresh, nil}, {sent(0, 0, 2), fresh, ErrOutOfOrderSequence},
		},
		"an old repeat is known as one": {
			{sent(0, 0, 1), fresh, nil}, {sent(0, 1, 1), fresh, nil}, {sent(0, 2, 1), fresh, nil}, {sent(0, 3, 1), fresh, nil},
			{sent(0, 4, 1), fresh, nil}, {sent(0, 5, 1), fresh, nil}, {sent(0, 0, 1), fresh, ErrDuplicateSequence},
		},
		"an older epoch is fenced, a newer one begins at 0": {
			{sent(3, 0, 1), fresh, nil}, {sent(2, 1, 1), fresh, ErrProducerFenced}, {sent(4, 1, 1), fresh, ErrOutOfOrderSequence}, {sent(4, 0, 1), fresh, nil},
			{sent(3, 1, 1), fresh, ErrProducerFenced},
		},
		"an unknown producer may begin anywhere": {
			{sent(0, 900, 1), fresh, nil}, {sent(0, 901, 1), fresh, nil},
		},
		"sequences wrap": {
			{sent(0, math.MaxInt32-1, 3), fresh, nil}, {sent(0, 1, 1), fresh, nil}, {sent(0, math.MaxInt32-1, 3), 0, nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ps := newProducers(10, 1000)
			end := record.Offset(0)
			for i, s := range steps {
				repeat, err := ps.check(s.batch)
				if !errors.Is(err, s.err) {
					t.Fatalf("step %d: error %v, want %v", i, err, s.err)
				}
				switch {
				case err != nil:
				case s.repeat == fresh && repeat == nil:
					ps.note(s.batch, end, 0, -1)
					end += record.Offset(s.batch.Count)
				case repeat == nil || repeat.base != s.repeat:
					t.Fatalf("step %d: repeat %v, want %d", i, repeat, s.repeat)
				}
				ps = saveAndRestore(t, ps)
			}
		})
	}
}

// saveAndRestore makes every step also a restart.
func saveAndRestore(t *testing.T, ps *producers) *producers {
	t.Helper()
	again := newProducers(ps.max, ps.expiryMillis)
	r := &reader{b: ps.append(nil)}
	again.restore(r)
	if r.err != nil || len(r.b) != 0 {
		t.Fatalf("restore: %v, %d bytes left", r.err, len(r.b))
	}
	return again
}

func TestProducersAreForgottenByAgeAndCount(t *testing.T) {
	ps := newProducers(3, 1000)
	write := func(id record.ProducerID, nowMillis int64) {
		h := sent(0, 0, 1)
		h.ProducerID = id
		ps.note(h, 0, nowMillis, -1)
	}
	write(1, 0)
	write(2, 500)
	write(3, 1001)
	if _, ok := ps.byID[1]; ok {
		t.Error("producer 1 was quiet for longer than the expiry and is still known")
	}
	if len(ps.byID) != 2 {
		t.Fatalf("%d producers known, want 2", len(ps.byID))
	}
	write(4, 1002)
	write(5, 1003)
	if _, ok := ps.byID[2]; ok || len(ps.byID) != 3 {
		t.Errorf("with one too many, the longest quiet one must go: %d known", len(ps.byID))
	}
}

func saved(t *testing.T, m *machine) []byte {
	t.Helper()
	b, err := m.Save()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func FuzzPartitionState(f *testing.F) {
	ps := newProducers(10, 1000)
	ps.note(sent(0, 0, 3), 0, 5, -1)
	es := epochs{{1, 0}, {3, 10}}
	old := ps.append(es.append([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0}))
	f.Add(slices.Clone(old)) // of version 1, without queues
	old[0] = stateVersion
	f.Add(queue.NewState().Append(old))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &machine{queues: queue.NewState(), producers: newProducers(10, 1000)}
		if err := m.restore(b); err != nil {
			return
		}
		again := &machine{queues: queue.NewState(), producers: newProducers(10, 1000)}
		if err := again.restore(saved(t, m)); err != nil {
			t.Fatalf("a state that was read does not read back: %v", err)
		}
	})
}

// A copy comes to a machine that has lived: of what it had nothing stays, whether
// the copy has it too or not.
func TestRestoreReplacesWhatWasThere(t *testing.T) {
	source := &machine{queues: queue.NewState(), producers: newProducers(10, 1000), end: 9}
	source.epochs.note(1, 0)
	source.epochs.note(2, 5)
	source.producers.note(sent(0, 0, 3), 0, 5, -1)
	m := &machine{queues: queue.NewState(), producers: newProducers(10, 1000), end: 3}
	m.epochs.note(2, 0)
	old := sent(0, 0, 3)
	m.producers.note(old, 0, 4, -1)
	old.ProducerID = 77
	m.producers.note(old, 0, 4, -1)
	if err := m.restore(saved(t, source)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(saved(t, m), saved(t, source)) {
		t.Errorf("a restored state is not the one that was saved")
	}
	if m.producers.order.Len() != len(m.producers.byID) {
		t.Errorf("%d producers in order, %d known", m.producers.order.Len(), len(m.producers.byID))
	}
}

func TestEndOfEpoch(t *testing.T) {
	var es epochs
	es.note(2, 0)
	es.note(2, 10)
	es.note(5, 40)
	const current, end = 7, 100
	for _, c := range []struct {
		ask, epoch record.Epoch
		end        record.Offset
	}{{1, -1, -1}, {2, 2, 40}, {3, 2, 40}, {4, 2, 40}, {5, 5, 100}, {6, 5, 100}, {7, 7, 100}} {
		if e, o := es.endOf(c.ask, current, end); e != c.epoch || o != c.end {
			t.Errorf("end of epoch %d: epoch %d at %d, want %d at %d", c.ask, e, o, c.epoch, c.end)
		}
	}
}
