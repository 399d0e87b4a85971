package meta

import (
	"fmt"
	"strings"
)

// MaxTopicNameBytes is the longest topic name.
const MaxTopicNameBytes = 249

// CheckTopicName enforces Kafka's rule: 1 to 249 of [a-zA-Z0-9._-], not "." or "..".
func CheckTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidTopicName)
	case name == "." || name == "..":
		return fmt.Errorf("%w: it cannot be %q", ErrInvalidTopicName, name)
	case len(name) > MaxTopicNameBytes:
		return fmt.Errorf("%w: %d bytes long, %d are allowed", ErrInvalidTopicName, len(name), MaxTopicNameBytes)
	}
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return fmt.Errorf("%w: %q holds %q; allowed are letters, digits, '.', '_' and '-'", ErrInvalidTopicName, name, c)
		}
	}
	return nil
}

// metricName is what names that differ in '.' and '_' only have in common: they
// would collide in metrics, so there may be one of them.
func metricName(name string) string { return strings.ReplaceAll(name, ".", "_") }
