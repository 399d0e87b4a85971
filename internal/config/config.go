// Package config holds a node's settings: one table (settings.go) gives every
// setting its name, kind, default and text; flags, environment and file are read
// by that table, and docs/configuration.md is written from it.
//
// A setting named x-y is the flag --x-y, the variable TUBE_X_Y and the key x-y
// of the YAML file. Flags win over the environment, the environment over the file.
package config

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// Config is a node's settings. Load returns a validated one; the table in
// settings.go says what each means, its default and its unit.
type Config struct {
	Data      string
	NodeID    record.NodeID
	ClusterID string // empty: that of the data folder, a new one if that is empty
	Roles     []Role
	Masters   []Master // empty: this node alone
	Zone      string
	Insecure  bool

	ReplaceAfter        time.Duration
	ReplicationThrottle int64 // bytes per second
	CopyThrottle        int64 // bytes per second

	// Listening addresses, host:port; port 0 takes a free one.
	Kafka, HTTP, Peer string
	// Files of this node's certificate and key and of the cluster's CA; all or none.
	PeerTLSCert, PeerTLSKey, PeerTLSCA string
	// What others are told; empty: see Advertised.
	AdvertiseKafka, AdvertiseHTTP, AdvertisePeer string

	LogLevel        slog.Level
	LogFormat       string // auto, text or json
	ShutdownTimeout time.Duration
	Pprof           bool

	AutoCreateTopics  bool
	DefaultPartitions int

	GroupMinSessionTimeout time.Duration
	GroupMaxSessionTimeout time.Duration
	GroupInitialDelay      time.Duration
	GroupConsumerSession   time.Duration
	GroupConsumerInterval  time.Duration
	GroupMigration         string
	GroupMaxMembers        int
	OffsetsRetention       time.Duration

	WALFileBytes       int64
	CheckpointBytes    int64
	TailMemoryBytes    int64
	DelayedMemoryBytes int64
	DiskReserveBytes   int64
	RetentionInterval  time.Duration
	DiskSlowAfter      time.Duration // 0: a slow disk is not looked for
	DiskHungAfter      time.Duration // 0: a hung disk is not looked for
	ProducerExpiry     time.Duration
	MaxProducers       int

	MaxConnections           int
	MaxConnectionsPerAddress int // 0: no limit of its own
	IdleTimeout              time.Duration
	ReadTimeout              time.Duration
	WriteTimeout             time.Duration
	MaxFrameBytes            int64
	RequestMemoryBytes       int64
}

// Role is what a node does in the cluster.
type Role string

// The roles.
const (
	RoleMaster Role = "master"
	RoleBroker Role = "broker"
)

// Master is one row of the masters list: where its peer door is reached.
type Master struct {
	ID   record.NodeID
	Addr string // host:port
}

// String returns the form ID@HOST:PORT.
func (m Master) String() string { return fmt.Sprintf("%d@%s", m.ID, m.Addr) }

// PeerTLS reports whether nodes talk to each other by mutual TLS.
func (c *Config) PeerTLS() bool { return c.PeerTLSCert != "" }

// HasRole reports whether the node has the role.
func (c *Config) HasRole(r Role) bool { return slices.Contains(c.Roles, r) }

// Addrs are the addresses of a node's doors, host:port each.
type Addrs struct{ Kafka, HTTP, Peer string }

// Advertised returns what others are told, given the addresses that are really
// listened on. A wildcard address cannot be told: the host of the Kafka door is
// taken then, which Validate made sure there is.
func (c *Config) Advertised(bound Addrs) Addrs {
	kafka := firstOf(c.AdvertiseKafka, bound.Kafka)
	host, _, _ := net.SplitHostPort(kafka)
	tell := func(advertised, listening string) string {
		if advertised != "" {
			return advertised
		}
		if h, port, err := net.SplitHostPort(listening); err == nil && isWildcard(h) {
			return net.JoinHostPort(host, port)
		}
		return listening
	}
	return Addrs{kafka, tell(c.AdvertiseHTTP, bound.HTTP), tell(c.AdvertisePeer, bound.Peer)}
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func isWildcard(host string) bool {
	if host == "" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsUnspecified()
}

// checkHostPort wants host:port with a numeric port; the host may be empty or
// the port 0 only where wildcard is allowed.
func checkHostPort(s string, listening bool) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil:
		return fmt.Errorf("%q: port %q is not a number from 0 to 65535", s, port)
	case !listening && n == 0:
		return fmt.Errorf("%q: a port that others connect to cannot be 0", s)
	case !listening && isWildcard(host):
		return fmt.Errorf("%q: others cannot connect to %q; give a host name or an IP address", s, host)
	}
	return nil
}
