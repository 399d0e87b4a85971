package queue

import "errors"

// What a call about a whole group or topic may be answered. Nothing was changed then,
// but for ErrOutcomeUnknown. (What a single lease is answered is in types.go.)
var (
	// ErrGroupMode: the group's mode or its way of acknowledging does not have this.
	ErrGroupMode = errors.New("not for a queue group of this mode")
	// ErrInvalidSetting: names the field, what it can be and what it was.
	ErrInvalidSetting = errors.New("invalid queue setting")
	// ErrMessageTooLarge: larger than the topic's max.message.bytes.
	ErrMessageTooLarge = errors.New("message too large")
	// ErrUnknownMessage: no such offset or id; or not delayed (any more), where that
	// was asked for.
	ErrUnknownMessage = errors.New("unknown message")
	// ErrUnavailable: a partition has no leader, or it does not answer. Again later.
	ErrUnavailable = errors.New("queue unavailable")
	// ErrOverloaded: the disk is full or too much is under way. Again later.
	ErrOverloaded = errors.New("queue overloaded")
	// ErrOutcomeUnknown: it was begun, and it is not known whether it came to be.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrConflict: something changed meanwhile.
	ErrConflict = errors.New("changed meanwhile")
	// ErrInvalidFilter: a CEL expression that does not compile. See internal/filter.
	ErrInvalidFilter = errors.New("invalid filter")
)
