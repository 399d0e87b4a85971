package broker

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// idRig is a broker with a topic that remembers ids for an hour, and a clock that stands
// but for what is added to it.
type idRig struct {
	*queueRig
	cfg Config
	now atomic.Int64
}

func withIDs(t *testing.T, level meta.Level) *idRig {
	r := &idRig{}
	began := time.Now()
	r.cfg = Config{
		ReserveBytes: 1, Level: func() meta.Level { return level },
		Clock:   func() time.Time { return began.Add(time.Duration(r.now.Load())) },
		Elapsed: func() time.Duration { return time.Duration(r.now.Load()) },
	}
	topic := testTopic(func(c *meta.TopicConfig) { c.DedupeWindow = time.Hour })
	r.queueRig = withQueue(startWith(t, vfs.NewMem(), "/d", topic, r.cfg), nil)
	return r
}

func (r *idRig) advance(d time.Duration) { r.now.Add(int64(d)) }

// kill has the broker go on from what was on the disk.
func (r *idRig) kill() {
	killed := r.fs.(*vfs.Mem).CrashCopy(1, vfs.CrashKeep)
	r.stop()
	r.queueRig = &queueRig{startWith(r.t, killed, r.dir, r.topic, r.cfg), r.spec}
	r.tell()
}

func (r *idRig) isRepeat(id string) bool {
	r.t.Helper()
	return r.sendAll([]queue.Outgoing{{Value: []byte("of " + id), KeyNull: true, ID: id}})[0].Duplicate
}

// isRepeatOfKafka has it produced by a Kafka client, which is not told: nothing is stored.
func (r *idRig) isRepeatOfKafka(id string) bool {
	r.t.Helper()
	before, err := r.partition().Bounds()
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := record.Encode(record.BatchOptions{}, []record.Record{{
		Timestamp: 1000, Value: []byte("of " + id), Headers: []record.RecordHeader{{Key: queue.HeaderMessageID, Value: []byte(id)}},
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	if got := r.produce(b); got.Err != nil {
		r.t.Fatal(got.Err)
	}
	after, err := r.partition().Bounds()
	if err != nil {
		r.t.Fatal(err)
	}
	return before.HighWatermark == after.HighWatermark
}

// stateVersion is that of the queues' state as it is written.
func (r *idRig) stateVersion() byte {
	m := r.partition().machine
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.queues.Append(nil)[0]
}

func TestARepeatIsKnownForTheWindowFromWhenTheGroupIsDone(t *testing.T) {
	for name, isRepeat := range map[string]func(*idRig, string) bool{"queue": (*idRig).isRepeat, "kafka": (*idRig).isRepeatOfKafka} {
		t.Run(name, func(t *testing.T) {
			r := withIDs(t, meta.LevelIDWindows)
			defer func() { r.stop() }()
			if isRepeat(r, "a") {
				t.Fatal("known at once")
			}
			r.advance(2 * time.Hour)
			r.kill()
			if !isRepeat(r, "a") {
				t.Fatal("forgotten, and the group is not done with it")
			}
			r.ack(r.receive("x", 1, 10*time.Second)...)
			r.advance(30 * time.Minute)
			r.sendAll([]queue.Outgoing{{Value: []byte("b"), KeyNull: true, ID: "b"}}) // has the group's floor noted
			for i, checkpoint := range []bool{false, true} {
				if checkpoint {
					if err := r.host.Checkpoint(); err != nil {
						t.Fatal(err)
					}
				}
				r.kill()
				r.advance(14 * time.Minute)
				if !isRepeat(r, "a") {
					t.Fatalf("forgotten %d min after the group was done", 44+14*i)
				}
			}
			r.advance(4 * time.Minute) // a 32nd of an hour is less than two
			if isRepeat(r, "a") {
				t.Fatal("remembered 62 min after the group was done")
			}
		})
	}
}

// While a node may be of an earlier program nothing is written that it does not know, and
// ids are judged as it does.
func TestBelowTheLevelAnIDsWindowCountsFromTheSendingAlone(t *testing.T) {
	r := withIDs(t, meta.LevelIDWindows-1)
	defer func() { r.stop() }()
	r.isRepeat("a")
	if v := r.stateVersion(); v != 2 {
		t.Fatalf("the state is written in version %d", v)
	}
	r.advance(2 * time.Hour)
	if !r.isRepeat("a") {
		t.Fatal("forgotten, and the group is not done with it")
	}
	r.ack(r.receive("x", 1, 10*time.Second)...)
	if r.isRepeat("a") {
		t.Fatal("remembered when the window had passed and the group was done")
	}
	r.cfg.Level = func() meta.Level { return meta.KnownLevel }
	r.kill()
	if r.isRepeat("b") || r.stateVersion() != 3 {
		t.Fatalf("at the level the state is written in version %d", r.stateVersion())
	}
}
