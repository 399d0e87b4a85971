package meta

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// TopicConfig is a topic's settings, resolved and typed. Names and defaults are
// Kafka's where Kafka has them; the table below says what each means.
type TopicConfig struct {
	Retention          time.Duration // < 0: no limit
	RetentionBytes     int64         // per partition; < 0: no limit
	SegmentBytes       int64
	SegmentAge         time.Duration
	MaxMessageBytes    int // of the largest batch
	LogAppendTime      bool
	TimestampBeforeMax time.Duration
	TimestampAfterMax  time.Duration
	MinInsyncReplicas  int
	Durability         Durability
	MemoryOnly         bool
	// QueueRetain and QueueRetainBytes bound what is kept beyond Retention and
	// RetentionBytes for queue groups that are not done with it; < 0: no limit.
	QueueRetain      time.Duration
	QueueRetainBytes int64
	DedupeWindow     time.Duration // how long message ids are remembered; 0: not at all
}

// Durability is when a produced batch is acknowledged.
type Durability string

// The durabilities, safest first.
const (
	QuorumFsync  Durability = "quorum-fsync"
	QuorumMemory Durability = "quorum-memory"
	NoDurability Durability = "none"
)

// Kind is how a setting's value is written.
type Kind string

// The kinds of setting, named as DescribeConfigs knows them.
const (
	KindLong   Kind = "long"
	KindInt    Kind = "int"
	KindString Kind = "string"
	KindList   Kind = "list"
	KindBool   Kind = "boolean"
	KindDouble Kind = "double"
)

// TopicSetting is one row of the table of topic settings.
type TopicSetting struct {
	Name    string
	Kind    Kind
	Default string
	Doc     string // what it means
	Effect  bool   // false: accepted because clients send it, and without effect
	// min and max bound numbers; oneOf lists the words of the others. A word that ends
	// with durationWord has a duration there, as ISO 8601 writes it.
	min, max int64
	oneOf    []string
	set      func(c *TopicConfig, v value)
}

// value is a parsed setting.
type value struct {
	n int64
	s string
}

const unlimitedMillis = math.MaxInt64

// millis turns a number of milliseconds into a duration, as long as one can be.
func millis(n int64) time.Duration {
	if n > int64(math.MaxInt64/time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Millisecond
}

func number(name string, kind Kind, def, least, most int64, doc string, set func(*TopicConfig, value)) TopicSetting {
	return TopicSetting{Name: name, Kind: kind, Default: strconv.FormatInt(def, 10), Doc: doc, Effect: set != nil, min: least, max: most, set: set}
}

func word(name string, kind Kind, doc string, set func(*TopicConfig, value), words ...string) TopicSetting {
	return TopicSetting{Name: name, Kind: kind, Default: words[0], Doc: doc, Effect: set != nil, oneOf: words, set: set}
}

// topicSettings is the table: what is not in it is not a setting.
var topicSettings = []TopicSetting{
	word("cleanup.policy", KindList, "What happens to old batches. Only delete is there; compaction is not.", func(*TopicConfig, value) {}, "delete"),
	word("compression.type", KindString, "Batches are kept as the producer compressed them.", func(*TopicConfig, value) {}, "producer"),
	number("delete.retention.ms", KindLong, 86_400_000, 0, math.MaxInt64, "Of compacted topics, which there are none of.", nil),
	number("file.delete.delay.ms", KindLong, 60_000, 0, math.MaxInt64, "Files of dropped segments are removed off the data path within seconds.", nil),
	number("flush.messages", KindLong, math.MaxInt64, 1, math.MaxInt64, "Durability does not depend on it: see tube.durability.", nil),
	number("flush.ms", KindLong, math.MaxInt64, 0, math.MaxInt64, "Durability does not depend on it: see tube.durability.", nil),
	number("index.interval.bytes", KindInt, 4096, 0, math.MaxInt32, "The index chooses its own interval.", nil),
	number("max.compaction.lag.ms", KindLong, math.MaxInt64, 1, math.MaxInt64, "Of compacted topics, which there are none of.", nil),
	number("max.message.bytes", KindInt, 1_048_588, 0, 100<<20, "The largest batch in bytes, compressed as it comes.", func(c *TopicConfig, v value) { c.MaxMessageBytes = int(v.n) }),
	number("message.timestamp.after.max.ms", KindLong, 3_600_000, 0, math.MaxInt64, "How far in the future a record's timestamp may be.", func(c *TopicConfig, v value) { c.TimestampAfterMax = millis(v.n) }),
	number("message.timestamp.before.max.ms", KindLong, unlimitedMillis, 0, math.MaxInt64, "How far in the past a record's timestamp may be.", func(c *TopicConfig, v value) { c.TimestampBeforeMax = millis(v.n) }),
	word("message.timestamp.type", KindString, "Whether a record's time is the producer's or that of its arrival.", func(c *TopicConfig, v value) { c.LogAppendTime = v.s == "LogAppendTime" }, "CreateTime", "LogAppendTime"),
	{Name: "min.cleanable.dirty.ratio", Kind: KindDouble, Default: "0.5", Doc: "Of compacted topics, which there are none of."},
	number("min.compaction.lag.ms", KindLong, 0, 0, math.MaxInt64, "Of compacted topics, which there are none of.", nil),
	number("min.insync.replicas", KindInt, 1, 1, math.MaxInt32, "Accepted and shown, and changes nothing. A batch is acknowledged once a majority of the replicas has it (unless tube.durability is none), whatever the value: 2 of 3, 3 of 5. A smaller value does not make that less, a larger one does not make it more; who needs more copies raises the replication factor.", func(c *TopicConfig, v value) { c.MinInsyncReplicas = int(v.n) }),
	word("preallocate", KindBool, "Segments are not preallocated; the write-ahead log is.", nil, "false", "true"),
	number("retention.bytes", KindLong, -1, -1, math.MaxInt64, "How much of a partition is kept; the oldest segments go first. −1: no limit.", func(c *TopicConfig, v value) { c.RetentionBytes = v.n }),
	number("retention.ms", KindLong, 604_800_000, -1, math.MaxInt64, "How long records are kept; whole segments go once their newest record is older. −1: no limit.", func(c *TopicConfig, v value) { c.Retention = millis(v.n) }),
	number("segment.bytes", KindInt, 1<<30, 1<<20, math.MaxInt32, "The size at which a segment is closed.", func(c *TopicConfig, v value) { c.SegmentBytes = v.n }),
	number("segment.index.bytes", KindInt, 10<<20, 4, math.MaxInt32, "The index grows as it needs.", nil),
	number("segment.jitter.ms", KindLong, 0, 0, math.MaxInt64, "Segments are closed when they are due.", nil),
	number("segment.ms", KindLong, 604_800_000, 1, math.MaxInt64, "The age at which a segment is closed.", func(c *TopicConfig, v value) { c.SegmentAge = millis(v.n) }),
	number("tube.dedupe.window", KindLong, 0, 0, 604_800_000, "For so long, in milliseconds, a message's id is remembered, from when it was sent and from when the last queue group was done with it, and another message of the same id is not stored but answered with the first one's place. Ids come with the queue API or in the header `tube-message-id`. It costs memory for each id that is remembered. 0: ids are not looked at.", func(c *TopicConfig, v value) { c.DedupeWindow = millis(v.n) }),
	word("tube.durability", KindString, "When a batch is acknowledged. quorum-fsync: fsynced on a majority. quorum-memory: written, not synced, on a majority; a power cut of all of them may lose the last moments. none: written by the leader.", func(c *TopicConfig, v value) { c.Durability = Durability(v.s) }, string(QuorumFsync), string(QuorumMemory), string(NoDurability)),
	number("tube.queue.retain.bytes", KindLong, 10<<30, -1, math.MaxInt64, "How much of a partition is kept at most for queue groups with `retain-until-consumed`, where `retention.ms` or `retention.bytes` would let it go. What goes then before such a group is done with it is told by an event first, counted and logged. −1: no limit.", func(c *TopicConfig, v value) { c.QueueRetainBytes = v.n }),
	number("tube.queue.retain.ms", KindLong, 2_592_000_000, -1, math.MaxInt64, "How long records are kept at most for such groups. −1: no limit.", func(c *TopicConfig, v value) { c.QueueRetain = millis(v.n) }),
	word("tube.storage", KindString, "log: on disk. memory: batches are in memory only and gone after a restart; their offsets are not given again. Cannot be changed later.", func(c *TopicConfig, v value) { c.MemoryOnly = v.s == "memory" }, "log", "memory"),
	word("unclean.leader.election.enable", KindBool, "A replica that lacks acknowledged batches is never elected.", nil, "false"),
}

// TopicSettings returns the table, by name.
func TopicSettings() []TopicSetting { return slices.Clone(topicSettings) }

// FindTopicSetting finds a row of the table.
func FindTopicSetting(name string) (TopicSetting, bool) {
	i, ok := slices.BinarySearchFunc(topicSettings, name, func(s TopicSetting, n string) int { return strings.Compare(s.Name, n) })
	if !ok {
		return TopicSetting{}, false
	}
	return topicSettings[i], true
}

// maxValueBytes bounds a setting's value, which every node keeps as it is
// written. The longest that means something has 20 bytes.
const maxValueBytes = 100

// parse checks a value.
func (s *TopicSetting) parse(text string) (value, error) {
	if len(text) > maxValueBytes {
		return value{}, fmt.Errorf("%w: the value of %s is %d bytes long, %d are allowed", ErrInvalidConfig, s.Name, len(text), maxValueBytes)
	}
	if s.oneOf != nil {
		for _, w := range s.oneOf {
			if strings.EqualFold(w, strings.TrimSpace(text)) && !strings.HasSuffix(w, durationWord) {
				return value{s: w}, nil
			}
			if v, ok := durationValue(w, strings.TrimSpace(text)); ok {
				return v, nil
			}
		}
		return value{}, fmt.Errorf("%w: %s=%q; it can be %s", ErrInvalidConfig, s.Name, text, strings.Join(s.oneOf, ", "))
	}
	if s.Kind == KindDouble {
		if f, err := strconv.ParseFloat(text, 64); err != nil || !(f >= 0 && f <= 1) { // NaN is neither
			return value{}, fmt.Errorf("%w: %s=%q; it is a number from 0 to 1", ErrInvalidConfig, s.Name, text)
		}
		return value{s: text}, nil
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < s.min || n > s.max {
		return value{}, fmt.Errorf("%w: %s=%q; it is a whole number from %d to %d", ErrInvalidConfig, s.Name, text, s.min, s.max)
	}
	return value{n: n}, nil
}

const durationWord = "DURATION"

// durationValue reads a word with a duration at its end; the value is the word before
// it, and milliseconds.
func durationValue(word, text string) (value, bool) {
	prefix, ok := strings.CutSuffix(word, durationWord)
	if !ok || len(text) < len(prefix) || !strings.EqualFold(text[:len(prefix)], prefix) {
		return value{}, false
	}
	d, ok := isoDuration(text[len(prefix):])
	return value{s: prefix, n: d.Milliseconds()}, ok
}

// ResolveTopicConfig puts a topic's own settings over the cluster's defaults
// over Kafka's. Error: ErrInvalidConfig, naming the setting and what it can be.
func ResolveTopicConfig(overrides, defaults map[string]string) (TopicConfig, error) {
	var c TopicConfig
	for i := range topicSettings {
		s := &topicSettings[i]
		text, ok := overrides[s.Name]
		if !ok {
			if text, ok = defaults[s.Name]; !ok {
				text = s.Default
			}
		}
		v, err := s.parse(text)
		if err != nil {
			return TopicConfig{}, err
		}
		if s.set != nil {
			s.set(&c, v)
		}
	}
	for name := range overrides {
		if _, ok := FindTopicSetting(name); !ok {
			return TopicConfig{}, unknownSetting(name, topicSettings)
		}
	}
	return c, nil
}

// checkDefaults checks settings that are to hold for every topic.
func checkDefaults(defaults map[string]string) error {
	for name, text := range defaults {
		s, ok := FindTopicSetting(name)
		if !ok {
			return unknownSetting(name, topicSettings)
		}
		if _, err := s.parse(text); err != nil {
			return err
		}
	}
	return nil
}

func unknownSetting(name string, table []TopicSetting) error {
	if len(name) > maxValueBytes { // nobody meant one of ours
		return fmt.Errorf("%w: there is no setting %q…", ErrInvalidConfig, name[:maxValueBytes])
	}
	best, distance := "", len(name)/2+1
	for _, s := range table {
		if d := editDistance(name, s.Name); d < distance {
			best, distance = s.Name, d
		}
	}
	if best == "" {
		return fmt.Errorf("%w: there is no setting %q", ErrInvalidConfig, name)
	}
	return fmt.Errorf("%w: there is no setting %q; did you mean %q?", ErrInvalidConfig, name, best)
}

// editDistance is the number of single-letter changes from a to b (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
