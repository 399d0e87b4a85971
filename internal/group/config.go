package group

import (
	"fmt"
	"slices"
	"time"
)

// Config is what a coordinator allows. Every limit is per shard or per group and
// has a default (DefaultConfig).
type Config struct {
	MinSession time.Duration // group.min.session.timeout.ms; 6 s
	MaxSession time.Duration // group.max.session.timeout.ms; 30 min
	// ConsumerSession is how long a member of a group whose partitions the
	// coordinator assigns may be silent (group.consumer.session.timeout.ms; 45 s),
	// and ConsumerInterval how often it must come (5 s). While a coordinator has few of
	// them it tells them to come more often, each LeastConsumerInterval at most (1 s).
	ConsumerSession       time.Duration
	ConsumerInterval      time.Duration
	LeastConsumerInterval time.Duration
	// Migration says which groups may become of the other kind while they have
	// members (group.consumer.migration.policy); Bidirectional.
	Migration Migration
	// InitialDelay is how long a new group waits for more members before its
	// first rebalance (group.initial.rebalance.delay.ms; 3 s). Each newcomer
	// makes it wait as long again, up to the members' rebalance timeout.
	InitialDelay time.Duration
	MaxMembers   int // group.max.size; 50,000, handed-out ids included
	// MaxMemberBytes bounds what one member says about itself; 1 MiB.
	MaxMemberBytes int
	// MaxGroupBytes bounds what a group's members say about themselves together,
	// and one rebalance's assignments; 32 MiB. The log must take entries of that size.
	MaxGroupBytes int
	MaxGroups     int // 100,000
	// MaxShardBytes bounds what all groups of the shard take in memory: members,
	// live and stored, and positions; 256 MiB. What would go beyond is refused
	// with ErrShardFull; a snapshot is about as large again.
	MaxShardBytes          int
	MaxOffsets             int // positions a group; 1,000,000
	MaxOffsetMetadataBytes int // offset.metadata.max.bytes; 4096
	// OffsetsRetention is how long positions are kept after the group has become
	// empty (offsets.retention.minutes; 7 days).
	OffsetsRetention time.Duration
	// ExpireInterval is how often to look for expired positions; 10 min. At most MaxClockStep.
	ExpireInterval time.Duration
}

// MinConsumerInterval is the shortest heartbeat interval of consumers.
const MinConsumerInterval = 100 * time.Millisecond

// Migration is a policy; groups without members always become what is asked for.
type Migration string

// The policies.
const (
	Bidirectional Migration = "bidirectional"
	Upgrade       Migration = "upgrade"   // to groups whose partitions the coordinator assigns
	Downgrade     Migration = "downgrade" // to classic groups
	Disabled      Migration = "disabled"
)

func (m Migration) upgrades() bool   { return m == Bidirectional || m == Upgrade }
func (m Migration) downgrades() bool { return m == Bidirectional || m == Downgrade }

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		MinSession: 6 * time.Second, MaxSession: 30 * time.Minute, InitialDelay: 3 * time.Second,
		ConsumerSession: 45 * time.Second, ConsumerInterval: 5 * time.Second, LeastConsumerInterval: time.Second, Migration: Bidirectional,
		MaxMembers: 50_000, MaxMemberBytes: 1 << 20, MaxGroupBytes: 32 << 20, MaxGroups: 100_000, MaxShardBytes: 256 << 20,
		MaxOffsets: 1_000_000, MaxOffsetMetadataBytes: 4096,
		OffsetsRetention: 7 * 24 * time.Hour, ExpireInterval: 10 * time.Minute,
	}
}

// Validate tells the first setting that cannot be.
func (c Config) Validate() error {
	switch {
	case c.MinSession <= 0 || c.MaxSession < c.MinSession:
		return fmt.Errorf("group session timeouts: want 0 < min ≤ max, have %v and %v", c.MinSession, c.MaxSession)
	case c.ConsumerInterval < MinConsumerInterval || c.ConsumerSession <= c.ConsumerInterval || c.ConsumerSession > c.MaxSession:
		return fmt.Errorf("group consumer heartbeat interval %v and session timeout %v: want %v ≤ interval < session ≤ %v", c.ConsumerInterval, c.ConsumerSession, MinConsumerInterval, c.MaxSession)
	case c.LeastConsumerInterval < MinConsumerInterval:
		return fmt.Errorf("least group consumer heartbeat interval %v: want ≥ %v", c.LeastConsumerInterval, MinConsumerInterval)
	case !slices.Contains([]Migration{Bidirectional, Upgrade, Downgrade, Disabled}, c.Migration):
		return fmt.Errorf("group consumer migration policy %q: want %s, %s, %s or %s", c.Migration, Bidirectional, Upgrade, Downgrade, Disabled)
	case c.InitialDelay < 0:
		return fmt.Errorf("group initial rebalance delay %v: want ≥ 0", c.InitialDelay)
	case c.MaxMembers < 1 || c.MaxMemberBytes < 1 || c.MaxGroupBytes < c.MaxMemberBytes || c.MaxGroups < 1 || c.MaxShardBytes < c.MaxGroupBytes || c.MaxOffsets < 1 || c.MaxOffsetMetadataBytes < 0:
		return fmt.Errorf("group limits must be positive, a group at least as large as a member, a shard as a group: %+v", c)
	case c.OffsetsRetention <= 0 || c.ExpireInterval <= 0 || c.ExpireInterval > MaxClockStep:
		return fmt.Errorf("group offsets retention %v and check interval %v: want > 0 and an interval ≤ %v", c.OffsetsRetention, c.ExpireInterval, MaxClockStep)
	}
	return nil
}
