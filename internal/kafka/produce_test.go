package kafka

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// inDoor runs a test against a door that listens on pipes.
func inDoor(t *testing.T, cfg Config, f func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient)) {
	synctest.Test(t, func(t *testing.T) {
		cl := newFakeCluster()
		d := newTestDoor(t, cl, cfg)
		l := newPipeListener()
		if err := d.Start(l); err != nil {
			t.Fatal(err)
		}
		var open []*rawClient
		f(t, d, cl, func() *rawClient {
			c := &rawClient{t: t, nc: l.dial()}
			open = append(open, c)
			return c
		})
		for _, c := range open {
			c.nc.Close()
		}
		if err := d.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if got := d.budgets; !got.requests.TryAcquire(d.cfg.RequestMemoryBytes) || !got.parked.TryAcquire(d.cfg.RequestMemoryBytes) || got.fetched.Load() != d.cfg.FetchMemoryBytes {
			t.Error("memory was not given back")
		}
	})
}

func firstPart(r kmsg.Response) kmsg.ProduceResponseTopicPartition {
	return r.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

func TestProduceStoresTheBatchAsItCame(t *testing.T) {
	record.PoisonReleased(true)
	defer record.PoisonReleased(false)
	for v := int16(minProduceVersion); v <= 13; v++ {
		inDoor(t, Config{}, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
			topic, c := cl.addTopic("t", 2), dial()
			b := batchOf(t, 3, "value")
			for n := range 2 {
				r := c.ask(v, produceReq("t", topic.ID, 1, b, b)).(*kmsg.ProduceResponse)
				for p, rp := range r.Topics[0].Partitions {
					if rp.ErrorCode != 0 || rp.BaseOffset != int64(3*n) || rp.Partition != int32(p) {
						t.Fatalf("v%d: %+v", v, rp)
					}
				}
				if v < 13 && r.Topics[0].Topic != "t" || v >= 13 && r.Topics[0].TopicID != [16]byte(topic.ID) {
					t.Fatalf("v%d: topic %+v", v, r.Topics[0])
				}
			}
			if got := cl.part(topic, 1).batches[0]; !bytes.Equal(got[16:], b[16:]) {
				t.Fatalf("v%d: stored %x", v, got)
			}
		})
	}
}

func TestProduceErrorsAreEachPartitions(t *testing.T) {
	for err, want := range map[error]*kerr.Error{
		broker.ErrNotLeader: kerr.NotLeaderForPartition, broker.ErrDiskFull: kerr.KafkaStorageError, broker.ErrUnknownOutcome: kerr.RequestTimedOut,
		broker.ErrOutOfOrderSequence: kerr.OutOfOrderSequenceNumber, broker.ErrTimestamp: kerr.InvalidTimestamp, errors.New("?"): kerr.UnknownServerError,
	} {
		inDoor(t, Config{}, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
			topic, c := cl.addTopic("t", 2), dial()
			cl.change(func(im *meta.Image) { im.Nodes[2] = &meta.Node{ID: 2, Kafka: "other:9", State: meta.NodeUp} })
			cl.part(topic, 0).set(func(p *fakePartition) { p.err, p.leader = err, 2 })
			b := batchOf(t, 1, "value")
			r := c.ask(12, produceReq("t", topic.ID, -1, b, b, b)).(*kmsg.ProduceResponse)
			bad, good, none := r.Topics[0].Partitions[0], r.Topics[0].Partitions[1], r.Topics[0].Partitions[2]
			if bad.ErrorCode != want.Code || bad.ErrorMessage == nil || bad.BaseOffset != -1 {
				t.Fatalf("%v: %+v", err, bad)
			}
			if good.ErrorCode != 0 || none.ErrorCode != kerr.UnknownTopicOrPartition.Code {
				t.Fatalf("%+v, %+v", good, none)
			}
			hint := want == kerr.NotLeaderForPartition
			if (bad.CurrentLeader.LeaderID == 2) != hint || (len(r.Brokers) == 1 && r.Brokers[0].Host == "other") != hint {
				t.Fatalf("leader %+v of %+v", bad.CurrentLeader, r.Brokers)
			}
			if want == kerr.UnknownServerError && *bad.ErrorMessage == err.Error() {
				t.Fatal("the client was told what only the log should say")
			}
		})
	}
}

func TestProduceRefusesWhatIsNotOneBatch(t *testing.T) {
	inDoor(t, Config{}, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
		topic, c := cl.addTopic("t", 1), dial()
		b := batchOf(t, 1, "value")
		rotten := bytes.Clone(b)
		rotten[70] ^= 1
		for _, x := range []struct {
			name  string
			batch []byte
			want  *kerr.Error
		}{
			{"nothing", nil, kerr.InvalidRecord}, {"short", b[:20], kerr.InvalidRecord}, {"two", append(bytes.Clone(b), b...), kerr.InvalidRecord},
			{"rotten", rotten, kerr.CorruptMessage}, {"cut", b[:len(b)-1], kerr.CorruptMessage},
		} {
			if p := firstPart(c.ask(9, produceReq("t", topic.ID, 1, x.batch))); p.ErrorCode != x.want.Code {
				t.Errorf("%s: %v", x.name, kerr.TypedErrorForCode(p.ErrorCode))
			}
		}
		if p := firstPart(c.ask(9, produceReq("t", topic.ID, 2, b))); p.ErrorCode != kerr.InvalidRequiredAcks.Code {
			t.Errorf("acks=2: %v", kerr.TypedErrorForCode(p.ErrorCode))
		}
		for v := int16(0); v < minProduceVersion; v++ {
			if p := firstPart(c.ask(v, produceReq("t", topic.ID, 1, b))); p.ErrorCode != kerr.UnsupportedVersion.Code {
				t.Errorf("v%d: %v", v, kerr.TypedErrorForCode(p.ErrorCode))
			}
		}
		if n := len(cl.part(topic, 0).batches); n != 0 {
			t.Errorf("%d batches were stored", n)
		}
	})
}

func TestProduceWithoutAcksHasNoAnswer(t *testing.T) {
	inDoor(t, Config{}, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
		topic, c := cl.addTopic("t", 1), dial()
		b := batchOf(t, 1, "value")
		c.send(9, produceReq("t", topic.ID, 0, b))
		// The next answer is the next request's.
		if p := firstPart(c.ask(9, produceReq("t", topic.ID, 1, b))); p.BaseOffset != 1 {
			t.Fatalf("%+v", p)
		}
		cl.part(topic, 0).set(func(p *fakePartition) { p.err = broker.ErrNotLeader })
		began := time.Now()
		c.send(9, produceReq("t", topic.ID, 0, b))
		if !c.ended() || time.Since(began) != 0 {
			t.Fatal("a failed produce without acks left the connection open")
		}
	})
}

func TestProduceAnswersInRequestOrder(t *testing.T) {
	inDoor(t, Config{MaxInFlight: 3}, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
		slow, fast := cl.addTopic("slow", 1), cl.addTopic("fast", 1)
		cl.part(slow, 0).set(func(p *fakePartition) { p.hold = true })
		c := dial()
		b := batchOf(t, 1, "value")
		c.send(9, produceReq("slow", slow.ID, 1, b))
		c.send(9, produceReq("fast", fast.ID, 1, b))
		c.send(9, produceReq("fast", fast.ID, 1, b))
		sent := make(chan bool, 1)
		go func() {
			c.nc.Write(frameOf(9, 4, produceReq("fast", fast.ID, 1, b)))
			c.nc.Write(frameOf(3, 5, kmsg.NewPtrMetadataRequest()))
			sent <- true
		}()
		synctest.Wait()
		if n := len(cl.part(fast, 0).batches); n != 2 {
			t.Fatalf("%d batches begun beside the slow one, want 2: three may be in flight", n)
		}
		cl.part(slow, 0).letGo(1)
		for want := int32(1); want <= 5; want++ {
			if id, _, err := c.receive(); err != nil || id != want {
				t.Fatalf("answer %d, %v; want %d", id, err, want)
			}
		}
		<-sent
	})
}

// An answer in the middle waits for the one before it, and keeps back the next.
func TestProduceAnswersNotBeforeTheirTurn(t *testing.T) {
	inDoor(t, Config{}, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
		slow, fast := cl.addTopic("slow", 1), cl.addTopic("fast", 1)
		p := cl.part(slow, 0)
		p.set(func(p *fakePartition) { p.hold = true })
		c := dial()
		b := batchOf(t, 1, "value")
		for _, name := range []string{"slow", "slow", "fast"} {
			c.send(9, produceReq(name, fast.ID, 1, b))
		}
		synctest.Wait()
		for want := int32(1); want <= 3; want++ {
			if want < 3 {
				p.letGo(1)
			}
			id, body, err := c.receive()
			r := kmsg.NewPtrProduceResponse()
			r.Version = 9
			if err == nil {
				err = r.ReadFrom(body[1:])
			}
			if err != nil || id != want || firstPart(r).ErrorCode != 0 {
				t.Fatalf("answer %d, %v: %+v; want %d", id, err, r, want)
			}
		}
	})
}

func TestProduceOfTooManyPartsEndsItsConnection(t *testing.T) {
	why := &dropped{}
	inDoor(t, Config{Traffic: why}, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
		req := kmsg.NewPtrProduceRequest()
		req.Topics = make([]kmsg.ProduceRequestTopic, maxProduceParts+1)
		c := dial()
		c.send(9, req)
		if !c.ended() {
			t.Fatal("still open")
		}
		why.want(t, dropBadFrame)
	})
}

func TestProduceOfTooManyPartsIsRefusedBeforeDecoding(t *testing.T) {
	req := kmsg.NewPtrProduceRequest()
	req.Topics = make([]kmsg.ProduceRequestTopic, maxProduceParts+1)
	for _, v := range []int16{3, 8, 9, 12, 13} {
		req.SetVersion(v)
		frame := frameOf(v, 1, req)[headBytes:]
		if err := checkProduceShape(v, frame); !errors.Is(err, errFrame) {
			t.Errorf("v%d: %v", v, err)
		}
		one := kmsg.NewPtrProduceRequest()
		one.Topics = []kmsg.ProduceRequestTopic{{Partitions: make([]kmsg.ProduceRequestTopicPartition, maxProduceParts+1)}}
		if err := checkProduceShape(v, frameOf(v, 1, one)[headBytes:]); !errors.Is(err, errFrame) {
			t.Errorf("v%d, partitions: %v", v, err)
		}
		if err := checkProduceShape(v, frameOf(v, 1, produceReq("t", record.TopicID{1}, 1, batchOf(t, 1, "x")))[headBytes:]); err != nil {
			t.Errorf("v%d: %v", v, err)
		}
	}
}
