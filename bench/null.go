package bench

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxNullFrameBytes is the largest request the null broker takes; a connection
// that announces more is closed.
const maxNullFrameBytes = 128 << 20

// maxNullPartitions bounds what a topic's name may ask for.
const maxNullPartitions = 100_000

// NullConfig says what a null broker pretends to have.
type NullConfig struct {
	Partitions  int // of every topic; at least 1
	RecordBytes int // value size of the records that fetch serves
	BatchBytes  int // largest batch that fetch serves
	// EndOffset is the offset after the last record of every partition, as fetch
	// and ListOffsets tell it.
	EndOffset int64
}

// NullBroker accepts what is produced without keeping it, and serves the same
// batch again and again. Every topic exists, with the same number of partitions.
type NullBroker struct {
	config NullConfig
	ln     net.Listener
	host   string
	port   int32
	batch  nullBatch

	producerID atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]struct{} // guarded by mu
	done  bool                  // guarded by mu
	wg    sync.WaitGroup
}

// ListenNull starts a null broker at addr (host:port, port 0 for a free one).
func ListenNull(addr string, c NullConfig) (*NullBroker, error) {
	c.Partitions = min(max(c.Partitions, 1), maxNullPartitions)
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for the null broker: %w", err)
	}
	host, portText, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseInt(portText, 10, 32)
	if err != nil {
		return nil, err
	}
	b := &NullBroker{
		config: c, ln: ln, host: host, port: int32(port),
		batch: makeNullBatch(c.RecordBytes, c.BatchBytes), conns: map[net.Conn]struct{}{},
	}
	b.wg.Go(b.accept)
	return b, nil
}

// Addr is the address listened on, host:port.
func (b *NullBroker) Addr() string { return b.ln.Addr().String() }

// Close ends all connections and waits for them.
func (b *NullBroker) Close() error {
	b.mu.Lock()
	b.done = true
	for c := range b.conns {
		c.Close()
	}
	b.mu.Unlock()
	err := b.ln.Close()
	b.wg.Wait()
	return err
}

func (b *NullBroker) accept() {
	for {
		c, err := b.ln.Accept()
		if err != nil {
			return // closed
		}
		if !b.track(c) {
			return
		}
		b.wg.Go(func() {
			defer b.untrack(c)
			// A client that goes away or talks nonsense loses its connection, nothing else.
			_ = b.serve(c)
		})
	}
}

func (b *NullBroker) track(c net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		c.Close()
		return false
	}
	b.conns[c] = struct{}{}
	return true
}

func (b *NullBroker) untrack(c net.Conn) {
	c.Close()
	b.mu.Lock()
	delete(b.conns, c)
	b.mu.Unlock()
}

// nullConn is one connection's state: buffers that are used again for every request.
type nullConn struct {
	broker *NullBroker
	in     *bufio.Reader
	out    net.Conn
	reply  []byte      // response under construction, size prefix included
	small  []byte      // body of a request that is read whole
	heads  []byte      // patched batch headers of a fetch response
	parts  net.Buffers // the pieces of a fetch response
	asked  []nullAsked
}

var errNullFrame = errors.New("malformed request")

func (b *NullBroker) serve(c net.Conn) error {
	n := &nullConn{broker: b, in: bufio.NewReaderSize(c, 256<<10), out: c}
	for {
		head, err := n.in.Peek(12)
		if err != nil {
			return err
		}
		size := int64(int32(binary.BigEndian.Uint32(head)))
		key, version := int16(binary.BigEndian.Uint16(head[4:])), int16(binary.BigEndian.Uint16(head[6:]))
		correlation := binary.BigEndian.Uint32(head[8:])
		if size < 8 || size > maxNullFrameBytes {
			return fmt.Errorf("%w: frame of %d bytes", errNullFrame, size)
		}
		if _, err := n.in.Discard(12); err != nil {
			return err
		}
		n.reply = binary.BigEndian.AppendUint32(append(n.reply[:0], 0, 0, 0, 0), correlation)
		if err := n.answer(key, version, size-8); err != nil {
			return err
		}
	}
}

// answer reads the rest of a request, restBytes after the correlation id, and
// writes the response.
func (n *nullConn) answer(key, version int16, restBytes int64) error {
	switch kmsg.Key(key) {
	case kmsg.Produce:
		return n.produce(restBytes)
	case kmsg.Fetch:
		return n.fetch(restBytes)
	default:
		return n.other(key, version, restBytes)
	}
}

// readSmall reads the whole rest of a request into the reused buffer.
func (n *nullConn) readSmall(restBytes int64) ([]byte, error) {
	if int64(cap(n.small)) < restBytes {
		n.small = make([]byte, restBytes)
	}
	n.small = n.small[:restBytes]
	_, err := io.ReadFull(n.in, n.small)
	return n.small, err
}

// send writes the response in n.reply, giving it its size.
func (n *nullConn) send() error {
	binary.BigEndian.PutUint32(n.reply, uint32(len(n.reply)-4))
	_, err := n.out.Write(n.reply)
	return err
}
