package meta

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const settingsHead = `<!-- Written from internal/meta by "make generate". Do not edit. -->

# Settings of a topic

Every topic works without any. They are given when a topic is created, changed later, and taken back with ` + "`--reset`" + `:

` + "```sh" + `
tube topic create logs --config retention.ms=86400000
tube topic alter logs --config retention.bytes=1073741824 --reset retention.ms
tube topic describe logs
` + "```" + `

Kafka's tools do the same; names and defaults are Kafka's where Kafka has them. A name that does not exist, or a value that
cannot be, is refused with an error that says what can be.

## Settings with effect

| name | default | values | what it does |
|---|---|---|---|
`

const settingsWithout = `
## Settings without effect

Tools and clients send these. They are accepted, kept and shown.

| name | default | values | why it has none |
|---|---|---|---|
`

const groupSettingsHead = `<!-- Written from internal/meta by "make generate". Do not edit. -->

# Settings of a share group

Every group works without any. Kafka's tools give them and take them back (resource type 32, ` + "`--entity-type groups`" + `); they
hold at once, also for what the group reads already. Names and defaults are Kafka's. A queue group that was made with
` + "`tube queue create`" + ` keeps its own settings, also while share consumers read through it.

| name | default | values | what it does |
|---|---|---|---|
`

// GroupSettingsReference writes docs/group-settings.md.
func GroupSettingsReference() string {
	var out strings.Builder
	out.WriteString(groupSettingsHead)
	for _, s := range groupSettings {
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", s.Name, s.defaults(), s.values(), s.Doc)
	}
	return out.String()
}

// SettingsReference writes docs/topic-settings.md.
func SettingsReference() string {
	var with, without strings.Builder
	for _, s := range topicSettings {
		to := &without
		if s.Effect {
			to = &with
		}
		fmt.Fprintf(to, "| `%s` | %s | %s | %s |\n", s.Name, s.defaults(), s.values(), s.Doc)
	}
	return settingsHead + with.String() + settingsWithout + without.String()
}

// defaults is the default, and the same again for people if it is a long number.
func (s *TopicSetting) defaults() string {
	n, err := strconv.ParseInt(s.Default, 10, 64)
	again := ""
	switch {
	case err != nil:
	case n == math.MaxInt64:
		again = " (no limit)"
	case strings.HasSuffix(s.Name, ".ms") && n >= 3_600_000:
		again = fmt.Sprintf(" (%g h)", time.Duration(n*int64(time.Millisecond)).Hours())
	case strings.HasSuffix(s.Name, ".bytes") && n >= 1<<20:
		again = fmt.Sprintf(" (%d MiB)", n>>20)
	}
	return "`" + s.Default + "`" + again
}

// values says in words what a setting can be.
func (s *TopicSetting) values() string {
	switch {
	case s.oneOf != nil:
		return strings.Join(s.oneOf, ", ")
	case s.Kind == KindDouble:
		return "0 to 1"
	case s.max == math.MaxInt64:
		return fmt.Sprintf("%d or more", s.min)
	}
	return fmt.Sprintf("%d to %d", s.min, s.max)
}
