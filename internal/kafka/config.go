package kafka

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// Config of the door. Zero values are replaced by the defaults named here.
type Config struct {
	Node   record.NodeID
	Logger *slog.Logger // slog.Default()
	// DataDir is the folder that DescribeLogDirs names.
	DataDir string
	// DiskBytes tells the size of the disk that DataDir is on and what of it may
	// still be written; nil or an error: not known.
	DiskBytes func() (total, usable int64, err error)
	// AutoCreateTopics lets Metadata create a topic that a client names.
	AutoCreateTopics bool

	MaxConnections           int // open at a time; one beyond is closed at once: 16,000
	MaxConnectionsPerAddress int // of one IP address: no limit of its own
	// MaxFrameBytes is the largest request: 100 MiB. Only Produce may be so
	// large, other requests have 16 MiB (maxOtherFrameBytes), and a connection's
	// first request 4 MiB (maxFirstFrameBytes), as nothing is known of its sender.
	MaxFrameBytes int
	// RequestMemoryBytes bounds the requests under way over all connections. A
	// connection whose request does not fit waits: 256 MiB.
	RequestMemoryBytes int64
	// FetchMemoryBytes bounds the records on their way to consumers. When it is
	// used up each response still has minFetchShareBytes: 256 MiB.
	FetchMemoryBytes int64
	// MaxFetchBytes is the most records of one fetch response: 16 MiB. A first
	// batch that is larger is sent all the same.
	MaxFetchBytes int
	// MaxFetchWait bounds how long a fetch may ask to wait: 1 min.
	MaxFetchWait time.Duration
	// MaxInFlight is how many produce requests of one connection are under way;
	// more are not read until one is answered: 64.
	MaxInFlight int
	// MaxSessionPartitions bounds the partitions of all fetch sessions together.
	// Beyond, fetches work without a session: 1,000,000.
	MaxSessionPartitions int64

	// MaxShareSessions bounds the share sessions (KIP-932) of the node: one for each
	// member that fetches here: 10,000.
	MaxShareSessions int

	ReadTimeout  time.Duration // for the rest of a request that was begun: 30 s
	WriteTimeout time.Duration // for a client to take 1 MiB of a response: 30 s
	IdleTimeout  time.Duration // between requests: 10 min

	Traffic Traffic // nobody counts
	Calls   Calls   // nobody counts
}

// Traffic counts connections and bytes.
type Traffic interface {
	Opened()
	Closed()
	// Dropped counts a connection that the node closed by itself; reason is one
	// of a fixed set.
	Dropped(reason string)
	Received(bytes int)
	Sent(bytes int)
}

// Calls counts requests. api is a name of the door's table, error Kafka's.
type Calls interface {
	Request(api string, took time.Duration)
	Error(api, name string)
	// Produced counts what was acknowledged, Fetched bytes of batches sent.
	Produced(records, bytes int)
	Fetched(bytes int)
	// Followed counts partitions of fetches that a follower answered.
	Followed(partitions int)
}

const (
	maxOtherFrameBytes = 16 << 20
	maxFirstFrameBytes = 4 << 20
)

func (c *Config) complete() error {
	orInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	orInt64 := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	orInt(&c.MaxConnections, 16_000)
	orInt(&c.MaxFrameBytes, 100<<20)
	orInt64(&c.RequestMemoryBytes, 256<<20)
	orInt64(&c.FetchMemoryBytes, 256<<20)
	orInt(&c.MaxFetchBytes, 16<<20)
	orInt64((*int64)(&c.MaxFetchWait), int64(time.Minute))
	orInt(&c.MaxInFlight, 64)
	orInt64(&c.MaxSessionPartitions, 1_000_000)
	orInt(&c.MaxShareSessions, 10_000)
	orInt64((*int64)(&c.ReadTimeout), int64(30*time.Second))
	orInt64((*int64)(&c.WriteTimeout), int64(30*time.Second))
	orInt64((*int64)(&c.IdleTimeout), int64(10*time.Minute))
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Traffic == nil {
		c.Traffic = noTraffic{}
	}
	if c.Calls == nil {
		c.Calls = noCalls{}
	}
	if c.MaxConnections < 0 || c.MaxConnectionsPerAddress < 0 || c.MaxFrameBytes < 0 || c.MaxFetchBytes < 0 || c.MaxInFlight < 0 ||
		c.FetchMemoryBytes < 0 || c.MaxSessionPartitions < 0 || c.MaxShareSessions < 0 || c.MaxFetchWait < 0 || c.ReadTimeout < 0 || c.WriteTimeout < 0 || c.IdleTimeout < 0 {
		return errors.New("a limit is negative")
	}
	// A request that never fits would wait for ever.
	if c.RequestMemoryBytes < int64(c.MaxFrameBytes) {
		return fmt.Errorf("memory for requests (%d bytes) is less than the largest request (%d bytes)", c.RequestMemoryBytes, c.MaxFrameBytes)
	}
	return nil
}

type noTraffic struct{}

func (noTraffic) Opened()        {}
func (noTraffic) Closed()        {}
func (noTraffic) Dropped(string) {}
func (noTraffic) Received(int)   {}
func (noTraffic) Sent(int)       {}

type noCalls struct{}

func (noCalls) Request(string, time.Duration) {}
func (noCalls) Error(string, string)          {}
func (noCalls) Produced(int, int)             {}
func (noCalls) Fetched(int)                   {}
func (noCalls) Followed(int)                  {}
