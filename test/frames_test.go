package test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// frame is a request as it is on the wire, with the header of old versions.
func frame(key, version int16, body ...byte) []byte {
	be := binary.BigEndian
	f := be.AppendUint32(nil, uint32(10+len(body)))
	f = be.AppendUint16(f, uint16(key))
	f = be.AppendUint16(f, uint16(version))
	f = be.AppendUint32(f, 7)                     // correlation id
	return append(append(f, 0xff, 0xff), body...) // no client id
}

// bodyOf encodes a request's body.
func bodyOf(r kmsg.Request, version int16) []byte {
	r.SetVersion(version)
	return r.AppendTo(nil)
}

func (n *node) dial() net.Conn {
	n.t.Helper()
	c, err := net.Dial("tcp", n.kafka)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { c.Close() })
	return c
}

// answerOf sends bytes and returns the body of the response after its
// correlation id, or closed if the node hangs up. Silence fails the test.
func (n *node) answerOf(c net.Conn, request []byte) (body []byte, closed bool) {
	n.t.Helper()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write(request); err != nil {
		return nil, true
	}
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			n.t.Fatal("neither an answer nor a closed connection")
		}
		return nil, true
	}
	size := int(binary.BigEndian.Uint32(head[:])) - 4
	if size < 0 || size > 1<<20 {
		n.t.Fatalf("a response of %d bytes", size)
	}
	body = make([]byte, size)
	if _, err := io.ReadFull(c, body); err != nil {
		n.t.Fatalf("half a response: %v", err)
	}
	return body, false
}

// bystander produces and consumes all the time and must not notice anything.
type bystander struct {
	n    *node
	cl   *kgo.Client
	next int64
}

func newBystander(n *node) *bystander {
	n.createTopic("bystander", 1)
	return &bystander{n: n, cl: n.client(kgo.DefaultProduceTopic("bystander"), kgo.ConsumeTopics("bystander"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.ProducerLinger(0), kgo.RecordRetries(0))}
}

// check sends one record and reads it, over the connections it has.
func (b *bystander) check() {
	b.n.t.Helper()
	b.n.alive()
	ctx := timeout(b.n.t, 20*time.Second)
	if err := b.cl.ProduceSync(ctx, kgo.StringRecord("here")).FirstErr(); err != nil {
		b.n.t.Fatalf("the bystander cannot produce: %v", err)
	}
	fetches := b.cl.PollRecords(ctx, 1)
	if r := fetches.Records(); fetches.Err() != nil || len(r) != 1 || r[0].Offset != b.next {
		b.n.t.Fatalf("the bystander reads %v, %v, want offset %d", r, fetches.Err(), b.next)
	}
	b.next++
}

func TestNonsenseOnAConnectionHarmsNobodyElse(t *testing.T) {
	n := newNode(t)
	by := newBystander(n)
	by.check()
	long := strings.Repeat("x", 200)
	huge := []byte{0x7f, 0xff, 0xff, 0xff}
	for name, request := range map[string][]byte{
		"negative size":            {0xff, 0xff, 0xff, 0xff},
		"smallest size":            {0x80, 0, 0, 0},
		"size 0":                   {0, 0, 0, 0},
		"size 1":                   {0, 0, 0, 1, 0},
		"size below a header":      {0, 0, 0, 4, 0, 3, 0, 1},
		"huge size":                {0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 1, 0, 0, 0, 7, 0xff, 0xff},
		"an HTTP request":          []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"a TLS greeting":           {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3},
		"unknown api":              frame(9999, 0),
		"negative api":             frame(-1, 0),
		"metadata, negative vers.": frame(3, -1),
		"metadata, version 99":     frame(3, 99),
		"metadata, absurd array":   frame(3, 1, huge...),
		"metadata, negative array": frame(3, 1, 0x80, 0, 0, 0),
		"metadata, long name":      frame(3, 1, append([]byte{0, 0, 0, 1, 0x7f, 0xff}, long...)...),
		"metadata, cut":            frame(3, 1, 0, 0, 0, 2, 0, 1, 'a'),
		"metadata, varint no end":  frame(3, 12, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
		"fetch, absurd array":      frame(1, 4, append([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0}, huge...)...),
		"produce, absurd array":    frame(0, 7, append([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1}, huge...)...),
		"join, absurd array":       frame(11, 5, append([]byte{0, 1, 'g', 0, 0, 0x27, 0x10, 0, 0, 0x27, 0x10, 0, 0, 0xff, 0xff, 0, 1, 'c'}, huge...)...),
		"create, absurd array":     frame(19, 0, huge...),
		"api versions, garbage":    frame(18, 3, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
		"commit, cut":              frame(8, 2, 0, 1, 'g'),
	} {
		t.Run(name, func(t *testing.T) {
			n.use(t)
			c := n.dial()
			// A size that promises more than comes is a slow sender; hanging up says that it is over.
			_, _ = c.Write(request)
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.CloseWrite()
			}
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
			answer, err := io.ReadAll(io.LimitReader(c, 1<<20))
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection is neither answered nor closed")
			}
			if len(answer) == 1<<20 {
				t.Error("the answer has no end")
			}
			by.check()
		})
	}
	if now := n.memory(); now > 300<<20 {
		t.Errorf("the node uses %d MiB after nonsense", now>>20)
	}
}

// memory is the node's resident memory in bytes, 0 where it cannot be told.
func (n *node) memory() int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(n.cmd.Process.Pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

func TestApiVersionsBeyondOursAnswersWithOurRange(t *testing.T) {
	n := newNode(t)
	c := n.dial()
	body, closed := n.answerOf(c, frame(18, 99, 0))
	if closed {
		t.Fatal("the connection was closed")
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	if err := resp.ReadFrom(body); err != nil { // version 0
		t.Fatalf("the answer is not of version 0: %v", err)
	}
	if resp.ErrorCode != 35 || len(resp.ApiKeys) == 0 {
		t.Fatalf("error code %d with %d keys, want 35 and our range", resp.ErrorCode, len(resp.ApiKeys))
	}
	if _, closed := n.answerOf(c, frame(18, 0)); closed {
		t.Error("the connection does not go on")
	}
}

func TestProduceOfUnsupportedVersionsIsAnsweredWithAnError(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 1)
	for version := range int16(3) {
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = -1, 1000
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic = "t"
		p := kmsg.NewProduceRequestTopicPartition()
		p.Records = make([]byte, 40)
		topic.Partitions = append(topic.Partitions, p)
		req.Topics = append(req.Topics, topic)
		c := n.dial()
		body, closed := n.answerOf(c, frame(0, version, bodyOf(req, version)...))
		if closed {
			t.Errorf("version %d: the connection was closed", version)
			continue
		}
		resp := kmsg.NewPtrProduceResponse()
		resp.SetVersion(version)
		if err := resp.ReadFrom(body); err != nil {
			t.Errorf("version %d: %v", version, err)
			continue
		}
		if code := resp.Topics[0].Partitions[0].ErrorCode; code == 0 {
			t.Errorf("version %d was taken", version)
		}
	}
}

// Batches that are not what they say they are stored nowhere.
func TestDamagedBatchesAreRefused(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 1)
	be := binary.BigEndian
	for name, c := range map[string]struct {
		damage func([]byte) []byte
		codes  []int16 // one of these
	}{
		"flipped bit in a record": {func(b []byte) []byte { b[len(b)-2] ^= 1; return b }, []int16{2}},
		"wrong magic":             {func(b []byte) []byte { b[16] = 9; return b }, []int16{2, 87}},
		"length too large":        {func(b []byte) []byte { be.PutUint32(b[8:], 1<<30); return b }, []int16{2, 87, 10}},
		"length negative":         {func(b []byte) []byte { be.PutUint32(b[8:], 1<<31); return b }, []int16{2, 87}},
		"cut":                     {func(b []byte) []byte { return b[:len(b)-3] }, []int16{2, 87}},
		"header alone":            {func(b []byte) []byte { return b[:61] }, []int16{2, 87}},
		"a few bytes":             {func([]byte) []byte { return []byte{1, 2, 3} }, []int16{2, 87}},
		"nothing":                 {func([]byte) []byte { return []byte{} }, []int16{2, 87}},
		"count too large":         {func(b []byte) []byte { be.PutUint32(b[57:], 1000); be.PutUint32(b[23:], 999); return seal(b) }, []int16{2, 87}},
		"count negative":          {func(b []byte) []byte { be.PutUint32(b[57:], 1<<31); return seal(b) }, []int16{2, 87}},
		"a control batch":         {func(b []byte) []byte { b[22] |= 0x20; return seal(b) }, []int16{2, 87}},
	} {
		t.Run(name, func(t *testing.T) {
			n.use(t)
			code := n.produceRaw(t, "t", c.damage(oneRecordBatch()))
			for _, ok := range c.codes {
				if code == ok {
					return
				}
			}
			t.Errorf("error code %d, want one of %v", code, c.codes)
		})
	}
	if code := n.produceRaw(t, "t", oneRecordBatch()); code != 0 {
		t.Errorf("a good batch gets error code %d", code)
	}
	if got := n.readAll("t")[0]; len(got) != 1 || got[0].Offset != 0 {
		t.Errorf("%d records are stored, want the good one at offset 0", len(got))
	}
}

// produceRaw sends bytes as a partition's records and returns the error code.
func (n *node) produceRaw(t *testing.T, topic string, batch []byte) int16 {
	t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 5000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = batch
	rt.Partitions = append(rt.Partitions, p)
	req.Topics = append(req.Topics, rt)
	body, closed := n.answerOf(n.dial(), frame(0, 7, bodyOf(req, 7)...))
	if closed {
		t.Fatal("the connection was closed")
	}
	resp := kmsg.NewPtrProduceResponse()
	resp.SetVersion(7)
	if err := resp.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	return resp.Topics[0].Partitions[0].ErrorCode
}

func TestSlowAndSilentConnectionsAreClosed(t *testing.T) {
	n := newNode(t, "--idle-timeout=1s", "--read-timeout=1s")
	by := newBystander(n)
	for name, first := range map[string][]byte{
		"silent from the start":  nil,
		"half a size":            {0, 0},
		"a size and no more":     {0, 0, 0, 50},
		"half a request":         frame(3, 1, 0, 0, 0, 1)[:12],
		"silent after a request": frame(18, 0),
	} {
		c := n.dial()
		if _, err := c.Write(first); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(15 * time.Second))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: still open after 15 s", name)
		}
	}
	by.check2()
}

// check2 checks with a fresh client: the old connections may have been idle too long.
func (b *bystander) check2() {
	b.n.t.Helper()
	b.n.mustProduce("bystander", values(0, 1))
}

func TestConnectionsBeyondTheLimitAreTurnedAway(t *testing.T) {
	n := newNode(t, "--max-connections=10")
	var open []net.Conn
	refused := 0
	for range 30 {
		c, err := net.Dial("tcp", n.kafka)
		if err != nil {
			refused++
			continue
		}
		defer c.Close()
		open = append(open, c)
	}
	for _, c := range open {
		if _, closed := n.answerOf(c, frame(18, 0)); closed {
			refused++
		}
	}
	if refused < 20 {
		t.Errorf("%d of 30 connections were turned away, want at least 20", refused)
	}
	for _, c := range open {
		c.Close()
	}
	eventually(t, 10*time.Second, func() error { return n.produce("t", values(0, 1)) })
}
