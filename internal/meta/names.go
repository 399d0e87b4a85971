package meta

import (
	"fmt"
	"strings"
)

// MaxTopicNameBytes is the longest topic name.
const MaxTopicNameBytes = 249

// CheckTopicName enforces Kafka's rule: 1 to 249 of [a-zA-Z0-9._-], not "." or "..".
func CheckTopicName(name string) error {
	return checkName(name, ErrInvalidTopicName)
}

// CheckQueueName enforces the same rule for a queue group. Error: ErrInvalidQueueName.
func CheckQueueName(name string) error { return checkName(name, ErrInvalidQueueName) }

func checkName(name string, invalid error) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", invalid)
	case name == "." || name == "..":
		return fmt.Errorf("%w: it cannot be %q", invalid, name)
	case len(name) > MaxTopicNameBytes:
		return fmt.Errorf("%w: %d bytes long, %d are allowed", invalid, len(name), MaxTopicNameBytes)
	}
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return fmt.Errorf("%w: %q holds %q; allowed are letters, digits, '.', '_' and '-'", invalid, name, c)
		}
	}
	return nil
}

// metricName is what names that differ in '.' and '_' only have in common: they
// would collide in metrics, so there may be one of them.
func metricName(name string) string { return strings.ReplaceAll(name, ".", "_") }

func collision(name, other string) error {
	return fmt.Errorf("%w: %q collides with topic %q: they differ in '.' and '_' only", ErrInvalidTopicName, name, other)
}

// CheckCollision refuses the name of a new topic that differs from another's in
// '.' and '_' only. It looks at every topic: the machine, which decides, is
// quicker. Error: ErrInvalidTopicName.
func (im *Image) CheckCollision(name string) error {
	for other := range im.ByName {
		if other != name && metricName(other) == metricName(name) {
			return collision(name, other)
		}
	}
	return nil
}
