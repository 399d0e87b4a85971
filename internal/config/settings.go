package config

import (
	"math"
	"strings"
	"time"
)

// Setting is one row of the table of settings.
type Setting struct {
	Name    string
	Section string // heading in the reference and in the help
	Default string
	Doc     string // one or two sentences; the first is the help of the flag
	field   func(c *Config) value
}

// Flag returns the name with its dashes, Env the environment variable.
func (s Setting) Flag() string { return "--" + s.Name }

// Env is the environment variable that sets it.
func (s Setting) Env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// Kind says which values there are.
func (s Setting) Kind() string { return s.field(&Config{}).kind() }

// Bool reports whether the flag may stand without a value.
func (s Setting) Bool() bool { _, ok := s.field(&Config{}).(boolean); return ok }

// Summary is the first sentence of the text.
func (s Setting) Summary() string {
	if i := strings.Index(s.Doc, ". "); i >= 0 {
		return s.Doc[:i]
	}
	return strings.TrimSuffix(s.Doc, ".")
}

const envPrefix = "TUBE_"

// The sections, in the order in which they are shown.
const (
	sectionNode    = "Node"
	sectionCluster = "Cluster"
	sectionListen  = "Addresses"
	sectionLog     = "Logging and diagnosis"
	sectionTopics  = "Topics"
	sectionGroups  = "Groups"
	sectionStorage = "Storage"
	sectionLimits  = "Limits"
)

const (
	kib, mib, gib = 1 << 10, 1 << 20, 1 << 30
	year          = 365 * day
)

// Settings is the table. The order is that of the reference.
func Settings() []Setting { return settings }

var settings = []Setting{
	{"data", sectionNode, "./data", "Folder that holds everything this node stores. It belongs to one node of one cluster.", func(c *Config) value { return text{&c.Data} }},
	{"node-id", sectionNode, "1", "This node's number in the cluster. It stays with the data folder.", func(c *Config) value { return nodeID{&c.NodeID} }},
	{"cluster-id", sectionNode, "", "Refuse to start on the data of any other cluster. When empty, the data folder decides; a new folder gets a new id.", func(c *Config) value { return text{&c.ClusterID} }},
	{"roles", sectionNode, "master,broker", "What this node does: steer the cluster, store messages, or both.", func(c *Config) value { return roles{&c.Roles} }},
	{"masters", sectionNode, "", "The masters' peer addresses. When empty, this node is alone.", func(c *Config) value { return masters{&c.Masters} }},
	{"zone", sectionNode, "", "Where this node stands, for example a datacentre. Copies of a partition are spread over zones.", func(c *Config) value { return text{&c.Zone} }},
	{"insecure", sectionNode, "false", "Allow listening beyond this machine without TLS and authentication. Anyone who reaches the addresses can then read, write and delete everything.", func(c *Config) value { return boolean{&c.Insecure} }},
	{"shutdown-timeout", sectionNode, "30s", "Longest time a stop may take before what is left is cut off. Nothing acknowledged is lost either way.", func(c *Config) value { return duration{&c.ShutdownTimeout, 0, time.Hour} }},

	{"replace-after", sectionCluster, "10m", "How long a node must be unreachable before what it stored is copied anew to other nodes. It counts as down after seconds; copying takes longer than most restarts.", func(c *Config) value { return duration{&c.ReplaceAfter, time.Second, year} }},
	{"copy-throttle", sectionCluster, "32MiB", "Most bytes per second that a node takes in, all partitions together, when its replicas copy what the leaders' logs no longer have: after a long absence, onto an empty disk, and in moves that have no limit of their own. 0 means as fast as it can.", func(c *Config) value { return size{&c.CopyThrottle, 0, math.MaxInt64} }},
	{"replication-throttle", sectionCluster, "0", "Most bytes per second that a node takes in when it copies partitions which the masters move. 0 means as fast as it can.", func(c *Config) value { return size{&c.ReplicationThrottle, 0, math.MaxInt64} }},

	{"kafka", sectionListen, "127.0.0.1:9092", "Where Kafka clients connect.", func(c *Config) value { return address{&c.Kafka, true} }},
	{"http", sectionListen, "127.0.0.1:9080", "Where the HTTP API, health and metrics are.", func(c *Config) value { return address{&c.HTTP, true} }},
	{"peer", sectionListen, "127.0.0.1:9070", "Where other nodes of the cluster connect.", func(c *Config) value { return address{&c.Peer, true} }},
	{"peer-tls-cert", sectionListen, "", "File with this node's certificate (PEM) for the peer address; nodes then talk by mutual TLS only. It must name node-<id>.tube. Read again when it changes; \"tube cluster certificates\" makes one.", func(c *Config) value { return text{&c.PeerTLSCert} }},
	{"peer-tls-key", sectionListen, "", "File with the certificate's private key (PEM).", func(c *Config) value { return text{&c.PeerTLSKey} }},
	{"peer-tls-ca", sectionListen, "", "File with the certificates (PEM) of the authority that signs the nodes' certificates, and nobody else's: whoever has one of its certificates is a node.", func(c *Config) value { return text{&c.PeerTLSCA} }},
	{"advertise-kafka", sectionListen, "", "The Kafka address that clients are told. Needed when the listening address is not one they can connect to (0.0.0.0, a container's); else that is told.", func(c *Config) value { return address{&c.AdvertiseKafka, false} }},
	{"advertise-http", sectionListen, "", "The HTTP address that others are told. When empty it is the listening one, on the host of the advertised Kafka address if it listens everywhere.", func(c *Config) value { return address{&c.AdvertiseHTTP, false} }},
	{"advertise-peer", sectionListen, "", "The peer address that other nodes are told. When empty, as for advertise-http.", func(c *Config) value { return address{&c.AdvertisePeer, false} }},

	{"log-level", sectionLog, "info", "The least important messages that are logged.", func(c *Config) value { return level{&c.LogLevel} }},
	{"log-format", sectionLog, "auto", "How log lines look. auto is text on a terminal and JSON otherwise.", func(c *Config) value { return choice{&c.LogFormat, []string{"auto", "text", "json"}} }},
	{"pprof", sectionLog, "false", "Serve Go's profiles at /debug/pprof/ on the HTTP address.", func(c *Config) value { return boolean{&c.Pprof} }},

	{"auto-create-topics", sectionTopics, "true", "Create a topic when a client first names it.", func(c *Config) value { return boolean{&c.AutoCreateTopics} }},
	{"default-partitions", sectionTopics, "4", "Partitions of a topic whose creator does not say.", func(c *Config) value { return integer{&c.DefaultPartitions, 1, 10_000} }},

	{"group-min-session-timeout", sectionGroups, "6s", "Shortest session timeout that a member may ask for. Shorter ones detect a dead member sooner and cost more heartbeats.", func(c *Config) value { return duration{&c.GroupMinSessionTimeout, time.Millisecond, year} }},
	{"group-max-session-timeout", sectionGroups, "30m", "Longest session timeout that a member may ask for.", func(c *Config) value { return duration{&c.GroupMaxSessionTimeout, time.Millisecond, year} }},
	{"group-initial-rebalance-delay", sectionGroups, "500ms", "How long a new group waits for more members before it deals out partitions. Each newcomer makes it wait as long again, so members that start together share one rebalance. Kafka waits 3s, which one asks of every first message; 500ms is enough for processes that start at the same time.", func(c *Config) value { return duration{&c.GroupInitialDelay, 0, 5 * time.Minute} }},
	{"group-consumer-session-timeout", sectionGroups, "45s", "How long a member of a group of the consumer protocol (KIP-848) may be silent before its partitions go to others. For those the server says it, not the client.", func(c *Config) value { return duration{&c.GroupConsumerSession, 200 * time.Millisecond, year} }},
	{"group-consumer-heartbeat-interval", sectionGroups, "5s", "How often such members must send a heartbeat. They hear of a new assignment by one, so they are told to come more often while there are few of them: with up to 500 of a coordinator each second, with 2,500 this often.", func(c *Config) value { return duration{&c.GroupConsumerInterval, 100 * time.Millisecond, time.Hour} }},
	{"group-migration", sectionGroups, "bidirectional", "Which groups may change their protocol while they have members. upgrade is from the classic to the consumer protocol, when the first member of that joins; downgrade is back, when the last one leaves.", func(c *Config) value {
		return choice{&c.GroupMigration, []string{"bidirectional", "upgrade", "downgrade", "disabled"}}
	}},
	{"group-max-members", sectionGroups, "50000", "Most members of one group.", func(c *Config) value { return integer{&c.GroupMaxMembers, 1, 1_000_000} }},
	{"offsets-retention", sectionGroups, "7d", "How long the committed offsets of a group without members are kept.", func(c *Config) value { return duration{&c.OffsetsRetention, time.Minute, 100 * year} }},

	{"wal-file-size", sectionStorage, "256MiB", "Size of one file of the write-ahead log. It bounds the largest batch: it must be at least max-frame-size and 1MiB.", func(c *Config) value { return size{&c.WALFileBytes, 16 * mib, 4 * gib} }},
	{"checkpoint-every", sectionStorage, "1GiB", "Growth of the write-ahead log after which its content is settled in segments and forgotten. More makes restarts longer and takes that much disk, less writes more.", func(c *Config) value { return size{&c.CheckpointBytes, 64 * mib, 1024 * gib} }},
	{"tail-memory", sectionStorage, "128MiB", "Memory for messages that are in the write-ahead log but not yet in segments, over all partitions. Readers that keep up are served from it.", func(c *Config) value { return size{&c.TailMemoryBytes, 8 * mib, 1024 * gib} }},
	{"delayed-memory", sectionStorage, "256MiB", "Memory for the index of messages that wait for their time, over all partitions; what takes more goes to a file in the data folder, those due last first. A message takes 8 bytes, in memory or there.", func(c *Config) value { return size{&c.DelayedMemoryBytes, 1 * mib, 1024 * gib} }},
	{"disk-reserve", sectionStorage, "512MiB", "Free disk below which producers get a retriable error. Reads, commits and deletes go on; producing begins again by itself when there is room.", func(c *Config) value { return size{&c.DiskReserveBytes, 0, math.MaxInt64} }},
	{"disk-slow-after", sectionStorage, "2s", "How long a flush of the write-ahead log may take before the node counts as sick. It hands what it leads over to nodes that are well, and is well again when flushes have been quick for a while. At least 100ms; 0 switches it off.", func(c *Config) value { return duration{&c.DiskSlowAfter, 0, time.Hour} }},
	{"disk-hung-after", sectionStorage, "1m", "How long a write or an fsync may take before the disk counts as hung and the process ends. Longer than disk-slow-after and at least 1s; 0 switches it off.", func(c *Config) value { return duration{&c.DiskHungAfter, 0, day} }},
	{"retention-interval", sectionStorage, "30s", "Time between looks for messages past their topic's retention.", func(c *Config) value { return duration{&c.RetentionInterval, 100 * time.Millisecond, day} }},
	{"producer-expiry", sectionStorage, "1d", "How long the sequence numbers of an idempotent producer that is silent are remembered.", func(c *Config) value { return duration{&c.ProducerExpiry, time.Minute, year} }},
	{"max-producers", sectionStorage, "50000", "Most idempotent producers remembered per partition. The one silent for longest is forgotten first.", func(c *Config) value { return integer{&c.MaxProducers, 100, 10_000_000} }},

	{"max-connections", sectionLimits, "16000", "Most Kafka connections at a time. One beyond is closed at once. The operating system's limit of open files may be lower.", func(c *Config) value { return integer{&c.MaxConnections, 1, 10_000_000} }},
	{"max-connections-per-address", sectionLimits, "0", "Most Kafka connections at a time from one IP address. 0 means no limit of its own.", func(c *Config) value { return integer{&c.MaxConnectionsPerAddress, 0, 10_000_000} }},
	{"idle-timeout", sectionLimits, "10m", "A Kafka connection without requests for this long is closed.", func(c *Config) value { return duration{&c.IdleTimeout, time.Second, 30 * day} }},
	{"read-timeout", sectionLimits, "30s", "Longest time that a client may take to send a request it has begun.", func(c *Config) value { return duration{&c.ReadTimeout, 100 * time.Millisecond, day} }},
	{"write-timeout", sectionLimits, "30s", "Longest time that a client may take to read a response.", func(c *Config) value { return duration{&c.WriteTimeout, 100 * time.Millisecond, day} }},
	{"max-frame-size", sectionLimits, "100MiB", "Largest Kafka request. A client that announces a larger one is disconnected.", func(c *Config) value { return size{&c.MaxFrameBytes, 64 * kib, 1 * gib} }},
	{"request-memory", sectionLimits, "256MiB", "Memory for Kafka requests that are under way, over all connections. Connections wait when it is used up.", func(c *Config) value { return size{&c.RequestMemoryBytes, 1 * mib, 1024 * gib} }},
}

func find(name string) (Setting, bool) {
	for _, s := range settings {
		if s.Name == name {
			return s, true
		}
	}
	return Setting{}, false
}

// Default returns the settings when nobody says anything.
func Default() *Config {
	c := new(Config)
	for _, s := range settings {
		if err := s.field(c).set(s.Default); err != nil {
			panic("config: default of " + s.Name + ": " + err.Error())
		}
	}
	return c
}
