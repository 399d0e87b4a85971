package config

import (
	"fmt"
	"strings"
)

const referenceHead = `<!-- Written from internal/config by "make generate". Do not edit. -->

# Configuration of a node

A node needs no configuration: ` + "`tube start`" + ` runs on the defaults below.

Every setting has one name and three places, strongest first:

1. a flag of ` + "`tube start`" + `, for example ` + "`--default-partitions 8`" + `;
2. an environment variable, ` + "`TUBE_DEFAULT_PARTITIONS=8`" + `;
3. a line of the YAML file that ` + "`--config FILE` or `TUBE_CONFIG`" + ` names, ` + "`default-partitions: 8`" + `.

A name that does not exist, or a value that cannot be, stops the start with an error that says where it stands.

Durations are written like ` + "`500ms`, `30s`, `10m`, `12h`, `7d`" + `; sizes like ` + "`1048576`, `512KiB`, `64MiB`, `1GiB`" + `
(and ` + "`MB`, `GB`" + ` for powers of ten). Lists are written with commas, or as a YAML list in the file.

Settings of a single topic (retention, durability, …) are not here: they are given with
` + "`tube topic create --config k=v`" + ` and changed with ` + "`tube topic alter`" + `; see [topic settings](topic-settings.md).
`

const referenceTail = `
## An example file

` + "```yaml" + `
data: /var/lib/tube
kafka: 0.0.0.0:9092
advertise-kafka: broker1.example.org:9092
insecure: true
default-partitions: 8
offsets-retention: 14d
` + "```" + `
`

// Reference writes docs/configuration.md.
func Reference() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	section := ""
	for _, s := range settings {
		if s.Section != section {
			section = s.Section
			fmt.Fprintf(&b, "\n## %s\n\n| name | default | values | what it does |\n|---|---|---|---|\n", section)
		}
		fmt.Fprintf(&b, "| `%s`<br>`%s` | %s | %s | %s |\n", s.Name, s.Env(), code(s.Default), s.Kind(), s.Doc)
	}
	b.WriteString(referenceTail)
	return b.String()
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}
