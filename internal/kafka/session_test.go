package kafka

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/broker"
)

// begin opens a session over all partitions at offset 0.
func (f *fetchTest) begin(version int16) int32 {
	f.t.Helper()
	req := fetchOf(f.topic, make([]int64, len(f.topic.Partitions))...)
	req.SessionEpoch = 0
	r := f.ask(version, req)
	if r.SessionID == 0 || r.ErrorCode != 0 {
		f.t.Fatalf("no session: %+v", r)
	}
	return r.SessionID
}

// next asks for what is new in a session.
func (f *fetchTest) next(version int16, id, epoch int32, changes ...*kmsg.FetchRequest) *kmsg.FetchResponse {
	f.t.Helper()
	req := fetchOf(f.topic)
	if len(changes) > 0 {
		req = changes[0]
	}
	req.SessionID, req.SessionEpoch = id, epoch
	return f.ask(version, req)
}

func TestSessionTellsOnlyWhatIsNew(t *testing.T) {
	for v := int16(7); v <= 18; v++ {
		f := newFetchTest(t, 3, Config{})
		id := f.begin(v)
		if r := f.next(v, id, 1); len(r.Topics) != 0 {
			t.Fatalf("v%d: nothing is new: %+v", v, r)
		}
		f.p(1).add(t, 5)
		r := f.next(v, id, 2)
		if got := sizes(r); len(got) != 1 || got[1] == 0 || r.SessionID != id {
			t.Fatalf("v%d: %+v", v, r)
		}
		// The same again, as the client did not move on.
		if got := sizes(f.next(v, id, 3)); len(got) != 1 || got[1] == 0 {
			t.Fatalf("v%d: not read yet: %v", v, got)
		}
		if got := sizes(f.next(v, id, 4, fetchOf(f.topic, 0, 5))); len(got) != 1 && got[1] != 0 {
			t.Fatalf("v%d: read: %v", v, got)
		}
		if r := f.next(v, id, 5); len(r.Topics) != 0 {
			t.Fatalf("v%d: nothing is new: %+v", v, r)
		}
	}
}

// What a session of many quiet partitions costs must not grow with them.
func TestSessionLooksOnlyAtWhatCalled(t *testing.T) {
	f := newFetchTest(t, 500, Config{})
	id := f.begin(13)
	count := func() (n int) {
		for p := range f.topic.Partitions {
			n += f.p(p).reads
		}
		return n
	}
	f.next(13, id, 1)
	before := count()
	f.p(7).add(t, 1)
	if got := sizes(f.next(13, id, 2)); len(got) != 1 || got[7] == 0 {
		t.Fatalf("%v", got)
	}
	if reads := count() - before; reads > 2 {
		t.Fatalf("%d reads for one partition's news", reads)
	}
}

func TestSessionWakesItsFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFetchTest(t, 3, Config{})
		id := f.begin(13)
		req := fetchOf(f.topic)
		req.MaxWaitMillis = 30_000
		began := time.Now()
		go func() { time.Sleep(time.Second); f.p(2).add(t, 1) }()
		if got := sizes(f.next(13, id, 1, req)); len(got) != 1 || got[2] == 0 || time.Since(began) != time.Second {
			t.Errorf("after %v: %v", time.Since(began), got)
		}
	})
}

func TestSessionErrors(t *testing.T) {
	f := newFetchTest(t, 1, Config{})
	id := f.begin(13)
	for _, c := range []struct {
		version   int16
		id, epoch int32
		want      *kerr.Error
	}{
		{13, id + 1, 1, kerr.FetchSessionIDNotFound},
		{13, id, 2, kerr.InvalidFetchSessionEpoch},
		{12, id, 1, kerr.FetchSessionTopicIDError},
	} {
		if r := f.next(c.version, c.id, c.epoch); r.ErrorCode != c.want.Code {
			t.Errorf("%v, want %v", kerr.TypedErrorForCode(r.ErrorCode), c.want)
		}
	}
	if r := f.next(13, id, 1); r.ErrorCode != 0 {
		t.Errorf("the session was harmed: %v", kerr.TypedErrorForCode(r.ErrorCode))
	}
	// Epoch −1 with an id closes it.
	f.next(13, id, -1, fetchOf(f.topic, 0))
	if r := f.next(13, id, 2); r.ErrorCode != kerr.FetchSessionIDNotFound.Code {
		t.Errorf("closed: %v", kerr.TypedErrorForCode(r.ErrorCode))
	}
	other := newClient(f.d)
	f.c, other = other, f.c
	id = f.begin(13)
	f.c = other
	if r := f.next(13, id, 1); r.ErrorCode != kerr.FetchSessionIDNotFound.Code {
		t.Errorf("another connection's session: %v", kerr.TypedErrorForCode(r.ErrorCode))
	}
}

func TestSessionForgetsAndTakesOn(t *testing.T) {
	f := newFetchTest(t, 2, Config{})
	req := fetchOf(f.topic, 0)
	req.SessionEpoch = 0
	id := f.ask(13, req).SessionID
	f.p(1).add(t, 1)
	if got := sizes(f.next(13, id, 1)); got[1] != 0 {
		t.Fatalf("not asked for: %v", got)
	}
	add := fetchOf(f.topic, 0, 0)
	add.Topics[0].Partitions = add.Topics[0].Partitions[1:]
	if got := sizes(f.next(13, id, 2, add)); got[1] == 0 {
		t.Fatalf("taken on: %v", got)
	}
	forget := fetchOf(f.topic)
	ft := kmsg.NewFetchRequestForgottenTopic()
	ft.Topic, ft.TopicID, ft.Partitions = f.topic.Name, f.topic.ID, []int32{1}
	forget.ForgottenTopics = append(forget.ForgottenTopics, ft)
	if got := sizes(f.next(13, id, 3, forget)); got[1] != 0 {
		t.Fatalf("forgotten: %v", got)
	}
	if f.p(1).watched() != 0 || f.d.sessionPartitions.Load() != 1 {
		t.Fatalf("%d watchers, %d partitions in sessions", f.p(1).watched(), f.d.sessionPartitions.Load())
	}
}

func TestSessionRepeatsErrors(t *testing.T) {
	f := newFetchTest(t, 1, Config{})
	id := f.begin(13)
	f.p(0).set(func(p *fakePartition) { p.err = broker.ErrNotLeader })
	for e := int32(1); e < 3; e++ {
		if r := f.next(13, id, e); len(r.Topics) != 1 || r.Topics[0].Partitions[0].ErrorCode != kerr.NotLeaderForPartition.Code {
			t.Fatalf("%+v", r)
		}
	}
	f.p(0).set(func(p *fakePartition) { p.err = nil })
	if r := f.next(13, id, 3); len(r.Topics) != 1 || r.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("well again, and not said: %+v", r)
	}
	if r := f.next(13, id, 4); len(r.Topics) != 0 {
		t.Fatalf("%+v", r)
	}
}

// A limit must not starve the partitions at the end.
func TestSessionIsFair(t *testing.T) {
	f := newFetchTest(t, 4, Config{})
	for p := range 4 {
		for range 50 {
			f.p(p).add(t, 1)
		}
	}
	id := f.begin(13)
	served := map[int32]int{}
	for e := int32(1); e <= 8; e++ {
		req := fetchOf(f.topic)
		req.MaxBytes = 1
		for p, n := range sizes(f.next(13, id, e, req)) {
			if n > 0 {
				served[p]++
			}
		}
	}
	for p := range int32(4) {
		if served[p] != 2 {
			t.Fatalf("served %v, want each twice", served)
		}
	}
}

func TestSessionsAreBounded(t *testing.T) {
	f := newFetchTest(t, 2, Config{MaxSessionPartitions: 5})
	first := f.begin(13)
	f.begin(13)
	req := fetchOf(f.topic, 0, 0)
	req.SessionEpoch = 0
	if r := f.ask(13, req); r.SessionID != 0 || r.ErrorCode != 0 || len(r.Topics[0].Partitions) != 2 {
		t.Fatalf("no room, but %+v", r)
	}
	if r := f.next(13, first, 1); r.ErrorCode != 0 {
		t.Fatalf("%+v", r)
	}
	f.c.sessions.close()
	if n := f.d.sessionPartitions.Load(); n != 0 {
		t.Fatalf("%d partitions left", n)
	}
	if f.p(0).watched() != 0 {
		t.Fatal("still watched")
	}
	f.d.cfg.MaxSessionPartitions = 1000
	ids := []int32{}
	for range maxSessions + 1 {
		ids = append(ids, f.begin(13))
	}
	if r := f.next(13, ids[0], 1); r.ErrorCode != kerr.FetchSessionIDNotFound.Code {
		t.Fatalf("the oldest is still there: %+v", r)
	}
	if r := f.next(13, ids[1], 1); r.ErrorCode != 0 {
		t.Fatalf("%+v", r)
	}
}

func TestSessionsEndWithTheirConnection(t *testing.T) {
	inDoor(t, Config{}, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
		topic, c := cl.addTopic("t", 2), dial()
		req := fetchOf(topic, 0, 0)
		req.SessionEpoch = 0
		if r := c.ask(13, req).(*kmsg.FetchResponse); r.SessionID == 0 || d.sessionPartitions.Load() != 2 {
			t.Fatalf("%+v", r)
		}
		c.nc.Close()
		synctest.Wait()
		if n, w := d.sessionPartitions.Load(), cl.part(topic, 0).watched(); n != 0 || w != 0 {
			t.Fatalf("%d partitions in sessions, %d watchers", n, w)
		}
	})
}

func TestAPartitionStandsInLineOnce(t *testing.T) {
	s := newInterestSet()
	a, b := &interest{set: s}, &interest{set: s}
	a.Wake()
	a.Wake()
	b.Wake()
	s.putBack([]*interest{b, a}, []*interest{a, b})
	if got := s.take(); len(got) != 2 {
		t.Fatalf("%d in line", len(got))
	}
	s.putBack([]*interest{b, b}, []*interest{a, a, b})
	if got := s.take(); len(got) != 2 || got[0] != b || got[1] != a {
		t.Fatalf("%d in line", len(got))
	}
}
