package kafka

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// dropped remembers why connections were closed.
type dropped struct {
	noTraffic
	mu      sync.Mutex
	reasons []string
}

func (d *dropped) Dropped(reason string) {
	d.mu.Lock()
	d.reasons = append(d.reasons, reason)
	d.mu.Unlock()
}

func (d *dropped) want(t *testing.T, reasons ...string) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.reasons) != len(reasons) {
		t.Fatalf("dropped %q, want %q", d.reasons, reasons)
	}
	for i := range reasons {
		if d.reasons[i] != reasons[i] {
			t.Fatalf("dropped %q, want %q", d.reasons, reasons)
		}
	}
}

func u32(v ...uint32) (b []byte) {
	for _, x := range v {
		b = binary.BigEndian.AppendUint32(b, x)
	}
	return b
}

func TestBadFramesEndTheirConnectionOnly(t *testing.T) {
	for name, frame := range map[string][]byte{
		"negative length":      u32(0xFFFFFFFF),
		"length 0":             u32(0),
		"length below a head":  u32(7),
		"huge length":          u32(0x7FFFFFFF),
		"over the limit":       u32(maxOtherFrameBytes+1, 3<<16, 1),
		"first frame too long": u32(maxFirstFrameBytes+1, 9, 1),
		"unknown API":          append(u32(10, 999<<16, 1), 0, 0),
		"negative API":         append(u32(10, 0xFFFF0000, 1), 0, 0),
		"client id too long":   append(u32(10, 3<<16|3, 1), 0x7F, 0xFF),
		"body ends early":      append(u32(13, 3<<16|3, 1), 0, 0, 0, 0, 1),
		"array of 2 billion":   append(u32(14, 3<<16|3, 1), append([]byte{0, 0}, u32(0x7FFFFFFF)...)...),
	} {
		t.Run(name, func(t *testing.T) {
			why := &dropped{}
			inDoor(t, Config{Traffic: why}, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
				other, bad := dial(), dial()
				other.ask(3, kmsg.NewPtrMetadataRequest())
				go bad.nc.Write(frame)
				if !bad.ended() {
					t.Fatal("the connection is still open")
				}
				why.want(t, dropBadFrame)
				other.ask(3, kmsg.NewPtrMetadataRequest())
			})
		})
	}
}

func TestSilentAndSlowConnectionsEnd(t *testing.T) {
	cfg := Config{IdleTimeout: time.Minute, ReadTimeout: time.Second, WriteTimeout: 2 * time.Second}
	frame := frameOf(3, 1, kmsg.NewPtrMetadataRequest())
	for _, c := range []struct {
		name  string
		begun int // bytes of a frame that are sent
		after time.Duration
		why   string
	}{
		{"idle", 0, time.Minute, dropIdle},
		{"a byte", 1, time.Second, dropSlowSender},
		{"the length", 4, time.Second, dropSlowSender},
		{"the head", headBytes, time.Second, dropSlowSender},
		{"all but the end", len(frame) - 1, time.Second, dropSlowSender},
	} {
		t.Run(c.name, func(t *testing.T) {
			why := &dropped{}
			cfg := cfg
			cfg.Traffic = why
			inDoor(t, cfg, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
				began, conn := time.Now(), dial()
				if c.begun > 0 {
					conn.nc.Write(frame[:c.begun])
				}
				if !conn.ended() || time.Since(began) != c.after {
					t.Fatalf("ended after %v, want %v", time.Since(began), c.after)
				}
				why.want(t, c.why)
			})
		})
	}
	t.Run("a reader that does not read", func(t *testing.T) {
		why := &dropped{}
		cfg := cfg
		cfg.Traffic = why
		inDoor(t, cfg, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
			topic := cl.addTopic("t", 1)
			a, b := dial(), dial()
			a.send(3, kmsg.NewPtrMetadataRequest())
			b.send(9, produceReq("t", topic.ID, 1, batchOf(t, 1, "value")))
			time.Sleep(2*time.Second + 1)
			why.want(t, dropSlowReader, dropSlowReader)
			if n := d.Connections(); n != 0 {
				t.Fatalf("%d connections", n)
			}
		})
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	why := &dropped{}
	inDoor(t, Config{MaxConnections: 2, Traffic: why}, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
		a, b, c := dial(), dial(), dial()
		a.ask(3, kmsg.NewPtrMetadataRequest())
		b.ask(3, kmsg.NewPtrMetadataRequest())
		if !c.ended() {
			t.Fatal("a third connection")
		}
		why.want(t, dropTooMany)
		a.nc.Close()
		synctest.Wait()
		dial().ask(3, kmsg.NewPtrMetadataRequest())
	})
	why = &dropped{}
	inDoor(t, Config{MaxConnectionsPerAddress: 1, Traffic: why}, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
		a, b := dial(), dial()
		a.ask(3, kmsg.NewPtrMetadataRequest())
		if !b.ended() {
			t.Fatal("a second connection of the address")
		}
		why.want(t, dropTooManyOfAddress)
		a.nc.Close()
		synctest.Wait()
		dial().ask(3, kmsg.NewPtrMetadataRequest())
	})
}

func TestRequestsWaitForMemory(t *testing.T) {
	b := batchOf(t, 1, string(make([]byte, 600)))
	inDoor(t, Config{MaxFrameBytes: 1000, RequestMemoryBytes: 1000}, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
		topic := cl.addTopic("t", 1)
		p := cl.part(topic, 0)
		p.set(func(p *fakePartition) { p.hold = true })
		first, second := dial(), dial()
		first.send(9, produceReq("t", topic.ID, 1, b))
		go second.nc.Write(frameOf(9, 1, produceReq("t", topic.ID, 1, b)))
		synctest.Wait()
		if n := len(p.batches); n != 1 {
			t.Fatalf("%d requests of 700 bytes are under way, there is memory for one", n)
		}
		p.letGo(1)
		if _, _, err := first.receive(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		p.letGo(1)
		if _, _, err := second.receive(); err != nil {
			t.Fatal(err)
		}
	})
}

// Whoever waits for others must not hold the memory that those need.
func TestWaitingFetchesLeaveMemoryToOthers(t *testing.T) {
	inDoor(t, Config{MaxFrameBytes: 1000, RequestMemoryBytes: 1000}, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
		topic := cl.addTopic("t", 1)
		waiting := fetchOf(topic, 0)
		waiting.MaxWaitMillis = 30_000
		began := time.Now()
		fetchers := []*rawClient{dial(), dial(), dial()}
		for _, c := range fetchers {
			c.send(12, waiting)
		}
		synctest.Wait()
		if r := dial().ask(9, produceReq("t", topic.ID, 1, batchOf(t, 1, "value"))); firstPart(r).ErrorCode != 0 || time.Since(began) != 0 {
			t.Fatalf("after %v: %+v", time.Since(began), r)
		}
		for _, c := range fetchers {
			c.get(waiting)
		}
	})
}

func TestStopAnswersWhatIsUnderWay(t *testing.T) {
	inDoor(t, Config{}, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
		topic := cl.addTopic("t", 1)
		p := cl.part(topic, 0)
		p.set(func(p *fakePartition) { p.hold = true })
		producer, consumer, idle := dial(), dial(), dial()
		idle.ask(3, kmsg.NewPtrMetadataRequest())
		produce, fetch := produceReq("t", topic.ID, 1, batchOf(t, 1, "value")), fetchOf(topic, 1)
		producer.send(9, produce)
		synctest.Wait()
		fetch.MaxWaitMillis = 30_000
		consumer.send(12, fetch)
		synctest.Wait()
		stopped, began := make(chan error, 1), time.Now()
		go func() { stopped <- d.Stop(context.Background()) }()
		consumer.get(fetch)
		if !idle.ended() || !consumer.ended() {
			t.Fatal("still open")
		}
		if took := time.Since(began); took != 0 {
			t.Fatalf("those that wait were told after %v", took)
		}
		select {
		case <-stopped:
			t.Fatal("stopped with a produce request under way")
		default:
		}
		p.letGo(1)
		if r := firstPart(producer.get(produce)); r.ErrorCode != 0 {
			t.Fatalf("%+v", r)
		}
		if err := <-stopped; err != nil || !producer.ended() {
			t.Fatal(err)
		}
		if err := d.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := d.Start(newPipeListener()); err == nil {
			t.Fatal("a stopped door began anew")
		}
	})
}

func TestStopCutsOffWhenItsTimeIsOver(t *testing.T) {
	inDoor(t, Config{}, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
		topic := cl.addTopic("t", 1)
		p := cl.part(topic, 0)
		p.set(func(p *fakePartition) { p.hold = true })
		c := dial()
		c.send(9, produceReq("t", topic.ID, 1, batchOf(t, 1, "value")))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := d.Stop(ctx); err == nil {
			t.Fatal("nothing was cut off")
		}
		if !c.ended() {
			t.Fatal("still open")
		}
		p.letGo(1)
	})
}

func TestPanicEndsOneConnection(t *testing.T) {
	why := &dropped{}
	inDoor(t, Config{Traffic: why}, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
		d.table[3] = &api{key: 3, max: 13, handle: func(*Door, context.Context, *client, kmsg.Request) kmsg.Response { panic("x") }}
		other, c := dial(), dial()
		c.send(3, kmsg.NewPtrMetadataRequest())
		if !c.ended() {
			t.Fatal("still open")
		}
		why.want(t, dropPanic)
		other.ask(0, kmsg.NewPtrApiVersionsRequest())
	})
}

func TestUnsupportedVersionsKeepTheConnection(t *testing.T) {
	inDoor(t, Config{}, func(t *testing.T, d *Door, cl *fakeCluster, dial func() *rawClient) {
		c := dial()
		// A version that nobody knows: v0 body, v0 header.
		c.nc.Write(append(u32(11, 18<<16|99, 77), 0, 0, 0))
		id, b, err := c.receive()
		var r kmsg.ApiVersionsResponse
		if err == nil {
			err = r.ReadFrom(b)
		}
		if err != nil || id != 77 || r.ErrorCode != kerr.UnsupportedVersion.Code || len(r.ApiKeys) != len(apis) {
			t.Fatalf("%d, %v: %+v", id, err, r)
		}
		c.correlation = 77
		for _, req := range []kmsg.Request{kmsg.NewPtrFetchRequest(), kmsg.NewPtrListOffsetsRequest(), kmsg.NewPtrOffsetForLeaderEpochRequest(), kmsg.NewPtrOffsetCommitRequest()} {
			c.ask(0, req)
		}
		f := c.ask(3, kmsg.NewPtrFetchRequest()).(*kmsg.FetchResponse)
		if len(f.Topics) != 0 {
			t.Fatalf("%+v", f)
		}
		c.ask(3, kmsg.NewPtrMetadataRequest())
	})
}

// An idle connection holds no buffer: its goroutine blocks in the read of a head.
func TestIdleConnectionsAreSmall(t *testing.T) {
	cl := newFakeCluster()
	d := newTestDoor(t, cl, Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Stop(context.Background()) })
	const n = 300
	before := memoryInUse()
	for range n {
		nc, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		c := &rawClient{t: t, nc: nc}
		c.ask(3, kmsg.NewPtrApiVersionsRequest())
	}
	if each := (memoryInUse() - before) / n; each > 12<<10 {
		t.Errorf("%d bytes a connection, client's end included", each)
	} else {
		t.Logf("%d bytes a connection, client's end included", each)
	}
}
