package meta

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tube-mq/tube/internal/queue"
)

// GroupConfig is a group's settings, resolved and typed.
type GroupConfig struct {
	ShareLock       time.Duration // how long a share consumer may hold a record
	ShareDeliveries int           // after so many a record is dead
	ShareLocks      int           // records that may be held at a time, in each partition
	ShareFromStart  bool          // a share group begins with the oldest record
	ShareFromAgo    time.Duration // it begins with the records of so long ago; 0: with none
	ShareSession    time.Duration // a member that is silent for so long is out
	ShareInterval   time.Duration // between a member's heartbeats
	ShareRenew      bool          // members may renew the lock of a record
}

// GroupSetting is one row of the table of group settings. Names and defaults are Kafka's.
type GroupSetting struct {
	TopicSetting
	apply func(c *GroupConfig, v value)
}

// Limits of queue groups, as Kafka counts.
const (
	maxLockMillis  = int64(queue.MaxLease / time.Millisecond)
	minLockMillis  = int64(queue.MinLease / time.Millisecond)
	maxShareLocks  = 1_000_000
	maxDeliveries  = 1_000
	maxGroupMillis = 1_800_000
)

func groupNumber(name string, def, least, most int64, doc string, apply func(*GroupConfig, value)) GroupSetting {
	s := number(name, KindInt, def, least, most, doc, nil)
	s.Effect = true
	return GroupSetting{s, apply}
}

func groupWord(name string, kind Kind, doc string, apply func(*GroupConfig, value), words ...string) GroupSetting {
	s := word(name, kind, doc, nil, words...)
	s.Effect = apply != nil
	return GroupSetting{s, apply}
}

// groupSettings is the table, by name.
var groupSettings = []GroupSetting{
	groupWord("share.auto.offset.reset", KindString, "Where a share group begins with a topic that it reads for the first time: latest, with what is sent from then on; earliest, with the oldest record; by_duration:PT1H, with the records of the last hour, or however long (ISO 8601).", func(c *GroupConfig, v value) {
		c.ShareFromStart, c.ShareFromAgo = v.s == "earliest", millis(v.n)
	}, "latest", "earliest", "by_duration:"+durationWord),
	groupNumber("share.delivery.count.limit", 5, 1, maxDeliveries, "A record that was delivered so often without being accepted goes to the dead letters.", func(c *GroupConfig, v value) { c.ShareDeliveries = int(v.n) }),
	groupNumber("share.heartbeat.interval.ms", 5000, 100, 60_000, "How often members are told to say that they live.", func(c *GroupConfig, v value) { c.ShareInterval = millis(v.n) }),
	groupWord("share.isolation.level", KindString, "There are no transactions, so both see the same.", nil, "read_uncommitted", "read_committed"),
	groupNumber("share.partition.max.record.locks", 2000, 1, maxShareLocks, "How many records of a partition may be held at a time.", func(c *GroupConfig, v value) { c.ShareLocks = int(v.n) }),
	groupNumber("share.record.lock.duration.ms", 30_000, minLockMillis, maxLockMillis, "How long a member may hold a record before it goes to another.", func(c *GroupConfig, v value) { c.ShareLock = millis(v.n) }),
	groupWord("share.renew.acknowledge.enable", KindBool, "Whether a member may renew its hold on a record (KIP-1222).", func(c *GroupConfig, v value) { c.ShareRenew = v.s == "true" }, "true", "false"),
	groupNumber("share.session.timeout.ms", 45_000, 1000, maxGroupMillis, "A member that says nothing for so long is taken out.", func(c *GroupConfig, v value) { c.ShareSession = millis(v.n) }),
}

// GroupSettings returns the table, by name.
func GroupSettings() []GroupSetting { return slices.Clone(groupSettings) }

// FindGroupSetting finds a row of the table.
func FindGroupSetting(name string) (GroupSetting, bool) {
	i, ok := slices.BinarySearchFunc(groupSettings, name, func(s GroupSetting, n string) int { return strings.Compare(s.Name, n) })
	if !ok {
		return GroupSetting{}, false
	}
	return groupSettings[i], true
}

// ResolveGroupConfig puts a group's settings over the defaults. Error: ErrInvalidConfig.
func ResolveGroupConfig(given map[string]string) (GroupConfig, error) {
	var c GroupConfig
	for i := range groupSettings {
		s := &groupSettings[i]
		text, ok := given[s.Name]
		if !ok {
			text = s.Default
		}
		v, err := s.parse(text)
		if err != nil {
			return GroupConfig{}, err
		}
		if s.apply != nil {
			s.apply(&c, v)
		}
	}
	for name := range given {
		if _, ok := FindGroupSetting(name); !ok {
			table := make([]TopicSetting, len(groupSettings))
			for i := range groupSettings {
				table[i] = groupSettings[i].TopicSetting
			}
			return GroupConfig{}, unknownSetting(name, table)
		}
	}
	if c.ShareInterval >= c.ShareSession {
		return GroupConfig{}, fmt.Errorf("%w: share.heartbeat.interval.ms is %d, which is not below share.session.timeout.ms, %d", ErrInvalidConfig, c.ShareInterval.Milliseconds(), c.ShareSession.Milliseconds())
	}
	return c, nil
}

// GroupConfig is what a group's settings are.
func (im *Image) GroupConfig(group string) GroupConfig {
	c, err := ResolveGroupConfig(im.GroupConfigs[group])
	if err != nil { // one that an older version let through
		c, _ = ResolveGroupConfig(nil)
	}
	return c
}

// fit gives a share group's queue group what its settings say.
func (c *GroupConfig) fit(s *queue.Settings) {
	s.Lease, s.MaxAttempts, s.MaxInFlight = c.ShareLock, c.ShareDeliveries, c.ShareLocks
	s.MaxHandling = max(s.MaxHandling, s.Lease)
}

// ShareSettings are those of a queue group that is made for a share group. What is
// released is there again at once, as share consumers expect.
func (c *GroupConfig) ShareSettings(now time.Time) queue.Settings {
	s := queue.DefaultSettings()
	s.Backoff, s.StartAtMillis = nil, queue.StartAtEnd
	if c.ShareFromStart {
		s.StartAtMillis = queue.StartAtStart
	}
	if c.ShareFromAgo > 0 {
		s.StartAtMillis = max(0, now.Add(-c.ShareFromAgo).UnixMilli())
	}
	c.fit(&s)
	return s
}
