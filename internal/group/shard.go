package group

import (
	"hash/fnv"
	"unicode/utf8"
)

// MaxNameBytes bounds a group's name.
const MaxNameBytes = 1024

// ShardOf tells which of shards (≥ 1) holds the group. It is part of the format:
// stored groups would not be found if it changed.
func ShardOf(name string, shards int) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % uint32(shards))
}

// checkName tells whether a group may have this name. The empty name, which
// Kafka tolerates for old commits, is refused here as well.
func checkName(name string) error {
	if name == "" || len(name) > MaxNameBytes || !utf8.ValidString(name) {
		return ErrInvalidGroup
	}
	return nil
}
